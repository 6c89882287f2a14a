from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import on_turn
from agent.config import NluSettings
from agent.errors import ConfigError, HookError
from agent.nlu.echo import EchoNlu
from agent.nlu.factory import create_nlu
from agent.nlu.function import FunctionNlu, load_hook
from agent.nlu.hook import Hangup, Session
from agent.nlu.http import HttpNlu
from agent.nlu.openai_chat import OpenAIChatNlu
from agent.nlu.rules import RulesNlu
from agent.nlu.threads import HookThreads, ThreadedIterator, call_in_thread

MODULE = """
from agent import Hangup, on_turn

@on_turn
async def marked(turn):
    yield "marked " + turn.text

async def generator(turn):
    yield "generator"

async def coroutine(turn):
    return ["coroutine", Hangup()]

def plain(turn):
    return "plain"

def blocking(turn):
    yield "one"
    yield "two"

def returns_async(turn):
    return generator(turn)

def silent(turn):
    return None

class Shop:
    def __init__(self):
        self.closed = 0
    async def reply(self, turn):
        yield "class"
    def expect(self, turn):
        return ["Hello."]
    async def close(self):
        self.closed += 1

class Callable:
    async def __call__(self, turn):
        return "callable"

class NeedsArgument:
    def __init__(self, x): ...
    async def reply(self, turn): ...

class NoReply: ...

shop = Shop()
callable_object = Callable()
number = 42

def two(turn, other): ...
"""


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with hook modules, as the working directory."""
    (tmp_path / "shop_hooks.py").write_text(MODULE)
    (tmp_path / "broken_hooks.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "exiting_hooks.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield tmp_path
    for name in ("shop_hooks", "broken_hooks", "exiting_hooks"):
        sys.modules.pop(name, None)


async def collect(nlu: Any, turn: Any) -> list[Any]:
    return [item async for item in nlu.reply(turn)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("marked", ["marked hello"]),
        ("generator", ["generator"]),
        ("coroutine", ["coroutine", Hangup()]),
        ("plain", ["plain"]),
        ("blocking", ["one", "two"]),
        ("returns_async", ["generator"]),
        ("silent", []),
        ("Shop", ["class"]),
        ("shop", ["class"]),
        ("shop.reply", ["class"]),
        ("callable_object", ["callable"]),
    ],
)
@pytest.mark.parametrize("form", ["shop_hooks:{}", "./shop_hooks.py:{}"])
async def test_every_kind_of_object_is_a_hook(
    hooks: Path, helpers: Any, form: str, name: str, expected: list[Any]
) -> None:
    nlu = load_hook(form.format(name))
    assert await collect(nlu, helpers.make_turn()) == expected


async def test_a_class_lends_its_openings_and_its_close(hooks: Path, helpers: Any) -> None:
    nlu: Any = load_hook("shop_hooks:Shop")
    assert list(nlu.expect(helpers.make_turn())) == ["Hello."]
    await nlu.close()
    await nlu.close()
    assert nlu._owner.closed == 2


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("", "nlu.target is empty: expected package.module:object"),
        ("shop_hooks:", "expected package.module:object"),
        (":reply", "expected package.module:object"),
        ("shop_hooks:absent", "shop_hooks has no 'absent'"),
        ("absent_module:reply", "No module named 'absent_module'"),
        ("broken_hooks:reply", "No module named 'nothing_of_this_name'"),
        ("exiting_hooks:reply", "SystemExit"),
        ("shop hooks:reply", "is no module name"),
        ("./absent.py:reply", "there is no file"),
        ("unknown_entry_point", "is no entry point"),
        ("shop_hooks:number", "is an int"),
        ("shop_hooks:two", "a hook is a function of one Turn"),
        ("shop_hooks:NeedsArgument", "cannot be made without arguments"),
        ("shop_hooks:NoReply", "is a class without reply"),
    ],
)
def test_a_wrong_target_says_what_was_expected(hooks: Path, target: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_hook(target)


async def test_an_entry_point_is_found_by_its_name(hooks: Path, helpers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = hooks / "shop-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[rejoinder.hooks]\nthe-shop = shop_hooks:marked\n")
    monkeypatch.syspath_prepend(str(hooks))
    assert await collect(load_hook("the-shop"), helpers.make_turn()) == ["marked hello"]


def test_the_decorator_leaves_the_function_callable() -> None:
    @on_turn
    def reply(turn: Any) -> str:
        """Says its words back."""
        return str(turn)

    assert isinstance(reply, FunctionNlu)
    assert reply("x") == "x"  # type: ignore[arg-type]
    assert reply.__doc__ == "Says its words back."


@pytest.mark.parametrize("wrong", [42, "text", int, lambda: None, lambda a, b: None])
def test_the_decorator_refuses_what_cannot_take_a_turn(wrong: Any) -> None:
    with pytest.raises(TypeError, match="a hook is a function of one Turn"):
        on_turn(wrong)


async def test_a_plain_function_runs_off_the_event_loop(helpers: Any) -> None:
    @on_turn
    def reply(turn: Any) -> str:
        return threading.current_thread().name

    assert (await collect(reply, helpers.make_turn()))[0].startswith("hook-")


async def test_a_blocking_generator_stays_in_one_thread(helpers: Any) -> None:
    @on_turn
    def reply(turn: Any) -> Iterator[str]:
        for _ in range(5):
            yield threading.current_thread().name

    assert len(set(await collect(reply, helpers.make_turn()))) == 1


async def test_cancelling_a_blocking_function_returns_at_once(helpers: Any) -> None:
    release, entered = threading.Event(), threading.Event()

    def slow() -> str:
        entered.set()
        release.wait(10)
        return "late"

    waiting = asyncio.ensure_future(call_in_thread(slow))
    await asyncio.to_thread(entered.wait, 10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not release.is_set()
    release.set()


async def test_threads_are_bounded_and_a_full_backlog_is_refused() -> None:
    threads = HookThreads(limit=2, backlog=1)
    release = threading.Event()
    running: set[str] = set()
    started = threading.Semaphore(0)

    def slow() -> str:
        running.add(threading.current_thread().name)
        started.release()
        release.wait(10)
        return "done"

    first = [asyncio.ensure_future(call_in_thread(slow, threads)) for _ in range(2)]
    for _ in first:
        await asyncio.to_thread(started.acquire, True, 10)
    waiting = asyncio.ensure_future(call_in_thread(slow, threads))
    await asyncio.sleep(0)
    with pytest.raises(HookError, match="all 2 threads for blocking hooks are busy"):
        await call_in_thread(slow, threads)
    release.set()
    assert await asyncio.gather(*first, waiting) == ["done"] * 3
    assert len(running) == 2


async def test_a_call_abandoned_in_the_backlog_never_runs() -> None:
    threads = HookThreads(limit=1, backlog=2)
    release, entered = threading.Event(), threading.Event()
    ran: list[str] = []

    def slow() -> None:
        entered.set()
        release.wait(10)

    first = asyncio.ensure_future(call_in_thread(slow, threads))
    await asyncio.to_thread(entered.wait, 10)
    second = asyncio.ensure_future(call_in_thread(lambda: ran.append("second"), threads))
    await asyncio.sleep(0)
    second.cancel()
    release.set()
    await first
    await call_in_thread(lambda: ran.append("third"), threads)
    assert ran == ["third"]


async def test_closing_a_blocking_generator_runs_its_clean_up() -> None:
    closed = threading.Event()

    def steps() -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            closed.set()

    iterator = ThreadedIterator(steps())
    assert await anext(iterator) == 0
    await iterator.aclose()
    await iterator.aclose()
    assert closed.is_set()
    with pytest.raises(StopAsyncIteration):
        await anext(iterator)


async def test_state_belongs_to_the_session(helpers: Any) -> None:
    @on_turn
    async def reply(turn: Any) -> Any:
        turn.session.state["n"] = turn.session.state.get("n", 0) + 1
        yield str(turn.session.state["n"])

    ann, bob = Session("ann", "sip"), Session("bob", "sip")
    assert await collect(reply, helpers.make_turn(session=ann)) == ["1"]
    assert await collect(reply, helpers.make_turn(session=ann)) == ["2"]
    assert await collect(reply, helpers.make_turn(session=bob)) == ["1"]


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, RulesNlu),
        ({"kind": "echo"}, EchoNlu),
        ({"kind": "http", "target": "http://localhost:1/"}, HttpNlu),
        ({"kind": "openai_chat", "target": "https://localhost/v1", "model": "m", "api_key": "k"}, OpenAIChatNlu),
        ({"kind": "function", "target": "shop_hooks:marked"}, FunctionNlu),
    ],
)
async def test_settings_make_the_hook(hooks: Path, settings: dict[str, Any], kind: type) -> None:
    nlu: Any = create_nlu(NluSettings(**settings))
    assert isinstance(nlu, kind)
    await nlu.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "echo", "target": "x:y"}, "the echo hook has no target"),
        ({"kind": "http"}, "expected an http:// or https:// address"),
        ({"kind": "openai_chat", "target": "http://x/v1"}, "nlu.model"),
        ({"kind": "rules", "target": "absent.yaml"}, "cannot read the rules file"),
        ({"kind": "function", "target": "x"}, "is no entry point"),
    ],
)
def test_wrong_settings_are_config_errors(hooks: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create_nlu(NluSettings(**settings))


async def test_echo_says_back_what_it_heard(helpers: Any) -> None:
    nlu = EchoNlu()
    assert await collect(nlu, helpers.make_turn("Ask not what your country")) == ["Ask not what your country"]
    assert await collect(nlu, helpers.make_turn("42", kind="dtmf")) == ["You pressed 4 2."]
    assert await collect(nlu, helpers.make_turn(" ")) == []


def test_a_hook_can_refuse_to_be_asked_ahead() -> None:
    @on_turn(speculate=False)
    async def once(turn: Any) -> Any:
        yield "x"

    @on_turn
    async def twice(turn: Any) -> Any:
        yield "x"

    class Shop:
        speculate = False

        async def reply(self, turn: Any) -> Any:
            yield "x"

    shop = Shop()
    assert [FunctionNlu(shop.reply, owner=shop).speculate, once.speculate, twice.speculate] == [False, False, True]
