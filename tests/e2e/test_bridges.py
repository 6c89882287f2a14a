"""Telephone systems' streams into a whole server: a recorded question goes in, the answer is transcribed, keys work.

The far ends are small programs that keep time as a telephone network does: they play what they got in real time, echo
marks when that point was heard, and drop what is queued when told to.
"""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import numpy as np
import pytest

from agent.media.frames import Pcm
from agent.media.resample import resample
from signaling.bridges.audiosocket_messages import AudioSocketParser, frame_bytes
from signaling.bridges.companding import compress, expand
from signaling.bridges.twilio_signature import sign
from tests.e2e.conftest import StartServer
from tests.e2e.support import Server, say

AUTH_TOKEN = "0123456789abcdef0123456789abcdef"
QUESTION = "How much is delivery?"
FRAME_S = 0.02
BEHIND_FRAMES = 25
"""The network's own buffer: half a second, as over a bad line."""


@dataclass
class Telephone:
    """A caller's handset: speaks and hears a frame each 20 ms."""

    rate_hz: int
    send: Callable[[bytes], Awaitable[None]]
    """One frame of int16 to the server."""
    to_say: deque[bytes] = field(default_factory=deque)
    queue: deque[bytes | str] = field(default_factory=deque)
    """Audio that came and was not played, and marks between it."""
    heard: list[Pcm] = field(default_factory=list)
    echo: Callable[[str], Awaitable[None]] | None = None
    cleared: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, text: str) -> None:
        pcm = say(text, self.rate_hz)
        size = self.rate_hz // 50
        pcm = np.concatenate([pcm, np.zeros(-len(pcm) % size, np.int16)])
        self.to_say.extend(pcm[at : at + size].tobytes() for at in range(0, len(pcm), size))

    def clear(self) -> None:
        """All that is queued is dropped; marks come back at once."""
        self.cleared += 1
        self.queue = deque(item for item in self.queue if isinstance(item, str))

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        start, frames, waited, quiet = loop.time(), 0, 0, bytes(self.rate_hz // 50 * 2)
        while True:
            await self.send(self.to_say.popleft() if self.to_say else quiet)
            waited = waited + 1 if self.queue else 0
            if waited > BEHIND_FRAMES:
                await self._play()
            frames += 1
            await asyncio.sleep(max(0.0, start + frames * FRAME_S - loop.time()))

    async def _play(self) -> None:
        while self.queue:
            item = self.queue.popleft()
            if isinstance(item, bytes):
                # Silence keeps a line open; it is nothing that was said.
                if any(item):
                    self.heard.append(np.frombuffer(item, "<i2"))
                    self.news.set()
                return
            assert self.echo is not None
            await self.echo(item)

    async def until_heard(self, frames: int, what: str) -> None:
        try:
            async with asyncio.timeout(30):
                while len(self.heard) < frames:
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            pytest.fail(f"not within 30 s: {what}")

    async def quiet(self, seconds: float = 1.0) -> None:
        """Until nothing was heard for a while."""
        while True:
            self.news.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self.news.wait()
            except TimeoutError:
                return

    def sound(self, since: int = 0) -> Pcm:
        return np.concatenate([np.zeros(0, np.int16), *self.heard[since:]])


@asynccontextmanager
async def running(*work: Awaitable[None]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> Server:
    return start_server(
        REJOINDER_BRIDGES__TWILIO_AUTH_TOKEN=AUTH_TOKEN,
        REJOINDER_BRIDGES__ASTERISK="true",
        REJOINDER_BRIDGES__AUDIOSOCKET_PORT="0",
    )


@asynccontextmanager
async def twilio(server: Server) -> AsyncIterator[tuple[Telephone, asyncio.Event, Callable[[str], Awaitable[None]]]]:
    """(handset, set when the server has closed, presses a key)."""
    address = server.url.replace("http", "ws") + "/v1/twilio"
    signature = sign(AUTH_TOKEN, address.replace("ws://", "wss://"))
    async with aiohttp.ClientSession() as session:
        ws = await session.ws_connect(address, headers={"X-Twilio-Signature": signature})
        await ws.send_json({"event": "connected", "protocol": "Call", "version": "1.0.0"})
        await ws.send_json({"event": "start", "start": {"streamSid": "MZ1", "customParameters": {"caller": "+43155"}}})
        closed = asyncio.Event()

        async def send(pcm: bytes) -> None:
            payload = base64.b64encode(compress("ulaw", pcm)).decode()
            if not closed.is_set():
                await ws.send_json({"event": "media", "streamSid": "MZ1", "media": {"payload": payload}})

        async def echo(name: str) -> None:
            await ws.send_json({"event": "mark", "streamSid": "MZ1", "mark": {"name": name}})

        async def press(digit: str) -> None:
            await ws.send_json({"event": "dtmf", "streamSid": "MZ1", "dtmf": {"digit": digit}})

        phone = Telephone(8000, send, echo=echo)

        async def receive() -> None:
            async for message in ws:
                said = json.loads(message.data)
                assert said["streamSid"] == "MZ1"
                match said["event"]:
                    case "media":
                        phone.queue.append(expand("ulaw", base64.b64decode(said["media"]["payload"])))
                    case "mark":
                        phone.queue.append(said["mark"]["name"])
                    case "clear":
                        phone.clear()
            closed.set()

        async with running(phone.run(), receive()):
            yield phone, closed, press


async def ask(phone: Telephone) -> Pcm:
    """The answer to the question, once the greeting was heard."""
    await phone.until_heard(1, "the greeting")
    await phone.quiet()
    before = len(phone.heard)
    phone.say(QUESTION)
    await phone.until_heard(before + 1, "the answer")
    await phone.quiet()
    return phone.sound(before)


async def over_twilio(server: Server) -> tuple[Pcm, Pcm]:
    """(the answer, what was heard after a key cut another answer short and one more asked for a person)."""
    async with twilio(server) as (phone, closed, press):
        answer = await ask(phone)
        before = len(phone.heard)
        await press("4")
        await phone.until_heard(before + 50, "the answer to a key")
        await press("0")
        async with asyncio.timeout(30):
            await closed.wait()
        assert phone.cleared >= 1, "the key did not stop the answer"
        return answer, phone.sound(before)


async def over_audiosocket(server: Server) -> Pcm:
    log = [json.loads(line) for line in server.log.read_text().splitlines()]
    (port,) = [line["port"] for line in log if "AudioSocket" in line["message"]]
    async with aiohttp.ClientSession() as session:
        bearer = {"Authorization": f"Bearer {server.token}"}
        async with session.post(f"{server.url}/v1/audiosocket?caller=%2B43155", headers=bearer) as announced:
            assert announced.status == 201
            call = uuid.UUID(await announced.text())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frame_bytes(0x01, call.bytes))

    async def send(pcm: bytes) -> None:
        writer.write(frame_bytes(0x12, pcm))

    phone = Telephone(16_000, send)
    hung_up = asyncio.Event()

    async def receive() -> None:
        parser = AudioSocketParser()
        while data := await reader.read(4096):
            for frame in parser.feed(data):
                if frame.kind == 0x12:
                    phone.queue.append(frame.payload)
                elif frame.kind == 0x00:
                    hung_up.set()

    async with running(phone.run(), receive()):
        answer = await ask(phone)
        writer.write(frame_bytes(0x03, b"0"))
        async with asyncio.timeout(30):
            await hung_up.wait()
    writer.close()
    return answer


async def over_asterisks_websocket(server: Server) -> Pcm:
    async with aiohttp.ClientSession() as session:
        password = {"Authorization": aiohttp.encode_basic_auth("asterisk", server.token)}
        address = server.url.replace("http", "ws") + "/v1/asterisk?caller=%2B43155"
        ws = await session.ws_connect(address, headers=password, protocols=["media"])
        await ws.send_str(
            "MEDIA_START channel:WebSocket/x channel_id:1.2 format:slin16 optimal_frame_size:640 ptime:20"
        )
        commands: list[str] = []
        closed = asyncio.Event()

        async def send(pcm: bytes) -> None:
            if not closed.is_set():
                await ws.send_bytes(pcm)

        phone = Telephone(16_000, send)

        async def receive() -> None:
            async for message in ws:
                if message.type is aiohttp.WSMsgType.BINARY:
                    assert len(message.data) == 640
                    phone.queue.append(message.data)
                    continue
                commands.append(message.data)
                if message.data == "FLUSH_MEDIA":
                    phone.clear()
                elif message.data == "REPORT_QUEUE_DRAINED":
                    await ws.send_str("QUEUE_DRAINED")
            closed.set()

        async with running(phone.run(), receive()):
            answer = await ask(phone)
            await ws.send_str("DTMF_END digit:0")
            async with asyncio.timeout(30):
                await closed.wait()
        assert commands[0] == "ANSWER"
        assert commands[-2:] == ["REPORT_QUEUE_DRAINED", "HANGUP"]
        return answer


async def test_a_question_is_answered_over_every_bridge_at_once(server: Server, transcribe) -> None:  # type: ignore[no-untyped-def]
    (narrow, last), wide, other = await asyncio.gather(
        over_twilio(server), over_audiosocket(server), over_asterisks_websocket(server)
    )
    gap = np.zeros(8000, np.int16)
    answers = [narrow, gap, resample(wide, 16_000, 8000), gap, resample(other, 16_000, 8000), gap, last]
    words = transcribe(np.concatenate(answers), 8000).lower()
    assert words.count("delivery costs") == 3, words
    assert "colleague" in words, f"the last words were cut off: {words}"
