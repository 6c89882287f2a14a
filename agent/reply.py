"""One reply: from the hook's first piece of text to the last sample heard.

Two tasks at most: one reads the hook into a bounded queue, one turns text into clauses, clauses into speech and speech
into the playout. What covers a missed deadline (filler, holding phrase, apology) comes from the phrase book, never from
the engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

from agent.config import ConversationSettings
from agent.errors import EngineError, HookError, HookTimeout
from agent.media.frames import Pcm
from agent.nlu.guard import guarded
from agent.nlu.hook import Action, Dtmf, Hangup, Nlu, Play, Send, Transfer, Turn
from agent.speech.chunker import Clause, ClauseChunker
from agent.speech.phrases import PhraseBook
from agent.speech.speaker import Speaker
from agent.tts.protocol import Speech, Style, Synthesizer, Voice

__all__ = ["Reply", "ReplyHost", "ReplyResult"]

log = logging.getLogger(__name__)

HOOK_QUEUE = 256
"""Pieces a hook may be ahead of the voice before it has to wait."""

PENDING_FLUSH_S = 0.4
"""A hook that falls silent in mid-clause gets what it wrote so far spoken after this long."""

SYNTHESIS_DEADLINE_S = 8.0
"""Longest wait for the next piece of a clause, fallbacks included."""


class ReplyHost(Protocol):
    """What a reply needs of its call."""

    def on_clause(self, text: str) -> None:
        """A clause was handed to playout."""

    def on_action(self, action: Action) -> None:
        """An action's place in the reply was reached.

        Transfer, Send and Dtmf come when all before them was heard; what steers the next text or turn comes at once.
        """

    def on_closing(self, reason: str) -> None:
        """The reply ends the call; the rest of it plays uninterrupted."""

    def fault(self, part: str, error: BaseException) -> None:
        """Something failed and was covered."""

    @property
    def listened_to(self) -> bool:
        """False while nobody is there to be asked for patience."""
        ...

    @property
    def speaking_as(self) -> tuple[Voice, Style]:
        """Voice and style of the next clause."""
        ...


@dataclass(frozen=True, slots=True)
class ReplyResult:
    """How a reply went."""

    status: Literal["completed", "failed"]
    hang_up: str | None = None


@dataclass(slots=True)
class ReplyClock:
    """When the parts of an answer took place, on the loop's clock; None where one did not."""

    asked: float | None = None
    first_text: float | None = None
    first_clause: float | None = None
    first_speech: float | None = None


class _End(Enum):
    """Marks the end of the hook's output in the queue."""

    END = "end"


class Reply:
    """Speaks the hook's answer to one turn.

    Args:
        nlu, turn: who is asked, and what.
        synthesizer, phrases, clips, speaker: how it becomes sound.
        settings: deadlines and bounds.
        host: the call.
        now: the monotonic clock.
    """

    def __init__(
        self,
        nlu: Nlu,
        turn: Turn,
        *,
        synthesizer: Synthesizer,
        phrases: PhraseBook,
        clips: Mapping[str, Pcm],
        speaker: Speaker,
        settings: ConversationSettings,
        host: ReplyHost,
        now: Callable[[], float],
    ) -> None:
        self.turn = turn
        self.speaker = speaker
        self.clock = ReplyClock()
        self._nlu = nlu
        self._synthesizer = synthesizer
        self._phrases = phrases
        self._clips = clips
        self._settings = settings
        self._host = host
        self._now = now
        self._queue: asyncio.Queue[str | Action | Exception | _End] = asyncio.Queue(HOOK_QUEUE)
        self._hang_up: str | None = None
        self._phrases_said: set[str] = set()

    async def run(self) -> ReplyResult:
        """Speak until the hook is done and all was heard. Cancel to give up; the hook is closed either way."""
        self.clock.asked = self._now()
        reader = asyncio.create_task(self._read_hook(), name="hook")
        status: Literal["completed", "failed"] = "completed"
        try:
            await self._speak_all()
        except (HookError, EngineError) as exc:
            status = "failed"
            self._host.fault("nlu" if isinstance(exc, HookError) else "tts", exc)
            await self._phrase("apology")
        finally:
            # The guard inside closes the hook with a deadline of its own, so this cannot hang.
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        await self.speaker.drained()
        return ReplyResult(status, self._hang_up)

    async def say_phrase(self, name: str) -> ReplyResult:
        """Speak a stored phrase instead of asking the hook."""
        await self._phrase(name)
        await self.speaker.drained()
        return ReplyResult("completed")

    # -- the hook ------------------------------------------------------------------------------------------------------

    async def _read_hook(self) -> None:
        try:
            async with guarded(self._nlu, self.turn, max_chars=self._settings.max_reply_chars) as reply:
                async for item in reply:
                    await self._queue.put(item)
        except HookError as exc:
            await self._queue.put(exc)
        else:
            await self._queue.put(_End.END)

    async def _speak_all(self) -> None:
        chunker = ClauseChunker(self.turn.language)
        while True:
            item = await self._next_item(chunker)
            match item:
                case str():
                    if self.clock.first_text is None and item.strip():
                        self.clock.first_text = self._now()
                    for clause in chunker.push(item):
                        await self._clause(clause)
                case _End():
                    for clause in chunker.flush():
                        await self._clause(clause)
                    return
                case Exception():
                    for clause in chunker.flush():
                        await self._clause(clause)
                    raise item
                case _:
                    for clause in chunker.flush():
                        await self._clause(clause)
                    if await self._act(item):
                        return

    async def _next_item(self, chunker: ClauseChunker) -> str | Action | Exception | _End:
        """The hook's next piece, covering its slowness with phrases. Raises HookTimeout."""
        assert self.clock.asked is not None
        settings = self._settings
        waited_from = self.clock.asked if self.clock.first_text is None else self._now()
        steps: list[tuple[float, str]] = []
        if self.clock.first_text is None and self.turn.kind != "greeting":
            if settings.filler_after_s:
                steps.append((settings.filler_after_s, "filler"))
            steps.append((settings.hold_after_s, "hold"))
        elif chunker.pending:
            steps.append((PENDING_FLUSH_S, "flush"))
        steps.append((settings.apologise_after_s, "apology"))
        for after_s, step in steps:
            try:
                async with asyncio.timeout(max(0.0, waited_from + after_s - self._now())):
                    return await self._queue.get()
            except TimeoutError:
                if not self._queue.empty():
                    return self._queue.get_nowait()
            if step == "apology":
                break
            if step == "flush":
                for clause in chunker.flush():
                    await self._clause(clause)
            elif self._host.listened_to and not self._said(step):
                await self._phrase(step)
        raise HookTimeout(f"the hook gave nothing for {settings.apologise_after_s:g} s")

    def _said(self, name: str) -> bool:
        """True the second time a phrase is about to be said in one reply."""
        said = name in self._phrases_said
        self._phrases_said.add(name)
        return said

    async def _act(self, action: Action) -> bool:
        """Carry an action out in its place; True when the reply ends with it. Raises HookError."""
        match action:
            case Hangup(after_playout):
                self._hang_up = "agent hung up"
                if not after_playout:
                    self.speaker.stop()
                self._host.on_closing(self._hang_up)
                return True
            case Transfer():
                self._hang_up = "transferred"
                self._host.on_closing(self._hang_up)
                self.speaker.when_reached(lambda: self._host.on_action(action))
                return True
            case Send() | Dtmf():
                self.speaker.when_reached(lambda: self._host.on_action(action))
            case Play(clip):
                if clip not in self._clips:
                    known = ", ".join(sorted(self._clips)) or "none; name them under [clips]"
                    raise HookError(f"Play.clip: no clip named {clip!r}; known are {known}")
                await self.speaker.play(self._clips[clip])
            case _:
                self._host.on_action(action)
        return False

    # -- the voice -----------------------------------------------------------------------------------------------------

    async def _clause(self, clause: Clause) -> None:
        if not clause.spoken:
            self.speaker.skip(clause.text)
            return
        await self.speaker.below()
        if self.clock.first_clause is None:
            self.clock.first_clause = self._now()
        self._host.on_clause(clause.text)
        speech = self._timed(self._synthesizer.stream(clause.spoken, *self._host.speaking_as))
        if not await self.speaker.say(clause.text, speech):
            log.debug("a clause made no sound")

    async def _timed(self, speech: AsyncIterator[Speech]) -> AsyncGenerator[Speech]:
        """Pieces with a deadline for each. Raises EngineError."""
        try:
            while True:
                try:
                    async with asyncio.timeout(SYNTHESIS_DEADLINE_S):
                        piece = await anext(speech, None)
                except TimeoutError:
                    raise EngineError(f"no speech for {SYNTHESIS_DEADLINE_S:g} s") from None
                if piece is None:
                    return
                if self.clock.first_speech is None:
                    self.clock.first_speech = self._now()
                yield piece
        finally:
            # Here, and not when it is collected: a clause that is given up must stop costing the engine at once.
            close = getattr(speech, "aclose", None)
            if close is not None:
                await close()

    async def _phrase(self, name: str) -> None:
        speech = self._phrases.speech(name, self._host.speaking_as[0].name)
        if speech is None:
            log.warning("phrase %s is not there to be said", name)
            return

        async def pieces() -> AsyncGenerator[Speech]:
            yield speech

        text = self._phrases.text(name)
        self._host.on_clause(text)
        await self.speaker.say(f"{text} ", pieces())
