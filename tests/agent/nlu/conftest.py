"""A hook of each kind that plays the same script, so that one set of tests can hold for all of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest
from aiohttp import web

from agent.nlu.actions import ACTION_NAMES
from agent.nlu.echo import EchoNlu
from agent.nlu.function import FunctionNlu
from agent.nlu.hook import Action, Nlu, Session, Turn
from agent.nlu.http import HttpNlu, turn_to_json
from agent.nlu.openai_chat import OpenAIChatNlu
from agent.nlu.rules import RulesNlu

HANG = "hang"
CRASH = "crash"
PAUSE = "pause"


@dataclass(frozen=True)
class Raw:
    """Something that is neither text nor action."""

    value: Any


@dataclass
class Script:
    """What the scripted hook does with a turn, and what it saw."""

    steps: list[Any] = field(default_factory=list)
    turns: list[dict[str, Any]] = field(default_factory=list)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    """The hook's `finally` ran, or its connection closed."""


def make_turn(text: str = "hello", kind: Any = "speech", session: Session | None = None, **fields: Any) -> Turn:
    return Turn(session or Session("call-1", "console"), kind, text, **fields)


def action_name(action: Action) -> str:
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(action).__name__).lstrip("_")
    assert snake in ACTION_NAMES
    return snake


def wire(action: Action) -> dict[str, Any]:
    return {"action": action_name(action), **asdict(action)}


def generator_hook(script: Script) -> Nlu:
    async def reply(turn: Turn) -> AsyncIterator[Any]:
        script.turns.append(turn_to_json(turn))
        try:
            for step in script.steps:
                if step == HANG:
                    await asyncio.Event().wait()
                elif step == CRASH:
                    raise RuntimeError("scripted crash")
                elif step == PAUSE:
                    await asyncio.sleep(0.02)
                else:
                    yield step.value if isinstance(step, Raw) else step
        finally:
            script.released.set()

    return FunctionNlu(reply)


def blocking_hook(script: Script) -> Nlu:
    loop = asyncio.get_running_loop()

    def reply(turn: Turn) -> Iterator[Any]:
        script.turns.append(turn_to_json(turn))
        try:
            for step in script.steps:
                if step == HANG:
                    time.sleep(0.5)  # a thread cannot be stopped; long enough to be seen as hanging
                elif step == CRASH:
                    raise RuntimeError("scripted crash")
                elif step == PAUSE:
                    time.sleep(0.02)
                else:
                    yield step.value if isinstance(step, Raw) else step
        finally:
            loop.call_soon_threadsafe(script.released.set)

    return FunctionNlu(reply)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Handler], Awaitable[str]]]:
    """Start a real local server for a handler; returns its address. A client that goes away cancels the handler."""
    runners: list[web.AppRunner] = []

    async def start(handler: Handler) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/hook"

    yield start
    for runner in runners:
        await runner.cleanup()


def remote_handler(script: Script, content_type: str, encode: Callable[[Any], bytes], end: bytes) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        script.turns.append(body)
        response = web.StreamResponse(headers={"Content-Type": content_type})
        await response.prepare(request)
        try:
            for step in script.steps:
                if step == HANG:
                    await asyncio.Event().wait()
                elif step == CRASH:
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                elif step == PAUSE:
                    await asyncio.sleep(0.02)
                else:
                    for byte in encode(step):  # one byte a write: every character is split
                        await response.write(bytes([byte]))
            await response.write(end)
            await response.write_eof()
        finally:
            script.released.set()
        return response

    return handle


def ndjson(step: Any) -> bytes:
    value = step.value if isinstance(step, Raw) else {"text": step} if isinstance(step, str) else wire(step)
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def sse(step: Any) -> bytes:
    value = step.value if isinstance(step, Raw) else step if isinstance(step, str) else wire(step)
    return b": keep-alive\r\ndata: " + json.dumps(value, ensure_ascii=False).encode() + b"\r\n\r\n"


def chat(step: Any) -> bytes:
    delta: dict[str, Any]
    if isinstance(step, Raw):
        delta = {"content": step.value}
    elif isinstance(step, str):
        delta = {"content": step}
    else:
        arguments = json.dumps(asdict(step))
        chat.calls = getattr(chat, "calls", 0) + 1  # type: ignore[attr-defined]
        call = {"index": chat.calls, "id": f"call_{chat.calls}"}  # type: ignore[attr-defined]
        deltas = [
            {**call, "function": {"name": action_name(step), "arguments": arguments[:3]}},
            {"index": call["index"], "function": {"arguments": arguments[3:]}},
        ]
        return b"".join(_chunk({"tool_calls": [part]}) for part in deltas)
    return b": ping\n\n" + _chunk(delta)


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    document = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"


CHAT_END = _chunk({}, "stop") + b'data: {"choices": [], "usage": {"total_tokens": 3}}\n\n' + b"data: [DONE]\n\n"

SCRIPTED = ("generator", "blocking", "http-ndjson", "http-sse", "openai_chat")


@pytest.fixture(params=SCRIPTED)
async def scripted(request: pytest.FixtureRequest, serve: Any) -> AsyncIterator[tuple[Nlu, Script]]:
    """A hook of each kind that can be told what to do, behind its real transport."""
    script = Script()
    nlu: Any
    if request.param == "generator":
        nlu = generator_hook(script)
    elif request.param == "blocking":
        nlu = blocking_hook(script)
    elif request.param == "http-ndjson":
        nlu = HttpNlu(await serve(remote_handler(script, "application/x-ndjson", ndjson, b"")), timeout_s=5)
    elif request.param == "http-sse":
        nlu = HttpNlu(await serve(remote_handler(script, "text/event-stream", sse, b"data: [DONE]\n\n")), timeout_s=5)
    else:
        url = await serve(remote_handler(script, "text/event-stream", chat, CHAT_END))
        nlu = OpenAIChatNlu(url, model="m", timeout_s=5)
    yield nlu, script
    await nlu.close()


@pytest.fixture(params=(*SCRIPTED, "echo", "rules"))
async def any_hook(request: pytest.FixtureRequest, serve: Any) -> AsyncIterator[Nlu]:
    """Every adapter, answering a greeting with at least one text."""
    script = Script(["Hello ", "there."])
    nlu: Any
    if request.param == "echo":
        nlu = EchoNlu()
    elif request.param == "rules":
        nlu = RulesNlu()
    elif request.param == "generator":
        nlu = generator_hook(script)
    elif request.param == "blocking":
        nlu = blocking_hook(script)
    elif request.param == "openai_chat":
        url = await serve(remote_handler(script, "text/event-stream", chat, CHAT_END))
        nlu = OpenAIChatNlu(url, model="m", timeout_s=5)
    else:
        kind, encode = (
            ("application/x-ndjson", ndjson) if request.param == "http-ndjson" else ("text/event-stream", sse)
        )
        nlu = HttpNlu(await serve(remote_handler(script, kind, encode, b"")), timeout_s=5)
    yield nlu
    await nlu.close()


@pytest.fixture
def helpers() -> Any:
    """The names above, for test modules, which cannot import a conftest."""

    class Helpers:
        pass

    for name in ("HANG", "CRASH", "PAUSE", "Raw", "Script", "make_turn", "wire", "generator_hook", "blocking_hook"):
        setattr(Helpers, name, staticmethod(globals()[name]) if callable(globals()[name]) else globals()[name])
    return Helpers
