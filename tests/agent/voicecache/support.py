"""Entries, an engine whose work is held until a test lets it go, and a proxy that makes a server slow."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np

from agent.asr.protocol import EngineInfo, Word
from agent.core.urgency import current_priority
from agent.errors import EngineError
from agent.media.frames import Pcm
from agent.tts.protocol import Speech, Style, Voice
from agent.voicecache.entry import CachedSpeech
from agent.voicecache.key import SpeechKey, speech_key

RATE = 24_000
ENGINE = EngineInfo("parrot", "1", RATE, ("en", "zh"), True, ("heart", "other"))
VOICE = Voice()
STYLE = Style()


def tone(seconds: float, hz: float = 220.0) -> Pcm:
    """int16 [n] at 24 kHz, well audible from the first milliseconds on."""
    return np.asarray(8000 * np.cos(2 * np.pi * hz * np.arange(round(seconds * RATE)) / RATE), np.int16)


def key_of(text: str, voice: Voice = VOICE) -> SpeechKey:
    return speech_key(text, voice, STYLE, ENGINE)


def entry(text: str = "Hello.", seconds: float = 0.1, *, private: bool = False) -> CachedSpeech:
    pcm = tone(seconds)
    words = (Word(text, 0.0, seconds),)
    return CachedSpeech(key_of(text), text, "heart", "en", ENGINE.identity, RATE, pcm, words, private)


class Parrot:
    """Two pieces a clause: none while `gate` is closed, one while `tail` is. Texts in `fails` break after the first."""

    def __init__(self, source: str = "", info: EngineInfo = ENGINE) -> None:
        self.info = info
        self.source = source
        self.gate = asyncio.Event()
        self.gate.set()
        self.tail = asyncio.Event()
        self.tail.set()
        self.begun: Counter[str] = Counter()
        self.given_up: Counter[str] = Counter()
        self.priorities: list[int] = []
        self.fails: set[str] = set()
        self.silent: set[str] = set()

    async def stream(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
        self.begun[text] += 1
        self.priorities.append(current_priority())
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.given_up[text] += 1
            raise
        loud = tone(0.1) * (text not in self.silent)
        yield Speech(loud, (Word(text, 0.0, 0.1),), self.source)
        await self.tail.wait()
        if text in self.fails:
            raise EngineError("broken")
        yield Speech(loud, (), self.source)

    async def close(self) -> None:
        """Nothing to free."""


@asynccontextmanager
async def slow_proxy(port: int, delay_s: float | Callable[[], float]) -> AsyncIterator[int]:
    """A TCP port in front of `port` that hands every answer on `delay_s` late; a function is asked each time."""
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, late: bool) -> None:
        try:
            while data := await reader.read(65_536):
                if late:
                    await asyncio.sleep(delay_s() if callable(delay_s) else delay_s)
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        for task in (
            asyncio.create_task(pump(reader, back, late=False)),
            asyncio.create_task(pump(there, writer, late=True)),
        ):
            tasks.add(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
