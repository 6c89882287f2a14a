"""`rejoinder console`: talk with the agent by typing. A whole call, only without a caller's audio."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
import threading
import uuid
from collections.abc import Callable
from typing import Any

from agent.app import Agent
from agent.config import Settings
from agent.errors import ProtocolError
from agent.events import AgentText, CallEnded, CallEvent, CallFault, ReplyFinished, TransferRequested
from agent.media.pcm import PcmPort
from agent.nlu.hook import Session
from agent.observe import logs

__all__ = ["configure", "run"]

RATE_HZ = 24_000
REPLY_DEADLINE_S = 60.0


def configure(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.description = "Type to the agent, read its answers. Lines from a pipe are answered one after the other."
    command.add_argument("--hook", metavar="TARGET", help="dialogue logic: package.module:object or ./file.py:object")
    command.add_argument("--json", action="store_true", help="print every event of the call as a JSON line")
    command.set_defaults(run=run, overrides=overrides)


def overrides(args: argparse.Namespace) -> dict[str, Any]:
    """Flags as settings."""
    return {} if args.hook is None else {"nlu": {"kind": "function", "target": args.hook}}


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Converse until end of input or the agent hangs up."""
    logs.configure(json=False, level="error")
    return asyncio.run(_converse(args, settings))


async def _converse(args: argparse.Namespace, settings: Settings) -> int:
    interactive = sys.stdin.isatty()
    replied = asyncio.Event()

    def observe(event: CallEvent) -> None:
        if args.json:
            print(json.dumps({"event": type(event).__name__, **dataclasses.asdict(event)}, default=str), flush=True)
        elif isinstance(event, AgentText) and event.text.strip():
            print(f"agent: {event.text.strip()}", flush=True)
        elif isinstance(event, TransferRequested):
            print(f"-- transferred to {event.to}", flush=True)
        elif isinstance(event, CallFault):
            where = f" at {event.at}" if event.at else ""
            print(f"-- {event.part}: {event.message}{where}", file=sys.stderr, flush=True)
        if isinstance(event, ReplyFinished | CallEnded):
            replied.set()

    async with Agent.open(settings) as agent:
        port = PcmPort(RATE_HZ, ticker=agent.ticker, send=lambda _: None)
        session = Session(f"call_{uuid.uuid4().hex[:16]}", "console", settings.asr.language)
        call = agent.start_call(port=port, session=session, observer=observe)
        lines = _input_lines(asyncio.get_running_loop().call_soon_threadsafe)
        ended = asyncio.create_task(call.wait_ended(), name="console end")
        try:
            if not interactive and settings.conversation.greet:
                await _wait(replied, ended)
            while not ended.done():
                # A line of None is the end of input.
                getting = asyncio.create_task(lines.get(), name="console line")
                await asyncio.wait({getting, ended}, return_when=asyncio.FIRST_COMPLETED)
                line = getting.result() if getting.done() else None
                getting.cancel()
                if line is None:
                    break
                if line.strip():
                    replied.clear()
                    try:
                        call.type_text(line)
                    except ProtocolError as exc:
                        print(f"-- {exc}", file=sys.stderr)
                        continue
                    if not interactive:
                        await _wait(replied, ended)
        finally:
            call.hangup("console closed")
            reason = await ended
    # A transfer was told with its target already.
    if not args.json and reason != "transferred":
        print(f"-- {reason}")
    return 0


async def _wait(replied: asyncio.Event, ended: asyncio.Task[str]) -> None:
    waiting = asyncio.create_task(replied.wait(), name="console reply")
    await asyncio.wait({waiting, ended}, timeout=REPLY_DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def _input_lines(call_soon: Callable[..., Any]) -> asyncio.Queue[str | None]:
    """Lines of standard input. A daemon thread reads: a blocked read of a terminal cannot be cancelled."""
    queue: asyncio.Queue[str | None] = asyncio.Queue()
    room = threading.Semaphore(16)

    def put(line: str | None) -> None:
        queue.put_nowait(line)
        room.release()

    def read() -> None:
        for line in sys.stdin:
            room.acquire()
            call_soon(put, line)
        call_soon(put, None)

    threading.Thread(target=read, name="console input", daemon=True).start()
    return queue
