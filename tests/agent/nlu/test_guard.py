from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

import pytest

import agent.nlu.guard as guard_module
from agent.errors import HookError
from agent.nlu.function import FunctionNlu
from agent.nlu.guard import guarded
from agent.nlu.hook import Dtmf, Hangup, Listen, Send, SwitchLanguage, Transfer


class Hook:
    """A hook whose `reply` is the given function, outside any adapter."""

    def __init__(self, function: Any) -> None:
        self.reply = function


async def collect(function: Any, helpers: Any, max_chars: int = 1000) -> list[Any]:
    async with guarded(Hook(function), helpers.make_turn(), max_chars=max_chars) as reply:
        return [item async for item in reply]


HOSTILE_ITEMS = [
    (None, "None"),
    (b"bytes", "bytes"),
    (["a", "list"], "list"),
    (Hangup, "the class Hangup"),
    (object(), "object"),
    (Transfer(to=7), "Transfer.to"),  # type: ignore[arg-type]
    (Transfer(to=""), "Transfer.to"),
    (Dtmf("12x"), "Dtmf.digits"),
    (Hangup(after_playout="yes"), "Hangup.after_playout"),  # type: ignore[arg-type]
    (Listen("sometimes"), "Listen.expect"),  # type: ignore[arg-type]
    (Listen("digits", min_digits=0), "Listen.min_digits"),
    (SwitchLanguage("../etc"), "SwitchLanguage.tag"),
    (Send({"x": object()}), "Send.data"),
    (Send({"x": float("nan")}), "Send.data"),
    (Send({"x": "y" * 70_000}), "Send.data"),
    (Send("text"), "Send.data"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("item", "named"), HOSTILE_ITEMS, ids=[str(n) for n in range(len(HOSTILE_ITEMS))])
async def test_a_hostile_item_is_refused_by_name(item: Any, named: str, helpers: Any) -> None:
    async def reply(turn: Any) -> AsyncIterator[Any]:
        yield "Before."
        yield item

    stream = guarded(Hook(reply), helpers.make_turn(), max_chars=100)
    assert await anext(stream) == "Before."
    with pytest.raises(HookError, match=named):
        await anext(stream)


@pytest.mark.parametrize(
    "crash", [ValueError("x"), SystemExit(3), GeneratorExit(), asyncio.CancelledError(), OSError()]
)
async def test_whatever_a_hook_raises_becomes_a_hook_error(crash: BaseException, helpers: Any) -> None:
    async def reply(turn: Any) -> AsyncIterator[Any]:
        yield "Before."
        raise crash

    stream = guarded(Hook(reply), helpers.make_turn(), max_chars=100)
    assert await anext(stream) == "Before."
    with pytest.raises(HookError):
        await anext(stream)


async def test_where_the_hook_raised_is_known(helpers: Any) -> None:
    def broken(turn: Any) -> str:
        return str(int("none of the caller's words"))

    async def streamed(turn: Any) -> AsyncIterator[str]:
        yield broken(turn)

    line = broken.__code__.co_firstlineno + 1
    for function in (streamed, broken):
        with pytest.raises(HookError) as caught:
            async with guarded(FunctionNlu(function), helpers.make_turn(), max_chars=100) as reply:
                await anext(reply)
        assert caught.value.at == f"{__file__}:{line} broken"
        assert str(caught.value) == "the hook raised ValueError", "this is told to clients"


async def test_the_cause_is_kept(helpers: Any) -> None:
    async def reply(turn: Any) -> AsyncIterator[Any]:
        raise KeyError("lost")
        yield

    with pytest.raises(HookError, match="KeyError") as caught:
        await collect(reply, helpers)
    assert isinstance(caught.value.__cause__, KeyError)


async def test_a_reply_that_is_not_a_function_of_a_turn(helpers: Any) -> None:
    with pytest.raises(HookError, match="TypeError"):
        await collect(lambda: "no argument", helpers)
    with pytest.raises(HookError, match="AttributeError"):
        async for _ in guarded(object(), helpers.make_turn(), max_chars=10):  # type: ignore[arg-type]
            pass


@pytest.mark.parametrize(
    "answer",
    [
        lambda turn: "Hello.",
        lambda turn: ["Hello."],
        lambda turn: iter(["Hello."]),
        lambda turn: (piece for piece in ("Hello.",)),
    ],
    ids=["string", "list", "iterator", "generator"],
)
async def test_answers_that_are_not_generators_are_accepted(answer: Any, helpers: Any) -> None:
    assert await collect(answer, helpers) == ["Hello."]


async def test_an_awaitable_answer_is_awaited(helpers: Any) -> None:
    async def reply(turn: Any) -> str:
        await asyncio.sleep(0)
        return "Hello."

    assert await collect(reply, helpers) == ["Hello."]


async def test_an_async_iterator_without_aclose_is_accepted(helpers: Any) -> None:
    class Bare:
        left = 2

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> str:
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return "Again."

    assert await collect(lambda turn: Bare(), helpers) == ["Again.", "Again."]


async def test_a_hook_that_yields_while_being_closed_is_left_behind(helpers: Any, caplog: Any) -> None:
    async def reply(turn: Any) -> AsyncIterator[str]:
        try:
            yield "One."
        finally:
            yield "I will not go."

    stream = guarded(Hook(reply), helpers.make_turn(), max_chars=100)
    assert await anext(stream) == "One."
    with caplog.at_level(logging.WARNING, "agent.nlu.guard"):
        await stream.aclose()
    assert "failed in its clean-up: RuntimeError" in caplog.text


async def test_a_hook_that_swallows_cancellation_is_left_behind(
    helpers: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_module, "CLOSE_DEADLINE_S", 0.05)
    let_go = asyncio.Event()
    entered = asyncio.Event()

    async def reply(turn: Any) -> AsyncIterator[str]:
        yield "One."
        while not let_go.is_set():
            try:
                entered.set()
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    stream = guarded(Hook(reply), helpers.make_turn(), max_chars=100)
    assert await anext(stream) == "One."
    waiting = asyncio.ensure_future(anext(stream))
    await entered.wait()
    waiting.cancel()
    with caplog.at_level(logging.WARNING, "agent.nlu.guard"):
        await stream.aclose()
    assert "did not end when closed" in caplog.text
    assert len(guard_module._leaving) == 1
    let_go.set()
    await asyncio.wait(guard_module._leaving, timeout=5)
    await asyncio.sleep(0)
    assert not guard_module._leaving


NEVER_ENDS = """
import asyncio
from agent import Session, Turn
from agent.nlu.function import FunctionNlu
from agent.nlu.guard import guarded

async def reply(turn):
    yield "One."
    begun.set()
    while True:
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            continue

async def main():
    global begun
    begun = asyncio.Event()
    stream = guarded(FunctionNlu(reply), Turn(Session("call-1", "console"), "speech", "hi"), max_chars=100)
    assert await anext(stream) == "One."
    waiting = asyncio.ensure_future(anext(stream))
    await begun.wait()
    waiting.cancel()
    await stream.aclose()

asyncio.run(main())
print("ended")
"""


def test_a_hook_that_never_ends_does_not_keep_the_process_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", NEVER_ENDS], timeout=60, capture_output=True, text=True, check=False)
    assert done.stdout == "ended\n"


async def test_the_whole_hook_runs_in_one_task(helpers: Any) -> None:
    tasks = set()

    async def reply(turn: Any) -> AsyncIterator[str]:
        try:
            async with asyncio.timeout(5):
                for _ in range(3):
                    tasks.add(asyncio.current_task())
                    yield "Piece."
        finally:
            tasks.add(asyncio.current_task())

    stream = guarded(Hook(reply), helpers.make_turn(), max_chars=100)
    await asyncio.create_task(stream.__anext__())
    await asyncio.create_task(stream.__anext__())
    await stream.aclose()
    assert len(tasks) == 1


async def test_a_hook_is_never_ahead_of_its_reader(helpers: Any) -> None:
    made = 0

    async def reply(turn: Any) -> AsyncIterator[str]:
        nonlocal made
        while True:
            made += 1
            yield "x"

    async with guarded(Hook(reply), helpers.make_turn(), max_chars=100) as stream:
        await anext(stream)
        await anext(stream)
        await asyncio.sleep(0.01)
        assert made == 2


@pytest.mark.parametrize("piece", ["", Listen()])
async def test_endless_items_without_text_are_bounded_too(piece: Any, helpers: Any) -> None:
    async def reply(turn: Any) -> AsyncIterator[Any]:
        while True:
            yield piece

    with pytest.raises(HookError, match="max_reply_chars"):
        await collect(reply, helpers, max_chars=50)


async def test_a_lone_surrogate_is_replaced_and_a_pair_is_joined(helpers: Any) -> None:
    said = await collect(lambda turn: ["a\ud83d", "\ud83d\ude00"], helpers)
    assert said == ["a�", "😀"]
    assert "".join(said).encode()


async def test_sent_data_is_a_copy(helpers: Any) -> None:
    data = {"items": [1]}

    async def reply(turn: Any) -> AsyncIterator[Any]:
        yield Send(data)

    (sent,) = await collect(reply, helpers)
    data["items"].append(2)
    assert sent == Send({"items": [1]})


async def test_a_hook_error_does_not_quote_the_caller(helpers: Any) -> None:
    async def reply(turn: Any) -> AsyncIterator[Any]:
        raise ValueError(f"cannot parse {turn.text}")
        yield

    with pytest.raises(HookError) as caught:
        async for _ in guarded(Hook(reply), helpers.make_turn("my card is 4111"), max_chars=10):
            pass
    assert "4111" not in str(caught.value)


async def test_deep_recursion_in_a_hook_is_an_error_like_any_other(helpers: Any) -> None:
    def forever(turn: Any) -> Any:
        return forever(turn)

    limit = sys.getrecursionlimit()
    with pytest.raises(HookError, match="RecursionError"):
        await collect(forever, helpers)
    assert sys.getrecursionlimit() == limit


async def test_a_reply_dropped_without_closing_still_ends_its_hook(helpers: Any) -> None:
    released = asyncio.Event()

    async def reply(turn: Any) -> AsyncIterator[str]:
        try:
            while True:
                yield "More."
        finally:
            released.set()

    async def careless_reader() -> None:
        async for _ in guarded(Hook(reply), helpers.make_turn(), max_chars=1000):
            await asyncio.Event().wait()

    reader = asyncio.create_task(careless_reader())
    await asyncio.sleep(0.01)
    assert not released.is_set()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    del reader
    await asyncio.wait_for(released.wait(), 5)


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a loop of its own, so that an exception that ends it fails one test and not the whole run."""
    try:
        asyncio.run(main)
    except (KeyboardInterrupt, SystemExit) as exc:
        pytest.fail(f"the hook ended the event loop with {type(exc).__name__}")


async def says_hello(turn: Any) -> AsyncIterator[str]:
    yield "Hello."


class Class:
    def __init__(self, crash: type[BaseException]) -> None:
        self.crash = crash

    async def reply(self, turn: Any) -> AsyncIterator[str]:
        yield "half. "
        raise self.crash


def exits_in_a_generator(crash: type[BaseException]) -> Any:
    async def reply(turn: Any) -> AsyncIterator[str]:
        yield "half. "
        raise crash

    return FunctionNlu(reply)


def exits_in_a_coroutine(crash: type[BaseException]) -> Any:
    async def reply(turn: Any) -> str:
        await asyncio.sleep(0)
        raise crash

    return FunctionNlu(reply)


def exits_in_a_thread(crash: type[BaseException]) -> Any:
    def reply(turn: Any) -> str:
        raise crash

    return FunctionNlu(reply)


def exits_in_a_blocking_generator(crash: type[BaseException]) -> Any:
    def reply(turn: Any) -> Iterator[str]:
        yield "half. "
        raise crash

    return FunctionNlu(reply)


def exits_before_it_is_a_generator(crash: type[BaseException]) -> Any:
    def reply(turn: Any) -> Any:
        raise crash

    return Hook(reply)


@pytest.mark.parametrize("crash", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize(
    "make",
    [
        exits_in_a_generator,
        exits_in_a_coroutine,
        exits_in_a_thread,
        exits_in_a_blocking_generator,
        exits_before_it_is_a_generator,
        Class,
    ],
)
def test_a_hook_that_exits_ends_its_reply_and_not_the_server(
    make: Any, crash: type[BaseException], helpers: Any
) -> None:
    async def main() -> None:
        with pytest.raises(HookError, match=crash.__name__) as caught:
            async for _ in guarded(make(crash), helpers.make_turn(), max_chars=100):
                pass
        assert isinstance(caught.value.__cause__, crash)
        assert await collect(says_hello, helpers) == ["Hello."]

    run_loop(main())


def exits_in_finally(crash: type[BaseException]) -> Any:
    async def reply(turn: Any) -> AsyncIterator[str]:
        try:
            yield "One."
            await asyncio.Event().wait()
        finally:
            raise crash

    return FunctionNlu(reply)


def exits_in_a_blocking_finally(crash: type[BaseException]) -> Any:
    def reply(turn: Any) -> Iterator[str]:
        try:
            while True:
                yield "One."
        finally:
            raise crash

    return FunctionNlu(reply)


def exits_in_a_generator_that_it_drops(crash: type[BaseException]) -> Any:
    async def inner() -> AsyncIterator[str]:
        try:
            yield "One."
        finally:
            raise crash

    async def reply(turn: Any) -> AsyncIterator[str]:
        yield await anext(inner())
        await asyncio.Event().wait()

    return FunctionNlu(reply)


@pytest.mark.parametrize("waiting", [False, True], ids=["at a yield", "while it waits"])
@pytest.mark.parametrize("crash", [KeyboardInterrupt, SystemExit, ValueError])
@pytest.mark.parametrize("make", [exits_in_finally, exits_in_a_blocking_finally, exits_in_a_generator_that_it_drops])
def test_a_hook_that_exits_in_its_clean_up_is_one_warning(
    make: Any, crash: type[BaseException], waiting: bool, helpers: Any, caplog: Any
) -> None:
    async def main() -> None:
        stream = guarded(make(crash), helpers.make_turn(), max_chars=100)
        assert await anext(stream) == "One."
        if waiting:
            step = asyncio.ensure_future(anext(stream))
            for _ in range(5):  # the demand reaches the hook, and the hook its wait
                await asyncio.sleep(0)
            step.cancel()
        await stream.aclose()
        gc.collect()
        await asyncio.sleep(0)
        if guard_module._leaving:
            await asyncio.wait(guard_module._leaving, timeout=5)
        assert await collect(says_hello, helpers) == ["Hello."]

    with caplog.at_level(logging.WARNING):
        run_loop(main())
        gc.collect()
    assert [record.getMessage() for record in caplog.records] == [
        f"hook of call call-1 failed in its clean-up: {crash.__name__}"
    ]


async def yields_when_closed(turn: Any) -> AsyncIterator[str]:
    try:
        yield "One."
    finally:
        yield "I will not go."


async def drops_one_that_yields_when_closed(turn: Any) -> AsyncIterator[str]:
    yield await anext(yields_when_closed(turn))


@pytest.mark.parametrize("reply", [yields_when_closed, drops_one_that_yields_when_closed])
def test_a_generator_that_ignores_its_closing_is_one_warning(reply: Any, helpers: Any, caplog: Any) -> None:
    async def main() -> None:
        stream = guarded(FunctionNlu(reply), helpers.make_turn(), max_chars=100)
        assert await anext(stream) == "One."
        await stream.aclose()
        gc.collect()
        await asyncio.sleep(0)
        if guard_module._leaving:
            await asyncio.wait(guard_module._leaving, timeout=5)

    with caplog.at_level(logging.WARNING):
        run_loop(main())
        gc.collect()
    assert [record.getMessage() for record in caplog.records] == [
        "hook of call call-1 failed in its clean-up: RuntimeError"
    ]


async def test_a_hook_that_answers_its_cancellation_with_text_is_closed_all_the_same(helpers: Any, caplog: Any) -> None:
    ended = False
    entered = asyncio.Event()

    async def reply(turn: Any) -> AsyncIterator[str]:
        nonlocal ended
        try:
            yield "One."
            try:
                entered.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                yield "Wait!"
        finally:
            ended = True

    stream = guarded(Hook(reply), helpers.make_turn(), max_chars=100)
    assert await anext(stream) == "One."
    waiting = asyncio.ensure_future(anext(stream))
    await entered.wait()
    waiting.cancel()
    with caplog.at_level(logging.WARNING):
        await stream.aclose()
    assert ended
    assert not caplog.records


async def test_a_hook_that_holds_the_loop_is_one_warning_without_the_callers_words(helpers: Any, caplog: Any) -> None:
    async def reply(turn: Any) -> AsyncIterator[str]:
        for _ in range(2):
            time.sleep(0.12)  # noqa: ASYNC251  (what must not be done, done on purpose)
            yield turn.text

    with caplog.at_level(logging.WARNING):
        async with guarded(Hook(reply), helpers.make_turn("my card is 4111"), max_chars=100) as stream:
            assert [item async for item in stream] == ["my card is 4111"] * 2
    (record,) = caplog.records
    assert "call call-1: the hook held the event loop for 0." in record.getMessage()
    assert "use a plain def, or await" in record.getMessage()
    assert "4111" not in record.getMessage()


async def test_a_hook_that_blocks_in_a_thread_or_waits_holds_nothing(
    helpers: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_module, "HELD_S", 0.5)  # this machine may be busy; the waits are longer still

    def blocking(turn: Any) -> str:
        time.sleep(0.6)
        return "One."

    async def awaiting(turn: Any) -> AsyncIterator[str]:
        await asyncio.sleep(0.6)
        yield "One."

    async def one(function: Any) -> list[Any]:
        async with guarded(FunctionNlu(function), helpers.make_turn(), max_chars=100) as stream:
            return [item async for item in stream]

    with caplog.at_level(logging.WARNING, "agent.nlu.guard"):
        for said in await asyncio.gather(one(blocking), one(awaiting)):
            assert said == ["One."]
    assert not caplog.records
