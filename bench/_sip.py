"""A telephone door in a process of its own, and light callers in this one who all receive on one socket.

`python -m bench._sip` is the server: the real gateway and media path, with conversations that talk without an engine.
It speaks JSON lines on stdin and stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import socket
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from agent.config import Settings
from agent.events import Observer
from agent.media.codec import PCMU
from agent.media.codecs import make_encoder
from agent.media.frames import Pcm
from agent.media.port import MediaPort
from agent.media.priority import favour_media_thread
from agent.media.rtp import build_rtp, is_rtcp
from agent.media.ticker import Ticker
from agent.nlu.hook import Session
from agent.observe.metrics import Metrics
from bench._media import percentile, speech
from signaling.admission import CallRegistry
from signaling.sip.defence import Door, DoorSettings
from signaling.sip.gateway.gateway import SipGateway
from signaling.sip.negotiation import LocalMedia
from signaling.sip.protocol import CallEnded, CallEstablished, Dial, HangUp, MediaAgreed, News
from signaling.sip.stack import AgentSettings
from signaling.sip.transport.endpoint import Listen, SipEndpoint
from signaling.sip.uri import Uri
from signaling.sip.user_agent import UserAgent

__all__ = ["LoadResult", "measure"]

HOST = "127.0.0.1"
RATE_HZ = 8_000
FRAME = RATE_HZ // 50
CALLS_PER_S = 20
SETTLE_S = 2.0
SETUP_DEADLINE_S = 20.0
SO_TIMESTAMPNS = 35
"""As in `_media`."""
RECEIVE_BUFFER_BYTES = 4 << 20


def free_port() -> int:
    """Free for UDP at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


# --- the server


class _Talk:
    """A conversation that hears and speaks all the time."""

    def __init__(self, owner: _Talkers, port: MediaPort, session: Session, pcm: Pcm, at: int) -> None:
        self.id, self.session, self.voice, self.language = session.id, session, "none", session.language
        self._owner, self._port, self._pcm, self._at = owner, port, pcm, at
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._fill()
        port.attach(self)

    def _fill(self) -> None:
        self._port.playout.write(self._pcm[self._at : self._at + RATE_HZ])
        self._at = (self._at + RATE_HZ) % (len(self._pcm) - RATE_HZ)

    def on_audio(self, pcm: Pcm) -> None:
        self._owner.frames += len(pcm) == 320
        if self._port.playout.queued_samples < RATE_HZ // 2:
            self._fill()

    def on_closed(self, reason: str) -> None:
        self.hangup(reason)

    def hangup(self, reason: str) -> None:
        if not self._over.done():
            self._owner.calls.pop(self.id, None)
            self._over.set_result(reason)

    async def wait_ended(self) -> str:
        reason = await asyncio.shield(self._over)
        await self._port.close()
        return reason

    def on_dtmf(self, digit: str) -> None: ...
    def on_stalled(self, silence_s: float) -> None: ...
    def on_resumed(self, silence_s: float) -> None: ...
    def respond(self, data: Mapping[str, object] | None = None) -> None: ...
    def on_suspended(self, reason: str, unheard_s: float) -> None: ...
    def on_reconnected(self) -> None: ...


class _Talkers:
    """As much of an agent as the gateway needs."""

    def __init__(self, settings: Settings, ticker: Ticker) -> None:
        self.settings, self.ticker, self.metrics = settings, ticker, Metrics()
        self.draining, self.ready, self.not_ready_reason = False, True, ""
        self.calls: dict[str, Any] = {}
        self.frames = 0
        self._pcm = speech(RATE_HZ)

    def start_call(self, *, port: MediaPort, session: Session, observer: Observer, record: bool = False) -> Any:
        del observer, record
        at = len(self.calls) * 7919 % (len(self._pcm) // 2)
        call = self.calls[session.id] = _Talk(self, port, session, self._pcm, at)
        return call


async def serve() -> None:
    """Take calls until stdin ends; a line in is a line of numbers out."""
    favour_media_thread()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    port = free_port()
    sip = {"enabled": True, "host": HOST, "port": port, "transports": ("udp",), "trusted": (HOST,)}
    settings = Settings.model_validate({"sip": sip, "server": {"max_calls": 1000}})
    lags: list[float] = []
    async with Ticker(on_lag=lags.append) as ticker:
        agent: Any = _Talkers(settings, ticker)
        async with SipGateway(agent, CallRegistry(agent)):
            # As `rejoinder serve` does once all is loaded.
            gc.collect()
            gc.freeze()
            print(json.dumps({"port": port}), flush=True)
            while await reader.readline():
                told = {"cpu_s": time.process_time(), "at_s": time.monotonic(), "frames": agent.frames}
                print(json.dumps(told | {"calls": len(agent.calls), "skipped": ticker.skipped}), flush=True)


# --- the callers


@dataclass
class LoadResult:
    """One load."""

    calls: int
    setups_ms: list[float] = field(default_factory=list)
    """INVITE to 200, of each call."""
    lateness_ms: list[float] = field(default_factory=list)
    """Of each packet behind the schedule that its call's earliest one sets."""
    sent_fps: float = 0.0
    """Packets of the agent a call and second; 50 is all."""
    heard_fps: float = 0.0
    cpu_pct_per_call: float = 0.0
    skipped: int = 0

    @property
    def late_share(self) -> float:
        """Of frames over 20 ms late, or that never came."""
        expected = max(1.0, len(self.lateness_ms) * 50 / max(self.sent_fps, 1.0))
        late = sum(value > 20.0 for value in self.lateness_ms) + max(0.0, expected - len(self.lateness_ms))
        return late / expected

    def setup_ms(self, part: float) -> float:
        return percentile(self.setups_ms, part)


class _Callers:
    """All callers: one user agent, one RTP socket for them all."""

    def __init__(self, server_port: int) -> None:
        self._target = Uri.sip("100", HOST, server_port)
        sip = free_port()
        agent = UserAgent(AgentSettings({"udp": (HOST, sip)}), Door(DoorSettings(open_to_all=True)))
        self.endpoint = SipEndpoint(agent, [Listen("udp", HOST, sip)], self._told)
        self._rtp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._rtp.setblocking(False)
        self._rtp.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._rtp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self._rtp.bind((HOST, 0))
        self._media = LocalMedia(HOST, int(self._rtp.getsockname()[1]), codecs=(PCMU,))
        pcm, encoder = speech(RATE_HZ), make_encoder(PCMU, Settings().media)
        frames = (pcm[at : at + FRAME] for at in range(0, len(pcm) - FRAME, FRAME))
        self._payloads = [encoder.encode(np.ascontiguousarray(frame)) for frame in frames]
        self._dialled: dict[str, float] = {}
        self.setups_ms: list[float] = []
        self._to: dict[str, tuple[str, int]] = {}
        self.arrivals: dict[int, list[tuple[int, float]]] = defaultdict(list)
        self.measuring = False
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.endpoint.__aenter__()
        asyncio.get_running_loop().add_reader(self._rtp, self._read)
        return self

    async def __aexit__(self, *exc: object) -> None:
        asyncio.get_running_loop().remove_reader(self._rtp)
        for name in self._dialled:
            self.endpoint.handle(HangUp(name))
        await self.endpoint.__aexit__(None, None, None)
        self._rtp.close()

    async def call(self, calls: int) -> None:
        """Place calls at `CALLS_PER_S`, and wait until all are up."""
        for number in range(calls):
            name = f"c{number}"
            self._dialled[name] = time.monotonic()
            self.endpoint.handle(Dial(name, self._target, self._media))
            await asyncio.sleep(1 / CALLS_PER_S)
        async with asyncio.timeout(SETUP_DEADLINE_S):
            while len(self.setups_ms) < calls:
                self._changed.clear()
                await self._changed.wait()

    def tick(self, tick: int) -> None:
        """A packet of each caller."""
        for number, address in enumerate(self._to.values()):
            payload = self._payloads[(tick + number * 97) % len(self._payloads)]
            packet = build_rtp(0, False, tick & 0xFFFF, tick * FRAME & 0xFFFF_FFFF, 1000 + number, payload)
            with contextlib.suppress(BlockingIOError):
                self._rtp.sendto(packet, address)

    def lateness_ms(self) -> list[float]:
        """Of all packets, each call against its own earliest."""
        found: list[float] = []
        for packets in self.arrivals.values():
            first = packets[0][0]
            transit = [at - ((stamp - first) & 0xFFFF_FFFF) / RATE_HZ for stamp, at in packets]
            floor = min(transit)
            found += [(value - floor) * 1000 for value in transit]
        return found

    def _told(self, news: News) -> None:
        match news:
            case MediaAgreed(call=name, agreement=agreement) if agreement is not None:
                self._to[name] = (agreement.remote_address, agreement.remote_port)
            case CallEstablished(call=name):
                self.setups_ms.append((time.monotonic() - self._dialled[name]) * 1000)
                self._changed.set()
            case CallEnded(call=name):
                self._to.pop(name, None)

    def _read(self) -> None:
        for _ in range(64):
            try:
                data, ancillary, _, address = self._rtp.recvmsg(2048, 64)
            except (BlockingIOError, InterruptedError):
                return
            if not self.measuring or is_rtcp(data):
                continue
            for level, kind, value in ancillary:
                # By the kernel's time of arrival, whatever this process does meanwhile.
                if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                    seconds, nanoseconds = struct.unpack("qq", value)
                    stamp = int.from_bytes(data[4:8], "big")
                    self.arrivals[address[1]].append((stamp, seconds + nanoseconds / 1e9))


async def measure(calls: int, seconds: float) -> LoadResult:
    """A fresh server, `calls` callers who talk and are talked to, for `seconds`."""
    # Nor may a collection here delay what is measured there.
    gc.collect()
    gc.freeze()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench._sip"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    assert server.stdin is not None
    assert server.stdout is not None

    async def ask() -> dict[str, Any]:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b"\n")
        async with asyncio.timeout(SETUP_DEADLINE_S):
            answer: dict[str, Any] = json.loads(await server.stdout.readline())
        return answer

    try:
        async with asyncio.timeout(SETUP_DEADLINE_S):
            port = json.loads(await server.stdout.readline())["port"]
        async with Ticker() as ticker, _Callers(port) as callers:
            ticker.add(callers.tick)
            await callers.call(calls)
            await asyncio.sleep(SETTLE_S)
            before = await ask()
            callers.measuring = True
            await asyncio.sleep(seconds)
            callers.measuring = False
            after = await ask()
            ticker.remove(callers.tick)
            wall_s = after["at_s"] - before["at_s"]
            lateness = callers.lateness_ms()
            return LoadResult(
                calls,
                callers.setups_ms,
                lateness,
                sent_fps=len(lateness) / calls / seconds,
                heard_fps=(after["frames"] - before["frames"]) / calls / wall_s,
                cpu_pct_per_call=100 * (after["cpu_s"] - before["cpu_s"]) / wall_s / calls,
                skipped=after["skipped"] - before["skipped"],
            )
    finally:
        server.stdin.close()
        try:
            async with asyncio.timeout(15):
                await server.wait()
        except TimeoutError:
            server.kill()
            await server.wait()


if __name__ == "__main__":
    asyncio.run(serve())
