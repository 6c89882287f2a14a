"""A media server in a process of its own and light callers in this one, over the machine's own network.

The callers are `PeerTransport`s that send packets encoded once and note when each packet of the agent arrives: they
cost little, so what is measured is the server. `python -m bench._media ours|cached|stock` is that server: JSON lines on
stdin and stdout.
"""

from __future__ import annotations

import asyncio
import fractions
import json
import os
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCSessionDescription,
)
from av import AudioFrame

from agent.config import MediaSettings
from agent.errors import ProtocolError
from agent.media.aiortc_seam import PeerTransport
from agent.media.codec import OPUS
from agent.media.codecs import make_encoder
from agent.media.encoded import EncodedSpeech, encode_speech
from agent.media.frames import HEARING_HZ, SPEAKING_HZ, Pcm
from agent.media.opus import OPUS_CLOCK_HZ, Encoder
from agent.media.priority import favour_media_thread
from agent.media.resample import resample
from agent.media.rtcp import ReceptionStats, build_report
from agent.media.rtp import build_rtp, is_rtcp, parse_rtp, ts_delta
from agent.media.sdp import parse_offer
from agent.media.ticker import Ticker
from agent.media.webrtc import WebRtcPort
from bench._speech import clips

__all__ = ["Arrivals", "Measured", "measure", "percentile"]

SETTLE_S = 4.5
"""After the last call is up, before measuring: encoders and buffers have found their way by then, and the callers'
reports have told that the path is clean, as those of browsers do (agent/media/fec.py)."""
SHORT_SETTLE_S = 2.0
"""Where no FEC is at stake."""
REPORT_TICKS = 25
PACKET_TICKS = 960
SSRC = 7
SO_TIMESTAMPNS = 35
"""Linux; Python has no name for it. The control message has the same number."""


def speech(rate_hz: int, seconds: float = 20.0) -> Pcm:
    """Recorded speech without long pauses, int16 at `rate_hz`, peak at half scale."""
    parts: list[Pcm] = []
    have = 0
    for clip in clips():
        if clip.language == "en":
            pcm = clip.pcm()
            parts.append(pcm)
            have += len(pcm)
        if have > seconds * 16_000:
            break
    whole = np.concatenate(parts)
    whole = (whole.astype(np.float32) * (16_000 / max(1, int(np.abs(whole.astype(int)).max())))).astype(np.int16)
    return resample(whole, 16_000, rate_hz)


def percentile(values: list[float], part: float) -> float:
    """The `part` (0 to 1) quantile; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


# --- the server


class _Talker:
    """A call that hears and speaks all the time."""

    def __init__(self, port: WebRtcPort, pcm: Pcm, at: int, cached: list[EncodedSpeech]) -> None:
        self._port, self._pcm, self._at = port, pcm, at
        self._cached = cached
        self.frames = 0
        port.attach(self)
        self._fill()

    def on_audio(self, pcm: Pcm) -> None:
        self.frames += len(pcm) == 320
        if self._port.playout.queued_samples < SPEAKING_HZ:
            self._fill()

    def on_dtmf(self, digit: str) -> None: ...

    def on_stalled(self, silence_s: float) -> None: ...

    def on_resumed(self, silence_s: float) -> None: ...

    def on_closed(self, reason: str) -> None: ...

    def _fill(self) -> None:
        if self._cached:
            self._port.playout.write_encoded(self._cached[self._at % len(self._cached)])
            self._at += 1
            return
        self._port.playout.write(self._pcm[self._at : self._at + SPEAKING_HZ])
        self._at = (self._at + SPEAKING_HZ) % (len(self._pcm) - SPEAKING_HZ)


class _StockTrack(MediaStreamTrack):
    """What an agent on stock aiortc plays: frames paced against the clock."""

    kind = "audio"

    def __init__(self, pcm: Pcm, at: int) -> None:
        super().__init__()
        self._pcm, self._at, self._sent = pcm, at, 0
        self._start = time.monotonic()

    async def recv(self) -> AudioFrame:
        await asyncio.sleep(max(0.0, self._start + self._sent * 0.02 - time.monotonic()))
        at = (self._at + self._sent * 480) % (len(self._pcm) - 480)
        frame = AudioFrame.from_ndarray(self._pcm[at : at + 480].reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = (
            SPEAKING_HZ,
            self._sent * 480,
            fractions.Fraction(1, SPEAKING_HZ),
        )
        self._sent += 1
        return frame


class _StockCall:
    def __init__(self, pcm: Pcm, at: int) -> None:
        self.pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.pc.addTrack(_StockTrack(pcm, at))
        self.frames = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.pc.on("track", lambda track: self.tasks.append(asyncio.create_task(self._listen(track))))

    async def _listen(self, track: MediaStreamTrack) -> None:
        while True:
            await track.recv()
            self.frames += 1

    async def answer(self, sdp: str) -> str:
        await self.pc.setRemoteDescription(RTCSessionDescription(sdp=sdp, type="offer"))
        await self.pc.setLocalDescription(await self.pc.createAnswer())
        return str(self.pc.localDescription.sdp)


def _phrases(pcm: Pcm, settings: MediaSettings) -> list[EncodedSpeech]:
    """What a voice cache holds: phrases of two seconds that end in a short pause, encoded once."""
    size, pause = 2 * SPEAKING_HZ, SPEAKING_HZ // 20
    encoder = make_encoder(OPUS, settings)
    starts = range(0, len(pcm) - size, size)
    return [encode_speech(np.pad(pcm[at : at + size - pause], (0, pause)), encoder) for at in starts]


async def serve(mode: str) -> None:
    """Answer commands until told to stop."""
    favour_media_thread()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    pcm = speech(SPEAKING_HZ)
    lags: list[float] = []
    settings = MediaSettings()
    cached = _phrases(pcm, settings) if mode == "cached" else []
    ports: list[WebRtcPort] = []
    talkers: list[_Talker] = []
    stock: list[_StockCall] = []
    async with Ticker(on_lag=lags.append) as ticker:
        while line := await reader.readline():
            command = json.loads(line)
            reply: dict[str, Any] = {}
            at = (len(ports) + len(stock)) * 7919 % (len(pcm) // 2)
            if command["op"] == "offer" and mode == "stock":
                call = _StockCall(pcm, at)
                stock.append(call)
                reply["sdp"] = await call.answer(command["sdp"])
            elif command["op"] == "offer":
                port = await WebRtcPort.answer(
                    command["sdp"], settings=settings, ticker=ticker, on_message=lambda _text: None
                )
                ports.append(port)
                talkers.append(_Talker(port, pcm, at, cached))
                reply["sdp"] = port.answer_sdp
            elif command["op"] == "mark":
                reply = {
                    "cpu_s": time.process_time(),
                    "at_s": time.monotonic(),
                    "frames": sum(t.frames for t in talkers) + sum(c.frames for c in stock),
                    "lags_ms": [lag * 1000 for lag in lags],
                    "skipped": ticker.skipped,
                }
                lags.clear()
            else:
                break
            print(json.dumps(reply), flush=True)
        await asyncio.gather(*(port.close() for port in ports), *(call.pc.close() for call in stock))
        for task in [task for call in stock for task in call.tasks]:
            task.cancel()


# --- the callers


@dataclass
class Arrivals:
    """When the packets of one call came: (RTP timestamp from the first, seconds)."""

    packets: list[tuple[int, float]] = field(default_factory=list)
    first: int | None = None

    def intervals_ms(self) -> list[float]:
        """Between packets that follow each other in media time."""
        pairs = zip(self.packets, self.packets[1:], strict=False)
        return [(b[1] - a[1]) * 1000 for a, b in pairs if b[0] - a[0] == PACKET_TICKS]

    def lateness_ms(self) -> list[float]:
        """Behind the schedule that the earliest packet sets: arrival - media time, above its smallest."""
        transit = [at - stamp / 48_000 for stamp, at in self.packets]
        floor = min(transit, default=0.0)
        return [(value - floor) * 1000 for value in transit]


class _Caller:
    """Sends speech, notes arrivals.

    Args:
        packets: by sample rate: a browser that is told to (a=fmtp maxplaybackrate) sends no more than the agent hears.
    """

    def __init__(self, packets: dict[int, list[bytes]], at: int) -> None:
        self.arrivals = Arrivals()
        self._by_rate, self._packets, self._at = packets, packets[SPEAKING_HZ], at
        self._transport = PeerTransport(MediaSettings(), self, data=False, controlling=True)
        self._sequence, self._sent = 1000 + at, 0
        self._stamped = False
        self._reception = ReceptionStats(OPUS_CLOCK_HZ)

    async def offer(self) -> str:
        await self._transport.gather()
        t = self._transport
        lines = ["v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=-", "t=0 0", "a=group:BUNDLE 0"]
        lines += ["m=audio 9 UDP/TLS/RTP/SAVPF 111", "c=IN IP4 0.0.0.0", f"a=ice-ufrag:{t.ufrag}"]
        lines += [f"a=ice-pwd:{t.password}", *(f"a=fingerprint:{a} {v}" for a, v in t.fingerprints)]
        lines += ["a=setup:actpass", "a=mid:0", "a=sendrecv", "a=rtcp-mux", "a=rtpmap:111 opus/48000/2"]
        lines += [*(f"a=candidate:{c}" for c in t.candidates), "a=end-of-candidates"]
        return "\r\n".join(lines) + "\r\n"

    async def accept(self, answer: str) -> None:
        if "maxplaybackrate=16000" in answer:
            self._packets = self._by_rate[HEARING_HZ]
        await self._transport.meet(parse_offer(answer))
        async with asyncio.timeout(20):
            await self._transport.connect()

    def tick(self, _tick: int) -> None:
        payload = self._packets[(self._at + self._sent) % len(self._packets)]
        packet = build_rtp(111, self._sent == 0, self._sequence & 0xFFFF, self._sent * PACKET_TICKS, SSRC, payload)
        self._transport.send(packet)
        self._sequence += 1
        self._sent += 1
        if (self._sent + self._at) % REPORT_TICKS == 0:
            self._transport.send(build_report(SSRC, None, self._reception.report(time.monotonic()), "caller"))

    def stamp(self) -> None:
        """From now on packets are noted by the kernel's time of their arrival, whatever this process does meanwhile."""
        self._stamped = True
        for protocol in self._transport._ice._protocols:
            transport: Any = protocol.transport
            sock: socket.socket = transport._sock
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            transport._loop._add_reader(sock.fileno(), self._read, sock, protocol)

    def _read(self, sock: socket.socket, protocol: Any) -> None:
        try:
            data, ancillary, _, address = sock.recvmsg(2048, 64)
        except (BlockingIOError, InterruptedError):
            return
        for level, kind, value in ancillary:
            # Headers of SRTP are in the clear.
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS) and 128 <= data[0] <= 191 and not is_rtcp(data):
                seconds, nanoseconds = struct.unpack("qq", value)
                self._note(int.from_bytes(data[4:8], "big"), seconds + nanoseconds / 1e9)
        protocol.datagram_received(data, address)

    def _note(self, timestamp: int, at_s: float) -> None:
        if self.arrivals.first is None:
            self.arrivals.first = timestamp
        self.arrivals.packets.append((ts_delta(timestamp, self.arrivals.first), at_s))

    def on_rtp(self, data: bytes) -> None:
        now = time.monotonic()
        try:
            packet = parse_rtp(data)
        except ProtocolError:
            return
        self._reception.received_packet(packet.ssrc, packet.sequence, packet.timestamp, now)
        if not self._stamped:
            self._note(packet.timestamp, now)

    def on_rtcp(self, data: bytes) -> None: ...

    def on_channel(self, channel: RTCDataChannel) -> None: ...

    def on_gone(self, reason: str) -> None: ...

    async def close(self) -> None:
        await self._transport.close()


def _packets(rate_hz: int) -> list[bytes]:
    encoder, pcm, size = Encoder(rate_hz), speech(rate_hz), rate_hz // 50
    return [encoder.encode(pcm[i : i + size]) for i in range(0, len(pcm) - size, size)]


class _Server:
    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench._media",
            self._mode,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 22,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        return self

    async def ask(self, **command: Any) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        await self._process.stdin.drain()
        async with asyncio.timeout(60):
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the bench's media server ended")
        reply: dict[str, Any] = json.loads(line)
        return reply

    async def __aexit__(self, *_exc: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(10):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@dataclass(frozen=True)
class Measured:
    """One run."""

    calls: int
    cpu_pct_per_call: float
    fps: float
    """Packets of the agent that each call got a second."""
    heard_fps: float
    """Frames of the caller that each call's agent got a second."""
    intervals_ms: list[float]
    lateness_ms: list[float]
    lags_ms: list[float]
    skipped: int


async def _measure(mode: str, calls: int, seconds: float, stamped: bool) -> Measured:
    favour_media_thread()
    packets = {rate_hz: _packets(rate_hz) for rate_hz in (HEARING_HZ, SPEAKING_HZ)}
    callers = [_Caller(packets, n * 97) for n in range(calls)]
    async with _Server(mode) as server, Ticker() as ticker:
        for caller in callers:
            reply = await server.ask(op="offer", sdp=await caller.offer())
            await caller.accept(reply["sdp"])
            if stamped:
                caller.stamp()
            ticker.add(caller.tick)
        await asyncio.sleep(SETTLE_S if mode == "ours" else SHORT_SETTLE_S)
        before = await server.ask(op="mark")
        for caller in callers:
            caller.arrivals = Arrivals()
        await asyncio.sleep(seconds)
        taken = [caller.arrivals for caller in callers]
        for caller in callers:
            caller.arrivals = Arrivals()
        after = await server.ask(op="mark")
        await asyncio.gather(*(caller.close() for caller in callers))
    span = after["at_s"] - before["at_s"]
    return Measured(
        calls=calls,
        cpu_pct_per_call=(after["cpu_s"] - before["cpu_s"]) / span * 100 / calls,
        fps=sum(len(arrivals.packets) for arrivals in taken) / seconds / calls,
        heard_fps=(after["frames"] - before["frames"]) / span / calls,
        intervals_ms=[value for arrivals in taken for value in arrivals.intervals_ms()],
        lateness_ms=[value for arrivals in taken for value in arrivals.lateness_ms()],
        lags_ms=after["lags_ms"],
        skipped=after["skipped"] - before["skipped"],
    )


def measure(mode: str, calls: int, seconds: float, *, stamped: bool = False) -> Measured:
    """Run `calls` full-duplex calls, all speaking both ways, for `seconds` after they have settled.

    Args:
        mode: "ours", "cached" (ours with all speech encoded once), or "stock": an agent built on aiortc as it comes.
        stamped: arrivals by the kernel's clock (SO_TIMESTAMPNS) and not when this process sees them.
    """
    return asyncio.run(_measure(mode, calls, seconds, stamped))


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
