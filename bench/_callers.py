"""A real server in a process of its own, and callers on its doors who say what they are given to say, in real time.

The callers do next to nothing while they listen: they keep each packet with its time of arrival, and decode after the
call. Their microphone follows an absolute 20 ms schedule.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from aiortc import RTCDataChannel
from aiortc.rtcdatachannel import RTCDataChannelParameters

from agent.config import MediaSettings
from agent.errors import EnvironmentFault, ProtocolError, RejoinderError
from agent.media.aiortc_seam import PeerTransport
from agent.media.channel import LABEL
from agent.media.frames import FRAME_MS, SPEAKING_HZ, Pcm
from agent.media.opus import OPUS_CLOCK_HZ, Decoder, Encoder
from agent.media.resample import resample
from agent.media.rtp import build_rtp, parse_rtp, ts_delta
from agent.media.sdp import parse_offer
from agent.media.ticker import Ticker
from bench._turns import Frame, first_audible, speech_end, spurts_by_gap, spurts_by_marker

__all__ = ["Answer", "Caller", "RtcCaller", "Server", "ServerUse", "StreamCaller", "serving"]

START_S = 60.0
STOP_S = 20.0
CONNECT_S = 20.0
QUESTION_HZ = 16_000
PACKET_TICKS = OPUS_CLOCK_HZ * FRAME_MS // 1000
PAYLOAD_TYPE = 111
EARLY_S = 0.02
"""An answer cannot be looked for earlier than the packet after the one with the last speech."""


@dataclass(frozen=True, slots=True)
class ServerUse:
    """What the server's process had taken at one moment."""

    cpu_s: float
    rss_mb: float
    at_s: float


@dataclass(frozen=True, slots=True)
class Server:
    """A running `python -m agent serve`."""

    pid: int
    url: str
    token: str

    def use(self) -> ServerUse:
        """CPU and memory so far, of all its threads. Raises EnvironmentFault off Linux."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        except OSError as exc:
            raise EnvironmentFault(f"the server's use of CPU cannot be read from /proc: {exc.strerror}") from exc
        ticks = int(fields[11]) + int(fields[12])
        return ServerUse(
            cpu_s=ticks / os.sysconf("SC_CLK_TCK"),
            rss_mb=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
            at_s=time.monotonic(),
        )


@asynccontextmanager
async def serving(**env: str) -> AsyncIterator[Server]:
    """`python -m agent serve --port 0 --json` with these settings, until the block is left.

    Raises RejoinderError with the end of its log when it does not start.
    """
    root = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory(prefix="rejoinder-bench-") as folder:
        log = Path(folder) / "log"
        with log.open("w") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "agent", "serve", "--port", "0", "--json", "--log-json"),
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(root), "REJOINDER_SERVER__DRAIN_S": "0", **env},
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        try:
            assert process.stdout is not None
            line = b""
            try:
                async with asyncio.timeout(START_S):
                    line = await process.stdout.readline()
            except TimeoutError:
                pass
            if not line:
                raise RejoinderError(f"the server did not start: {log.read_text(encoding='utf-8')[-600:]}")
            told = json.loads(line)
            yield Server(process.pid, told["url"], told["token"])
        finally:
            if process.returncode is None:
                process.terminate()
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


@dataclass(frozen=True, slots=True)
class Answer:
    """One question: from its last speech sent to the first audible packet, in ms; None when no answer was heard."""

    response_ms: float | None


@dataclass(slots=True)
class _Asked:
    """A question on its way. Times are of the monotonic clock."""

    speech_frames: int
    """Frames of it up to and with the last speech."""
    said_s: float | None = None
    """When the frame with its last speech was sent."""


@dataclass
class Caller:
    """What both kinds of caller share: the microphone, and what was noticed. `tick` is called each 20 ms.

    Args:
        encoder_rate_hz: rate of the frames that `frames_of` makes.
    """

    timings: list[dict[str, float | None]] = field(default_factory=list)
    """The server's own, a turn each."""
    heard: list[str] = field(default_factory=list)
    """What the server understood, for the bench to check that it did; not printed."""
    replies: int = 0
    """The agent's finished contributions."""
    _asked: list[_Asked] = field(default_factory=list)
    _to_say: deque[bytes] = field(default_factory=deque)
    _said: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, pcm: Pcm, deadline_s: float) -> None:
        """Say int16 [n] at 16 kHz, and wait until the answer is over, `deadline_s` after the question at the latest."""
        question = _Asked(-(-speech_end(pcm, QUESTION_HZ) // (QUESTION_HZ * FRAME_MS // 1000)))
        self._to_say.extend(self._frames_of(pcm))
        self._asked.append(question)
        self._said = 0
        length_s = len(pcm) / QUESTION_HZ
        if not await self._until(lambda: question.said_s is not None, length_s + 5.0):
            return
        before = self.replies
        await self._until(lambda: self.replies > before, deadline_s)

    async def greeted(self, deadline_s: float) -> None:
        """Wait for the end of the greeting."""
        await self._until(lambda: self.replies > 0, deadline_s)

    def answers(self) -> list[Answer]:
        """How long each question's answer took; after the call."""
        arrivals, pcms = self._sound()
        out = []
        for index, asked in enumerate(self._asked):
            if asked.said_s is None:
                out.append(Answer(None))
                continue
            later = [q.said_s for q in self._asked[index + 1 :] if q.said_s is not None]
            until = later[0] if later else float("inf")
            mine = [i for i, at in enumerate(arrivals) if asked.said_s + EARLY_S <= at < until]
            first = first_audible([pcms[i] for i in mine], SPEAKING_HZ)
            out.append(Answer(None if first is None else (arrivals[mine[first]] - asked.said_s) * 1000))
        return out

    def spurts(self) -> list[list[Frame]]:
        """The agent's talk spurts; after the call."""
        raise NotImplementedError

    def _frames_of(self, pcm: Pcm) -> list[bytes]:
        raise NotImplementedError

    def _sound(self) -> tuple[list[float], list[Pcm]]:
        raise NotImplementedError

    def _next(self, silence: bytes) -> bytes:
        """The microphone's next frame; notes when the last speech of a question leaves."""
        if not self._to_say:
            return silence
        frame = self._to_say.popleft()
        self._said += 1
        asked = self._asked[-1]
        if asked.said_s is None and self._said >= asked.speech_frames:
            asked.said_s = time.monotonic()
            self._news.set()
        return frame

    def _told(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind in ("rejoinder.timings", "timings"):
            self.timings.append({k: v for k, v in message.items() if k.endswith("_ms")})
        elif kind == "response.done" or (kind == "transcript" and message["role"] == "agent" and message["final"]):
            self.replies += 1
        elif kind == "conversation.item.input_audio_transcription.completed":
            self.heard.append(message["transcript"])
        elif kind == "transcript" and message["role"] == "user" and message["final"]:
            self.heard.append(message["text"])
        self._news.set()

    async def _until(self, condition: Any, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True


class RtcCaller(Caller):
    """A caller over WebRTC: Opus, SRTP, and the event channel. An async context manager."""

    def __init__(self, server: Server, http: aiohttp.ClientSession, ticker: Ticker) -> None:
        super().__init__()
        self._server, self._http, self._ticker = server, http, ticker
        self._transport = PeerTransport(MediaSettings(), self, data=True, controlling=True)
        self._encoder = Encoder(SPEAKING_HZ)
        self._silence = self._encoder.encode(np.zeros(SPEAKING_HZ * FRAME_MS // 1000, np.int16))
        self._sent = 0
        self._first: int | None = None
        self._frames: list[Frame] = []
        self._payloads: list[bytes] = []

    async def __aenter__(self) -> RtcCaller:
        transport = self._transport
        await transport.gather()
        headers = {"Authorization": f"Bearer {self._server.token}"}
        async with self._http.post(
            f"{self._server.url}/v1/calls", json={"sdp": _offer(transport), "type": "offer"}, headers=headers
        ) as response:
            if response.status != 201:
                raise RejoinderError(f"the server refused a call: {(await response.text())[:300]}")
            answer = parse_offer((await response.json())["sdp"])
        await transport.meet(answer)
        async with asyncio.timeout(CONNECT_S):
            await transport.connect()
        assert transport._sctp is not None
        channel = RTCDataChannel(transport._sctp, RTCDataChannelParameters(label=LABEL))
        channel.on("message", lambda text: self._told(json.loads(text)))
        self._ticker.add(self.tick)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ticker.remove(self.tick)
        await self._transport.close()
        self._encoder.close()

    def tick(self, _tick: int) -> None:
        payload = self._next(self._silence)
        packet = build_rtp(PAYLOAD_TYPE, self._sent == 0, self._sent & 0xFFFF, self._sent * PACKET_TICKS, 7, payload)
        self._transport.send(packet)
        self._sent += 1

    def spurts(self) -> list[list[Frame]]:
        return spurts_by_marker(self._frames)

    def on_rtp(self, data: bytes) -> None:
        now = time.monotonic()
        try:
            packet = parse_rtp(data)
        except ProtocolError:
            return
        if packet.payload_type != PAYLOAD_TYPE:
            return
        if self._first is None:
            self._first = packet.timestamp
        due_s = ts_delta(packet.timestamp, self._first) / OPUS_CLOCK_HZ
        self._frames.append(Frame(due_s, now, len(packet.payload), packet.marker))
        self._payloads.append(packet.payload)

    def on_rtcp(self, data: bytes) -> None: ...

    def on_channel(self, channel: RTCDataChannel) -> None: ...

    def on_gone(self, reason: str) -> None: ...

    def _frames_of(self, pcm: Pcm) -> list[bytes]:
        wide = resample(pcm, QUESTION_HZ, SPEAKING_HZ)
        size = SPEAKING_HZ * FRAME_MS // 1000
        wide = np.concatenate([wide, np.zeros(-len(wide) % size, np.int16)])
        return [self._encoder.encode(wide[at : at + size]) for at in range(0, len(wide), size)]

    def _sound(self) -> tuple[list[float], list[Pcm]]:
        decoder = Decoder(SPEAKING_HZ)
        try:
            return [frame.arrived_s for frame in self._frames], [decoder.decode(payload) for payload in self._payloads]
        finally:
            decoder.close()


class StreamCaller(Caller):
    """A caller on the PCM WebSocket. An async context manager."""

    def __init__(self, server: Server, http: aiohttp.ClientSession) -> None:
        super().__init__()
        self._server, self._http = server, http
        self._arrived: list[float] = []
        self._pcms: list[Pcm] = []

    async def __aenter__(self) -> StreamCaller:
        url = f"{self._server.url}/v1/stream?rate={SPEAKING_HZ}&token={self._server.token}"
        self._ws = await self._http.ws_connect(url)
        self._tasks = [asyncio.create_task(self._talk()), asyncio.create_task(self._listen())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._ws.close()

    async def _talk(self) -> None:
        silence = bytes(2 * SPEAKING_HZ * FRAME_MS // 1000)
        loop = asyncio.get_running_loop()
        start, sent = loop.time(), 0
        while True:
            await self._ws.send_bytes(self._next(silence))
            sent += 1
            await asyncio.sleep(max(0.0, start + sent * FRAME_MS / 1000 - loop.time()))

    async def _listen(self) -> None:
        async for message in self._ws:
            if message.type is aiohttp.WSMsgType.BINARY:
                self._arrived.append(time.monotonic())
                self._pcms.append(np.frombuffer(message.data, "<i2").astype(np.int16, copy=False))
            elif message.type is aiohttp.WSMsgType.TEXT:
                self._told(json.loads(message.data))

    def spurts(self) -> list[list[Frame]]:
        return spurts_by_gap(self._arrived)

    def _frames_of(self, pcm: Pcm) -> list[bytes]:
        wide = resample(pcm, QUESTION_HZ, SPEAKING_HZ)
        size = SPEAKING_HZ * FRAME_MS // 1000
        wide = np.concatenate([wide, np.zeros(-len(wide) % size, np.int16)])
        return [wide[at : at + size].astype("<i2").tobytes() for at in range(0, len(wide), size)]

    def _sound(self) -> tuple[list[float], list[Pcm]]:
        return self._arrived, self._pcms


def _offer(transport: PeerTransport) -> str:
    shared = ["c=IN IP4 0.0.0.0", f"a=ice-ufrag:{transport.ufrag}", f"a=ice-pwd:{transport.password}"]
    shared += [f"a=fingerprint:{algorithm} {value}" for algorithm, value in transport.fingerprints]
    shared += ["a=setup:actpass"]
    lines = ["v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=-", "t=0 0", "a=group:BUNDLE 0 1"]
    lines += [f"m=audio 9 UDP/TLS/RTP/SAVPF {PAYLOAD_TYPE}", *shared, "a=mid:0", "a=sendrecv", "a=rtcp-mux"]
    lines += [f"a=rtpmap:{PAYLOAD_TYPE} opus/48000/2", *(f"a=candidate:{c}" for c in transport.candidates)]
    lines += ["a=end-of-candidates", "m=application 9 UDP/DTLS/SCTP webrtc-datachannel", *shared, "a=mid:1"]
    lines += ["a=sctp-port:5000", "a=max-message-size:65536"]
    return "\r\n".join(lines) + "\r\n"
