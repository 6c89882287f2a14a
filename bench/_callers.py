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
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable
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

__all__ = ["Caller", "Question", "RtcCaller", "Server", "ServerUse", "StreamCaller", "Wait", "prepare", "serving"]

START_S = 60.0
STOP_S = 20.0
CONNECT_S = 20.0
QUESTION_HZ = 16_000
PACKET_TICKS = OPUS_CLOCK_HZ * FRAME_MS // 1000
PAYLOAD_TYPE = 111
RING_OUT_MS = 300
"""Silence encoded behind a question, so that the decoder's memory of it fades before the stored silence follows."""


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
                env={
                    **os.environ,
                    "PYTHONPATH": str(root),
                    "REJOINDER_SERVER__DRAIN_S": "0",
                    # Every run begins with an empty voice cache.
                    "REJOINDER_CACHE__FOLDER": str(Path(folder) / "voice"),
                    **env,
                },
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
class Question:
    """Something to say, encoded beforehand: encoding during a call would make the caller's own clock late."""

    packets: list[bytes]
    """Opus, 20 ms each."""
    frames: list[bytes]
    """The same as little-endian int16 at 24 kHz."""
    speech_frames: int
    """How many of them reach to the end of the last speech."""


def prepare(pcm: Pcm) -> Question:
    """A question of int16 [n] at 16 kHz."""
    size = SPEAKING_HZ * FRAME_MS // 1000
    wide = resample(pcm, QUESTION_HZ, SPEAKING_HZ)
    end = speech_end(wide, SPEAKING_HZ)
    wide = np.concatenate([wide, np.zeros(SPEAKING_HZ * RING_OUT_MS // 1000 - len(wide) % size, np.int16)])
    pieces = [wide[at : at + size] for at in range(0, len(wide) - size + 1, size)]
    encoder = Encoder(SPEAKING_HZ)
    try:
        packets = [encoder.encode(piece) for piece in pieces]
    finally:
        encoder.close()
    return Question(packets, [piece.astype("<i2").tobytes() for piece in pieces], -(-end // size))


@dataclass(frozen=True, slots=True)
class Wait:
    """One answered question, all in seconds on the caller's monotonic clock."""

    said_s: float
    """The last speech was sent."""
    heard_s: float
    """The first audible packet arrived."""
    decided_s: float | None
    """The server's word that the turn is over arrived, the last one before that packet; None without one."""

    @property
    def response_ms(self) -> float:
        """What the caller waited."""
        return (self.heard_s - self.said_s) * 1000

    @property
    def after_decision_ms(self) -> float | None:
        """From the decision to the packet; None when the turn was taken for over before the last speech was sent."""
        if self.decided_s is None or self.decided_s < self.said_s:
            return None
        return (self.heard_s - self.decided_s) * 1000


@dataclass(slots=True)
class _Asked:
    """A question on its way."""

    speech_frames: int
    said_s: float | None = None
    """When the frame with its last speech was sent, on the monotonic clock."""


@dataclass
class Caller(ABC):
    """What both kinds of caller share: the microphone, and what was noticed."""

    timings: list[dict[str, float | None]] = field(default_factory=list)
    """The server's own, a turn each."""
    heard: list[str] = field(default_factory=list)
    """What the server understood, for the bench to check that it did; not printed."""
    decided_s: list[float] = field(default_factory=list)
    """When the server told that a turn of the caller's was over, on the monotonic clock, a turn each."""
    replies: int = 0
    """The agent's finished contributions."""
    _asked: list[_Asked] = field(default_factory=list)
    _to_say: deque[bytes] = field(default_factory=deque)
    _said: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, question: Question, deadline_s: float) -> None:
        """Say it, and wait until the answer is over, or `deadline_s` after the question."""
        asked = _Asked(question.speech_frames)
        frames = self._frames_of(question)
        self._said = 0
        self._asked.append(asked)
        self._to_say.extend(frames)
        if not await self._until(lambda: asked.said_s is not None, len(frames) * FRAME_MS / 1000 + 5.0):
            return
        before = self.replies
        await self._until(lambda: self.replies > before, deadline_s)

    async def greeted(self, deadline_s: float) -> None:
        """Wait for the end of the greeting."""
        await self._until(lambda: self.replies > 0, deadline_s)

    def response_ms(self) -> list[float | None]:
        """For each question, from its last speech sent to the first audible packet; None without. After the call."""
        return [None if wait is None else wait.response_ms for wait in self.waits()]

    def waits(self) -> list[Wait | None]:
        """For each question, what the caller waited for; None without an answer. After the call."""
        arrivals, pcms = self._sound()
        said = [asked.said_s for asked in self._asked]
        out: list[Wait | None] = []
        for index, at in enumerate(said):
            until = next((later for later in said[index + 1 :] if later is not None), float("inf"))
            mine = [] if at is None else [i for i, arrived in enumerate(arrivals) if at < arrived < until]
            first = first_audible([pcms[i] for i in mine], SPEAKING_HZ)
            if first is None or at is None:
                out.append(None)
                continue
            heard = arrivals[mine[first]]
            decided = next((moment for moment in reversed(self.decided_s) if moment <= heard), None)
            out.append(Wait(at, heard, decided))
        return out

    @abstractmethod
    def spurts(self) -> list[list[Frame]]:
        """The agent's talk spurts; after the call."""

    @abstractmethod
    def _frames_of(self, question: Question) -> list[bytes]: ...

    @abstractmethod
    def _sound(self) -> tuple[list[float], list[Pcm]]: ...

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
            self.decided_s.append(time.monotonic())
        elif kind == "transcript" and message["role"] == "user" and message["final"]:
            self.heard.append(message["text"])
            self.decided_s.append(time.monotonic())
        self._news.set()

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
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
        self._silence = prepare(np.zeros(QUESTION_HZ // 2, np.int16)).packets[-1]
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
        self._channel = channel = RTCDataChannel(transport._sctp, RTCDataChannelParameters(label=LABEL))
        channel.on("open", self._news.set)
        channel.on("message", lambda text: self._told(json.loads(text)))
        self._ticker.add(self.tick)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ticker.remove(self.tick)
        await self._transport.close()

    async def type(self, text: str, deadline_s: float) -> None:
        """Type a message, and wait until the answer is over, or `deadline_s`. Counts as a question."""
        if not await self._until(lambda: self._channel.readyState == "open", deadline_s):
            raise RejoinderError("the event channel did not open")
        asked = _Asked(0, time.monotonic())
        self._asked.append(asked)
        before = self.replies
        self._channel.send(json.dumps({"type": "conversation.item.create", "item": _typed(text)}))
        await self._until(lambda: self.replies > before, deadline_s)

    def tick(self, _tick: int) -> None:
        """The microphone's 20 ms."""
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

    def _frames_of(self, question: Question) -> list[bytes]:
        return question.packets

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

    def _frames_of(self, question: Question) -> list[bytes]:
        return question.frames

    def _sound(self) -> tuple[list[float], list[Pcm]]:
        return self._arrived, self._pcms


def _typed(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


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
