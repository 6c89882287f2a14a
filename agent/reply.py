"""One reply: from the hook's first piece of text to the last sample heard.

Two tasks at most: one reads the hook into a bounded queue, one turns text into clauses, clauses into speech and speech
into the playout. What covers a missed deadline (filler, holding phrase, apology) comes from the phrase book, never from
the engine.

A reply may begin ahead of its turn's end: then its speaker writes to a playout that nobody reads, one clause is made,
what it does is held back, and `commit` lets all of it go within one step of the event loop.
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
from agent.nlu.hook import (
    Action,
    Dtmf,
    Hangup,
    Listen,
    Nlu,
    Play,
    Private,
    Send,
    Transfer,
    Turn,
    Uninterruptible,
)
from agent.patience import Patience
from agent.speech.chunker import Clause, ClauseChunker
from agent.speech.phrases import PhraseBook
from agent.speech.speaker import Speaker
from agent.tts.protocol import Discreet, Speech, Style, Synthesizer, Voice

__all__ = ["Reply", "ReplyClock", "ReplyHost", "ReplyResult"]

log = logging.getLogger(__name__)

HOOK_QUEUE = 256
"""Pieces a hook may be ahead of the voice before it has to wait."""

SYNTHESIS_DEADLINE_S = 8.0
"""Longest wait for the next piece of a clause, fallbacks included."""

CLAUSES_AHEAD = 1
"""Clauses made of a reply whose turn may go on: more would cost engines and win nothing, since one is a second of
speech in which the next is made."""

EARLY_S = 0.002
"""A timer of the event loop may ring this much before the clock that was asked for."""

AHEAD_DEADLINE_S = 10.0
"""A turn is decided within seconds; a reply that still waits for it then was forgotten."""


class ReplyHost(Protocol):
    """What a reply needs of its call. But for `on_opening`, called only once the reply is committed."""

    def on_opening(self, clause: Clause, *, private: bool) -> None:
        """The speech of its first clause is about to be asked for; also ahead of `commit`."""

    def on_clause(self, text: str) -> None:
        """A clause was handed to playout."""

    def on_written(self) -> None:
        """The hook is done, and its last clause is on its way."""

    def on_action(self, action: Action) -> None:
        """An action's place in the reply was reached.

        Transfer, Send and Dtmf come when all before them was heard; what steers the next text or turn comes at once.
        """

    def on_guarded(self) -> None:
        """The rest of the reply is not to be interrupted."""

    def on_closing(self, reason: str) -> None:
        """The reply ends the call; the rest of it plays uninterrupted."""

    def fault(self, part: str, error: BaseException) -> None:
        """Something failed and was covered."""

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

    def begin(self, now: float) -> None:
        """The question counts as asked now: what was there before costs the caller no time."""
        self.asked = now
        self.first_text = None if self.first_text is None else now
        self.first_clause = None if self.first_clause is None else now
        self.first_speech = None if self.first_speech is None else now


class _End(Enum):
    """Marks the end of the hook's output in the queue."""

    END = "end"


class Reply:
    """Speaks the hook's answer to one turn.

    Args:
        nlu, turn: who is asked, and what. A speculative turn's reply waits for `commit`.
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
        self.failed = False
        """Hook or voice failed before `commit`: of no use to anybody."""
        self.private = False
        """What is said from here on must not leave memory."""
        self._nlu = nlu
        self._synthesizer = synthesizer
        self._phrases = phrases
        self._clips = clips
        self._settings = settings
        self._host = host
        self._now = now
        self._queue: asyncio.Queue[str | Action | Exception | _End] = asyncio.Queue(HOOK_QUEUE)
        self._patience = Patience(settings, turn.kind)
        self._waiting: asyncio.Timeout | None = None
        self._hang_up: str | None = None
        self._committed = asyncio.Event()
        self._held: list[Clause | Listen | Uninterruptible] = []
        """What the host is not told before `commit`, in order."""
        self._clauses = 0
        self._voice_s = 0.0
        self._voice_since: float | None = None
        self._covering = False
        """The last thing said is a filler or a holding phrase."""
        if not turn.speculative:
            self._committed.set()

    @property
    def voice_s(self) -> float:
        """How long voices have worked on it before `commit`, in seconds."""
        return self._voice_s + (0.0 if self._voice_since is None else self._now() - self._voice_since)

    async def run(self) -> ReplyResult:
        """Speak until the hook is done and all was heard. Cancel to give up; the hook is closed either way."""
        self.clock.asked = self._now()
        self._patience.begin(self.clock.asked, ahead=not self._committed.is_set())
        reader = asyncio.create_task(self._read_hook(), name="hook")
        status: Literal["completed", "failed"] = "completed"
        try:
            await self._speak_all()
            await self._until_committed()
            if self._hang_up is None:
                self._host.on_written()
        except (HookError, EngineError) as exc:
            status = "failed"
            if not self._committed.is_set():
                self.failed = True
                log.debug("a reply begun ahead of its turn failed: %s", type(exc).__name__)
                return ReplyResult(status)
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

    def commit(self) -> None:
        """The turn is over as it was guessed: what was held back is told now, and times count from here.

        The speaker must have joined the call's playout. Nothing happens the second time.
        """
        if self._committed.is_set():
            return
        now = self._now()
        self.clock.begin(now)
        self._patience.begin(now)
        self._committed.set()
        held, self._held = self._held, []
        for item in held:
            match item:
                case Clause():
                    self._host.on_clause(item.text)
                case Uninterruptible():
                    self._host.on_guarded()
                case _:
                    self._host.on_action(item)
        if self._waiting is not None and not self._waiting.expired():
            # Whoever waits for the hook looks again at what is due when.
            self._waiting.reschedule(0.0)

    async def _until_committed(self) -> None:
        """Raises HookTimeout."""
        if self._committed.is_set():
            return
        try:
            async with asyncio.timeout(AHEAD_DEADLINE_S):
                await self._committed.wait()
        except TimeoutError:
            raise HookTimeout(f"the turn was not decided in {AHEAD_DEADLINE_S:g} s") from None

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
        chunker = ClauseChunker(self._host.speaking_as[0].language)
        while True:
            item = await self._next_item(chunker)
            match item:
                case str():
                    if self.clock.first_text is None and item.strip():
                        self._answer_begins()
                    for clause in chunker.push(item):
                        await self._clause(clause)
                case _End():
                    await self._flush(chunker)
                    return
                case Exception():
                    await self._flush(chunker)
                    raise item
                case _:
                    await self._flush(chunker)
                    if await self._act(item):
                        return
                    chunker.language = self._host.speaking_as[0].language

    async def _flush(self, chunker: ClauseChunker) -> None:
        for clause in chunker.flush():
            await self._clause(clause)

    def _answer_begins(self) -> None:
        self.clock.first_text = self._now()
        self._patience.text()
        if self._covering and self.speaker.withdraw():
            # Nothing of it was heard yet, and the answer is here.
            log.debug("a filler was withdrawn")

    async def _next_item(self, chunker: ClauseChunker) -> str | Action | Exception | _End:
        """The hook's next piece, covering its slowness with phrases. Raises HookTimeout."""
        self._patience.wait(self._now())
        while True:
            due, step = self._patience.next(pending=bool(chunker.pending))
            item = await self._item_by(due)
            if item is not None:
                return item
            # The call's clock may have stood still, or the turn was committed meanwhile: then this is not due.
            if self._now() < due - EARLY_S or self._patience.next(pending=bool(chunker.pending)) != (due, step):
                continue
            if step == "apology":
                raise HookTimeout(f"the hook gave nothing for {self._settings.apologise_after_s:g} s")
            self._patience.passed(step)
            if step == "flush":
                await self._flush(chunker)
            else:
                await self._phrase(step, covers=True)

    async def _item_by(self, due: float) -> str | Action | Exception | _End | None:
        try:
            async with asyncio.timeout(max(0.0, due - self._now())) as self._waiting:
                return await self._queue.get()
        except TimeoutError:
            return None if self._queue.empty() else self._queue.get_nowait()
        finally:
            self._waiting = None

    async def _act(self, action: Action) -> bool:
        """Carry an action out in its place; True when the reply ends with it. Raises HookError."""
        match action:
            case Listen() | Uninterruptible() if not self._committed.is_set():
                self._held.append(action)
                return False
            case Private():
                self.private = True
                return False
            case Send() | Dtmf():
                self.speaker.when_reached(lambda: self._host.on_action(action))
                return False
        await self._until_committed()
        match action:
            case Hangup(after_playout):
                self._hang_up = "agent hung up"
                if not after_playout:
                    self.speaker.stop()
                self._host.on_closing(self._hang_up)
                return True
            case Transfer() if self.turn.session.channel == "sip":
                # The call is over only once the transfer is known to have worked.
                self.speaker.when_reached(lambda: self._host.on_action(action))
                return True
            case Transfer():
                self._hang_up = "transferred"
                self._host.on_closing(self._hang_up)
                self.speaker.when_reached(lambda: self._host.on_action(action))
                return True
            case Uninterruptible():
                self._host.on_guarded()
            case Play(clip):
                if clip not in self._clips:
                    known = ", ".join(sorted(self._clips)) or "none; name them under [clips]"
                    raise HookError(f"Play.clip: no clip named {clip!r}; known are {known}")
                self._covering = False
                await self.speaker.play(self._clips[clip])
                self._patience.sound(self._now() + self.speaker.queued_s)
            case _:
                self._host.on_action(action)
        return False

    # -- the voice -----------------------------------------------------------------------------------------------------

    async def _clause(self, clause: Clause) -> None:
        if not clause.spoken:
            self.speaker.skip(clause.text)
            return
        if self._clauses >= CLAUSES_AHEAD:
            await self._until_committed()
        await self.speaker.below()
        self._clauses += 1
        if self.clock.first_clause is None:
            self.clock.first_clause = self._now()
            self._host.on_opening(clause, private=self.private)
        if self._committed.is_set():
            self._host.on_clause(clause.text)
        else:
            self._held.append(clause)
        speech = self._timed(self._stream(clause.spoken))
        if not await self.speaker.say(clause.text, speech, clause):
            log.debug("a clause made no sound")

    def _stream(self, spoken: str) -> AsyncIterator[Speech]:
        voice, style = self._host.speaking_as
        if self.private and isinstance(self._synthesizer, Discreet):
            return self._synthesizer.privately(spoken, voice, style)
        return self._synthesizer.stream(spoken, voice, style)

    async def _timed(self, speech: AsyncIterator[Speech]) -> AsyncGenerator[Speech]:
        """Pieces with a deadline for each. Raises EngineError."""
        try:
            while True:
                self._voice_since = None if self._committed.is_set() else self._now()
                try:
                    async with asyncio.timeout(SYNTHESIS_DEADLINE_S):
                        piece = await anext(speech, None)
                except TimeoutError:
                    raise EngineError(f"no speech for {SYNTHESIS_DEADLINE_S:g} s") from None
                finally:
                    self._voice_s, self._voice_since = self.voice_s, None
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

    async def _phrase(self, name: str, *, covers: bool = False) -> None:
        phrase = self._phrases.phrase(name, self._host.speaking_as[0])
        if phrase is None:
            log.warning("phrase %s is not there to be said", name)
            return

        async def pieces() -> AsyncGenerator[Speech]:
            yield phrase.speech

        text = phrase.text
        if covers:
            # It may still be withdrawn, so nobody is told before it is heard.
            self._covering = True
            self.speaker.when_audible(lambda: self._host.on_clause(text))
        else:
            self._host.on_clause(text)
        await self.speaker.say(f"{text} ", pieces())
