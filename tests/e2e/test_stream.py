"""A telephone-like caller on the PCM WebSocket, in real time, on the real engines."""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass, field

import aiohttp
import numpy as np
import pytest

from agent.media.frames import Pcm
from tests.e2e.support import Server, say, wait_for

pytestmark = pytest.mark.alone

FRAME_MS = 20


@dataclass
class Caller:
    """One WebSocket call: sends what it is given to say, silence otherwise; keeps all that comes back."""

    ws: aiohttp.ClientWebSocketResponse
    rate_hz: int
    to_say: list[Pcm] = field(default_factory=list)
    heard: list[tuple[float, Pcm]] = field(default_factory=list)
    messages: list[dict[str, object]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def talk(self) -> None:
        """Microphone: a 20 ms frame each 20 ms, for ever."""
        samples = self.rate_hz * FRAME_MS // 1000
        waiting = np.zeros(0, np.int16)
        start = asyncio.get_running_loop().time()
        sent = 0
        while True:
            if self.to_say:
                waiting = np.concatenate([waiting, self.to_say.pop(0)])
            frame = np.zeros(samples, np.int16)
            part = waiting[:samples]
            frame[: len(part)] = part
            waiting = waiting[samples:]
            await self.ws.send_bytes(frame.tobytes())
            sent += 1
            await asyncio.sleep(max(0.0, start + sent * FRAME_MS / 1000 - asyncio.get_running_loop().time()))

    async def listen(self) -> None:
        """Loudspeaker."""
        async for message in self.ws:
            if message.type is aiohttp.WSMsgType.BINARY:
                self.heard.append((time.monotonic(), np.frombuffer(message.data, np.int16)))
            elif message.type is aiohttp.WSMsgType.TEXT:
                self.messages.append(json.loads(message.data))
            self.news.set()

    async def until(self, condition, what: str, seconds: float = 20.0) -> None:  # type: ignore[no-untyped-def]
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            raise AssertionError(f"not within {seconds:g} s: {what}; messages {self.messages[-8:]}") from None

    async def quiet(self, seconds: float = 0.6) -> None:
        """Until the agent has said nothing for a while."""
        while True:
            try:
                async with asyncio.timeout(seconds):
                    seen = len(self.heard)
                    while len(self.heard) == seen:
                        self.news.clear()
                        await self.news.wait()
            except TimeoutError:
                return

    def transcripts(self, role: str) -> list[str]:
        return [str(m["text"]) for m in self.messages if m["type"] == "transcript" and m["role"] == role and m["final"]]

    def sound(self, since: int = 0) -> Pcm:
        return np.concatenate([pcm for _, pcm in self.heard[since:]] or [np.zeros(0, np.int16)])


class Call:
    """`async with Call(server, rate) as caller`."""

    def __init__(self, server: Server, rate_hz: int) -> None:
        self.server, self.rate_hz = server, rate_hz

    async def __aenter__(self) -> Caller:
        self.session = aiohttp.ClientSession()
        url = f"{self.server.url}/v1/stream?rate={self.rate_hz}&token={self.server.token}"
        caller = Caller(await self.session.ws_connect(url), self.rate_hz)
        self.tasks = [asyncio.create_task(caller.talk()), asyncio.create_task(caller.listen())]
        return caller

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.session.close()


async def test_questions_are_heard_and_answered_by_voice(server: Server, transcribe) -> None:  # type: ignore[no-untyped-def]
    async with Call(server, 16_000) as caller:
        await caller.until(lambda: caller.heard, "the greeting")
        await caller.quiet()
        answers = []
        for question in ("What are your opening hours?", "How much is delivery?"):
            before = len(caller.heard)
            turns = len(caller.transcripts("user"))
            caller.to_say.append(say(question))
            await caller.until(lambda n=turns: len(caller.transcripts("user")) > n, f"transcript of {question!r}")
            await caller.until(lambda n=before: len(caller.heard) > n, f"answer to {question!r}")
            await caller.quiet()
            answers.append(transcribe(caller.sound(before), 16_000).lower())
        heard = [text.lower() for text in caller.transcripts("user")]
        assert "opening hours" in heard[0]
        assert "delivery" in heard[1]
        assert re.search(r"(nine|9) in the morning", answers[0])
        assert re.search(r"(five pounds|5 pounds|£5)", answers[1])


async def test_an_order_is_looked_up_by_its_spoken_number(server: Server) -> None:
    async with Call(server, 8_000) as caller:
        await caller.until(lambda: caller.heard, "the greeting")
        await caller.quiet()
        caller.to_say.append(say("Where is my order? The number is four two seven one.", 8_000))
        # Answered after the first sentence already, perhaps; the second goes on with that turn.
        await caller.until(
            lambda: any("four two seven one is on its way" in text for text in caller.transcripts("agent")),
            "the answer to both sentences",
        )


async def test_speaking_over_the_agent_stops_it(server: Server) -> None:
    interruptions = server.metric("voice_interruptions_total")
    async with Call(server, 24_000) as caller:
        await caller.until(lambda: caller.heard, "the greeting")
        await caller.quiet()
        caller.to_say.append(say("What are your opening hours?", 24_000))
        await caller.until(lambda: caller.transcripts("user"), "the question's transcript")
        before = len(caller.heard)
        await caller.until(lambda: len(caller.heard) > before + 20, "the answer under way")
        caller.to_say.append(say("No, please stop. I would like to return something.", 24_000))
        await caller.until(lambda: any(m["type"] == "clear" for m in caller.messages), "the clear message", 3)
        await caller.until(lambda: len(caller.transcripts("user")) == 2, "the second turn")
        assert "return" in caller.transcripts("user")[1].lower()
    assert server.metric("voice_interruptions_total") == interruptions + 1


async def test_a_key_press_and_a_hang_up_by_message(server: Server) -> None:
    async with Call(server, 16_000) as caller:
        await caller.until(lambda: caller.heard, "the greeting")
        await caller.ws.send_str('{"type":"dtmf","digit":"4"}')
        for digit in "271#":
            await caller.ws.send_str(json.dumps({"type": "dtmf", "digit": digit}))
        answered = "four two seven one is on its way"
        await caller.until(lambda: answered in " ".join(caller.transcripts("agent")), "an answer about the number")
        await caller.ws.send_str('{"type":"hangup"}')
        await caller.until(lambda: any(m["type"] == "hangup" for m in caller.messages), "the hang-up")
    wait_for(lambda: server.metric("voice_calls_active") == 0, "the call to be gone")


async def test_five_callers_at_once_do_not_share_anything(server: Server) -> None:
    questions = {
        "What are your opening hours?": "opening hours",
        "How do I return something?": "return",
        "How much is delivery?": "delivery",
        "What can you do for me?": "what can you do",
        "Thank you very much.": "thank you",
    }

    async def converse(question: str, expected: str) -> None:
        async with Call(server, 16_000) as caller:
            await caller.until(lambda: caller.heard, "the greeting")
            await caller.quiet()
            caller.to_say.append(say(question))
            await caller.until(lambda: caller.transcripts("user"), f"transcript of {question!r}", 30)
            assert expected in caller.transcripts("user")[0].lower()
            await caller.until(lambda: len(caller.transcripts("agent")) > 1, f"answer to {question!r}", 30)

    await asyncio.gather(*(converse(*item) for item in questions.items()))


async def test_a_vanished_caller_leaves_nothing_behind(server: Server) -> None:
    async with Call(server, 16_000) as caller:
        await caller.until(lambda: caller.heard, "the greeting")
        assert caller.ws._response.connection is not None
        transport = caller.ws._response.connection.transport
        assert transport is not None
        transport.abort()
    wait_for(lambda: server.metric("voice_calls_active") == 0, "the call to be gone")
