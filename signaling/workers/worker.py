"""What runs in each media process: `python -m signaling.workers.worker NUMBER DESCRIPTOR`, started by the supervisor.

One agent, an HTTP door on a unix socket that only the supervisor can reach, and the line to it. When the supervisor is
gone, however it went, the calls are ended and so is this process.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from agent.app import Agent
from agent.config import Settings
from agent.errors import ConfigError, EnvironmentFault
from agent.media.pcm import PcmPort
from agent.media.priority import favour_media_thread
from agent.media.webrtc import WebRtcPort
from agent.observe import logs
from agent.observe.metrics import CONTENT_TYPE, process_metrics
from signaling.admission import CallRegistry
from signaling.calls import WebRtcCalls
from signaling.connection import DoorRunner
from signaling.drain import drain
from signaling.places import create_places
from signaling.ports import SERVER_STOPPED, AgentLike, AnswerOffer, CallLike, MakePcmPort
from signaling.problems import problems_middleware
from signaling.server import SHUTDOWN_TIMEOUT_S
from signaling.stream import StreamDoor
from signaling.workers.channel import MAX_MESSAGE_BYTES, Channel, ChannelBroken
from signaling.workers.handover import adopt
from signaling.workers.passport import PassportVerifier, call_id_of

__all__ = ["Worker", "main"]

SETTINGS_TIMEOUT_S = 10.0

REPORT_TICKS = 25
"""A report each half second, on the media clock: a worker whose clock stands still is a worker that does not answer."""

ORPHAN_GRACE_S = 10.0
"""From the supervisor's end to ours at the latest, even when the event loop hangs."""

EXIT_FAULT = 2
EXIT_ORPHAN = 3

logger = logging.getLogger("signaling.workers.worker")


def main() -> None:
    """Run one worker until the supervisor stops it or is gone."""
    number, descriptor = int(sys.argv[1]), int(sys.argv[2])
    # Ctrl-C does not reach this process group; whoever sends SIGINT by hand means the supervisor.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sock = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    sock.settimeout(SETTINGS_TIMEOUT_S)
    try:
        start = json.loads(sock.recv(MAX_MESSAGE_BYTES))
    except (OSError, ValueError):
        sys.exit(EXIT_ORPHAN)
    path = Path(start["socket"])
    threading.Thread(target=_outlive_nobody, args=(os.dup(descriptor), path), name="lifeline", daemon=True).start()
    logs.configure(json=start["log_json"], level=start["log_level"])
    _number_lines(number)
    sys.exit(asyncio.run(_run(sock, Settings.model_validate(start["settings"]), path)))


def _outlive_nobody(descriptor: int, path: Path) -> None:
    # A thread, since the event loop may be what hangs. Data is left for it: only the end of the line counts here.
    line = select.poll()
    line.register(descriptor, select.POLLRDHUP)
    line.poll()
    time.sleep(ORPHAN_GRACE_S)
    _tidy(path)
    os._exit(EXIT_ORPHAN)


def _number_lines(number: int) -> None:
    make = logging.getLogRecordFactory()

    def numbered(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        record.worker = number
        return record

    logging.setLogRecordFactory(numbered)


async def _run(sock: socket.socket, settings: Settings, path: Path) -> int:
    worker = Worker(sock)
    try:
        async with Agent.open(settings, metrics=process_metrics()) as agent:
            # As in one process alone: a full collection over what stays would stop the media clock.
            gc.collect()
            gc.freeze()
            if settings.media.priority == "auto":
                logger.info("media thread", extra={"priority": favour_media_thread()})
            await worker.serve(agent, path)
    except (ConfigError, EnvironmentFault) as exc:
        logger.error("a worker cannot start: %s", exc)
        worker.say({"fault": str(exc), "kind": "ConfigError" if isinstance(exc, ConfigError) else "EnvironmentFault"})
        return EXIT_FAULT
    finally:
        worker.close()
        if worker.orphaned:
            _tidy(path)
    return EXIT_ORPHAN if worker.orphaned else 0


def _tidy(path: Path) -> None:
    # The supervisor did not live to remove its folder; the last worker does.
    try:
        path.unlink(missing_ok=True)
        path.parent.rmdir()
    except OSError:
        return


class Worker:
    """The line to the supervisor, and what it asks for."""

    def __init__(self, sock: socket.socket) -> None:
        self.orphaned = False
        self._channel = Channel(sock, self._on_message, self._on_closed)
        self._channel.start()
        self._stop = asyncio.Event()
        self._agent: AgentLike | None = None
        self._server: web.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun: set[str] = set()
        """Adopted connections whose handler has run."""

    def close(self) -> None:
        """Let go of the line."""
        self._channel.close()

    def say(self, message: dict[str, Any]) -> None:
        """Tell the supervisor; it is nobody's loss when there is none any more."""
        try:
            self._channel.send(message)
        except ChannelBroken as exc:
            logger.debug("the supervisor cannot be told: %s", exc)

    async def serve(
        self,
        agent: AgentLike,
        path: Path,
        *,
        answer: AnswerOffer = WebRtcPort.answer,
        make_pcm_port: MakePcmPort = PcmPort,
    ) -> None:
        """Take calls until told to stop. SIGTERM to this process alone: its calls may finish, then it ends."""
        self._agent = agent
        app = self._app(agent, answer, make_pcm_port)
        runner = DoorRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
        await runner.setup()
        loop = asyncio.get_running_loop()
        draining: asyncio.Task[None] | None = None

        def end_after_calls() -> None:
            nonlocal draining
            draining = draining or asyncio.create_task(self._drain(agent), name="worker drain")

        try:
            await web.UnixSite(runner, str(path)).start()
            self._server = runner.server
            agent.ticker.add(self._report)
            loop.add_signal_handler(signal.SIGTERM, end_after_calls)
            self.say({"ready": True})
            await self._stop.wait()
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            agent.ticker.remove(self._report)
            if draining is not None:
                draining.cancel()
                await asyncio.gather(draining, return_exceptions=True)
            agent.draining = True
            for call in list(agent.calls.values()):
                call.hangup(SERVER_STOPPED)
            await runner.cleanup()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _drain(self, agent: AgentLike) -> None:
        agent.draining = True
        self.say({"report": agent.not_ready_reason})
        await drain(agent, patience_s=agent.settings.server.drain_s, hurry=self._stop)
        self._stop.set()

    def _app(self, agent: AgentLike, answer: AnswerOffer, make_pcm_port: MakePcmPort) -> web.Application:
        places = create_places(agent)
        registry = CallRegistry(agent, places)
        verifier = PassportVerifier()
        calls = WebRtcCalls(agent, verifier=verifier, registry=registry, answer=answer, call_id=call_id_of)
        stream = StreamDoor(agent, verifier=verifier, registry=registry, make_port=make_pcm_port, call_id=call_id_of)
        app = web.Application(
            client_max_size=agent.settings.server.max_body_bytes,
            middlewares=[self._account, problems_middleware(agent.metrics)],
        )
        app.router.add_post("/v1/calls", calls.create)
        app.router.add_patch("/v1/calls/{call_id}", calls.trickle)
        app.router.add_delete("/v1/calls/{call_id}", calls.hang_up)
        app.router.add_get("/v1/stream", stream.handle, allow_head=False)

        async def metrics(_request: web.Request) -> web.Response:
            return web.Response(body=agent.metrics.render(), headers={"Content-Type": CONTENT_TYPE})

        async def closing(_app: web.Application) -> AsyncIterator[None]:
            async with places or nullcontext():
                yield
                await calls.close()

        app.router.add_get("/metrics", metrics)
        app.cleanup_ctx.append(closing)
        return app

    @web.middleware
    async def _account(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Tell the supervisor when a call that it placed here is over, in whatever way the request ends."""
        if request.path == "/v1/stream":
            self._begun.add(call_id_of(request))
        try:
            response = await handler(request)
            # An adopted connection carries one request: what follows on it has passed no guard.
            response.force_close()
            return response
        finally:
            if request.path in ("/v1/calls", "/v1/stream"):
                self._follow(call_id_of(request))

    def _follow(self, call_id: str) -> None:
        assert self._agent is not None
        call = self._agent.calls.get(call_id)
        if call is None:
            self.say({"ended": call_id})
            return
        # A clock that was late without a call is a reason to refuse from the first one on.
        self.say({"report": self._agent.not_ready_reason})
        task = asyncio.create_task(self._tell_end(call), name=f"{call_id} follow")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell_end(self, call: CallLike) -> None:
        await call.wait_ended()
        self.say({"ended": call.id})

    def _report(self, tick: int) -> None:
        if tick % REPORT_TICKS == 0:
            assert self._agent is not None
            self.say({"report": self._agent.not_ready_reason})

    def _on_message(self, message: dict[str, Any], descriptor: int | None) -> None:
        match message:
            case {"stream": str(call_id), "head": str(head)} if descriptor is not None:
                task = asyncio.create_task(
                    self._adopt(call_id, descriptor, base64.b64decode(head)), name=f"{call_id} adopt"
                )
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case {"hangup": str(call_id), "reason": str(reason)}:
                call = None if self._agent is None else self._agent.calls.get(call_id)
                if call is None:
                    self.say({"ended": call_id})
                else:
                    call.hangup(reason)
            case {"stop": True}:
                self._stop.set()

    async def _adopt(self, call_id: str, descriptor: int, head: bytes) -> None:
        assert self._server is not None
        try:
            await adopt(self._server, descriptor, head, lambda: self._lost(call_id))
        except OSError:
            # The client was gone before it got here.
            logger.info("a connection could not be adopted", extra={"call_id": call_id})
            self.say({"ended": call_id})

    def _lost(self, call_id: str) -> None:
        # A client that was gone before its handler ran: nobody else will say so.
        if call_id not in self._begun:
            self.say({"ended": call_id})
        self._begun.discard(call_id)

    def _on_closed(self) -> None:
        logger.error("the supervisor is gone; this worker ends")
        self.orphaned = True
        self._stop.set()


if __name__ == "__main__":
    main()
