"""Plays one reply into a call's playout and knows, word by word, what of it was heard."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

import numpy as np

from agent.asr.protocol import Word
from agent.media.encoded import EncodedSpeech
from agent.media.frames import Pcm
from agent.media.playout import Playout
from agent.media.resample import StreamResampler
from agent.speech.chunker import Clause
from agent.speech.edges import SoftEdges
from agent.speech.heard import heard_to
from agent.tts.protocol import Speech

__all__ = ["Speaker"]

AHEAD_S = 6.0
"""Speech is made this far ahead of the caller's ear: enough to ride out a slow engine, little to waste when cut."""

MAX_WORD_S = 1.0
"""After an interruption that was none, at most this much is said again: a longer "word" is a clause without times."""

SECONDS_PER_CHAR = 0.07
"""Pace of English speech, for a clause of which the end is not made yet and no word times are known."""

_WORD = re.compile(r"\S+\s*")


@dataclass(slots=True)
class _Span:
    """A clause in the playout. Positions are samples of the playout."""

    text: str
    start: int
    end: int
    clause: Clause | None = None
    """How `text` is spoken, where that is known."""
    words: list[Word] = field(default_factory=list)
    complete: bool = True
    """False while the engine still makes more of it: `end` and `words` are those of the part that exists."""


class Speaker:
    """One reply's way into the playout.

    The call reports each media tick with `tick()`; nothing here looks at a clock.

    Args:
        playout: where samples go; only one Speaker writes to it at a time. One that nobody reads makes a reply ahead of
            its turn: `hold` it, and `join` the call's playout when its turn has come.
        rate_hz: sample rate of the speech it is given.
    """

    def __init__(self, playout: Playout, rate_hz: int) -> None:
        self.playout = playout
        self.rate_hz = rate_hz
        self.started_at_position: int | None = None
        """Playout position of the reply's first sample; None while there is none."""
        self._spans: list[_Span] = []
        self._marks: list[tuple[int, Callable[[], None]]] = []
        self._stopped = False
        self._held = False
        self._moved = asyncio.Event()

    async def say(self, text: str, speech: AsyncGenerator[Speech], clause: Clause | None = None) -> float:
        """Write a clause as its pieces arrive, waiting whenever enough is queued.

        Args:
            text: the clause as the hook wrote it; history shows this.
            speech: int16 mono pieces at `rate_hz`, with word times.
            clause: how it is spoken: with it, what was heard is told by the words of the source.

        Returns:
            Seconds of speech written; 0.0 when the engine made no sound.
        """
        resampler = (
            StreamResampler(self.rate_hz, self.playout.sample_rate_hz)
            if self.rate_hz != self.playout.sample_rate_hz
            else None
        )
        start = self.playout.position + self.playout.queued_samples
        span = _Span(text, start, start, clause, complete=False)
        self._spans.append(span)
        edges = SoftEdges(self.rate_hz)

        async def write(pcm: Pcm, ahead_s: float = AHEAD_S) -> None:
            await self._write(span, pcm if resampler is None else resampler.push(pcm), ahead_s)

        async def end() -> None:
            # A few milliseconds: the clause is whole with them, and need not wait until there is need of more.
            await write(edges.finish(), math.inf)
            if resampler is not None:
                await self._write(span, resampler.push(np.empty(0, np.int16), last=True), math.inf)
            if not self._stopped:
                self.playout.end()

        try:
            async with contextlib.aclosing(speech):
                async for piece in speech:
                    span.words.extend(piece.words)
                    if (packets := self._packets_of(piece, span)) is not None:
                        # They are the whole clause, at the playout's rate.
                        resampler = None
                        await self._write_packets(span, packets)
                    else:
                        await write(edges.push(piece.pcm))
        except Exception:
            # It broke off: what there is of it ends as softly, and what comes next need not wait for the rest.
            await end()
            raise
        await end()
        span.complete = True
        return (span.end - span.start) / self.playout.sample_rate_hz

    async def play(self, pcm: Pcm, text: str = "") -> None:
        """Write ready-made sound, int16 [n] mono at `rate_hz`."""

        async def pieces() -> AsyncGenerator[Speech]:
            yield Speech(pcm)

        await self.say(text, pieces())

    def skip(self, text: str) -> None:
        """Text that belongs to the reply but makes no sound counts as heard with what stands before it."""
        end = self.playout.position + self.playout.queued_samples
        self._spans.append(_Span(text, end, end))

    def when_reached(self, action: Callable[[], None]) -> None:
        """Run `action` once all that was written so far has been heard; now, if nothing waits."""
        position = self.playout.position + self.playout.queued_samples
        if position <= self.playout.position and not self._held and not self._marks:
            action()
        else:
            self._marks.append((position, action))

    def when_audible(self, action: Callable[[], None]) -> None:
        """Run `action` once the first sample that is written after this has left."""
        self._marks.append((self.playout.position + self.playout.queued_samples + 1, action))

    def withdraw(self) -> bool:
        """Take the last clause back, unless some of it has left already; False then."""
        span = self._spans[-1] if self._spans else None
        if span is None or span.start < self.playout.position or self._stopped:
            return False
        self.playout.withdraw(span.end - span.start)
        self._spans.pop()
        self._marks = [mark for mark in self._marks if mark[0] <= span.start]
        if self.started_at_position == span.start:
            self.started_at_position = None
        return True

    def join(self, playout: Playout) -> None:
        """Go on in another playout; what waits in the present one moves there, at once.

        Raises MediaError when it does not fit.
        """
        shift = playout.position + playout.queued_samples - self.playout.position
        playout.take_over(self.playout)
        self.playout = playout
        for span in self._spans:
            span.start += shift
            span.end += shift
        self._marks = [(position + shift, action) for position, action in self._marks]
        if self.started_at_position is not None:
            self.started_at_position += shift
        self._moved.set()

    @property
    def queued_s(self) -> float:
        """Seconds of speech that wait to be heard."""
        return self.playout.queued_samples / self.playout.sample_rate_hz

    async def below(self, seconds: float = AHEAD_S) -> None:
        """Wait until less than `seconds` of speech is queued."""
        while self.playout.queued_samples > seconds * self.playout.sample_rate_hz and not self._stopped:
            self._moved.clear()
            await self._moved.wait()

    async def drained(self) -> None:
        """Wait until all that was written has been heard."""
        while (self._held or not self.playout.drained) and not self._stopped:
            self._moved.clear()
            await self._moved.wait()

    def tick(self) -> None:
        """A frame has left (or silence): run what was waiting for this position."""
        self._moved.set()
        while self._marks and self._marks[0][0] <= self.playout.position:
            self._marks.pop(0)[1]()

    def hold(self, unheard_s: float = 0.0) -> None:
        """Nobody hears any of this for now: nothing is reached and nothing drained until `release`.

        What was read in the last `unheard_s` seconds will be read again, from the beginning of the word; so will a word
        that was cut.
        """
        self._held = True
        start = self.started_at_position
        if start is None or self.playout.position <= start:
            return
        reached = self.playout.position - round(unheard_s * self.playout.sample_rate_hz)
        self._back_to(self._word_start(max(start, reached)))

    def release(self) -> None:
        """Somebody hears it again."""
        self._held = False
        self._moved.set()

    def resume(self) -> None:
        """Go on after `playout.pause()`: with the word that was cut, from its beginning."""
        if self.playout.silent:
            start = self._word_start(self.playout.position)
            if 0 < self.playout.position - start <= MAX_WORD_S * self.playout.sample_rate_hz:
                self._back_to(start)
        self.playout.resume()

    def repeat_clause(self) -> None:
        """Read the clause that is being said once more from its beginning, as far as the playout has kept it."""
        for span in self._spans:
            if span.start <= self.playout.position < span.end:
                self._back_to(span.start)
                return

    def stop(self) -> None:
        """Drop what was not heard. Idempotent."""
        if not self._stopped:
            self._stopped = True
            self._marks.clear()
            self.playout.clear()
            self._moved.set()

    def heard(self) -> tuple[str, str]:
        """What was heard and what was not, split at a word, as (heard, unheard) of the reply's text."""
        heard: list[str] = []
        unheard: list[str] = []
        for span in self._spans:
            if span.complete and span.end <= self.playout.position and not unheard:
                heard.append(span.text)
            elif span.start >= self.playout.position:
                unheard.append(span.text)
            else:
                cut = self._cut(span)
                heard.append(span.text[:cut])
                unheard.append(span.text[cut:])
        return "".join(heard).strip(), "".join(unheard).strip()

    def _back_to(self, position: int) -> None:
        self.playout.rewind(self.playout.position - position)

    def _word_start(self, position: int) -> int:
        """Where the word begins that `position` cuts; `position` itself between words."""
        rate_hz = self.playout.sample_rate_hz
        for span in self._spans:
            if not span.start < position < span.end:
                continue
            for word in span.words:
                start = span.start + round(word.start_s * rate_hz)
                if start < position < span.start + round(word.end_s * rate_hz):
                    return start
            if not span.words:
                words = len(_WORD.findall(span.text)) or 1
                length = span.end - span.start
                return span.start + (position - span.start) * words // length * length // words
        return position

    def _fraction(self, span: _Span) -> float:
        """Share of a clause's words that were heard past their middle."""
        rate_hz = self.playout.sample_rate_hz
        played_s = (self.playout.position - span.start) / rate_hz
        if span.words:
            heard = sum((word.start_s + word.end_s) / 2 <= played_s for word in span.words)
            whole = len(span.words) if span.complete else max(len(span.words), len(span.text.split()))
            return heard / whole
        length_s = (span.end - span.start) / rate_hz
        if not span.complete:
            length_s = max(length_s, len(span.text) * SECONDS_PER_CHAR)
        return min(1.0, played_s / length_s) if length_s else 0.0

    def _cut(self, span: _Span) -> int:
        """Index into the span's text up to which it was heard."""
        clause = span.clause
        if clause is None or not clause.words or clause.text != span.text:
            return cut_at_word(span.text, self._fraction(span))
        rate_hz = self.playout.sample_rate_hz
        length_s = (span.end - span.start) / rate_hz
        if not span.complete:
            length_s = max(length_s, len(clause.spoken) * SECONDS_PER_CHAR)
        return heard_to(clause, span.words, (self.playout.position - span.start) / rate_hz, length_s)

    def _packets_of(self, piece: Speech, span: _Span) -> EncodedSpeech | None:
        """Packets that can be sent in place of this piece, which is a whole clause then."""
        codec = self.playout.codec
        if piece.packets is None or codec is None or span.end > span.start or self._stopped:
            return None
        packets = piece.packets(codec)
        fits = packets is not None and len(packets.pcm) <= self.playout.max_queued_samples // 2
        return packets if fits else None

    async def _write_packets(self, span: _Span, packets: EncodedSpeech) -> None:
        await self.below(AHEAD_S)
        while self.playout.room_samples < len(packets.pcm) and not self._stopped:
            self._moved.clear()
            await self._moved.wait()
        if not self._stopped and len(packets.pcm):
            self._begin_sound()
            span.end = self.playout.write_encoded(packets)

    def _begin_sound(self) -> None:
        if self.started_at_position is None:
            self.started_at_position = self.playout.position + self.playout.queued_samples

    async def _write(self, span: _Span, pcm: Pcm, ahead_s: float = AHEAD_S) -> None:
        if not len(pcm):
            return
        await self.below(ahead_s)
        chunk = self.playout.sample_rate_hz * 4
        for offset in range(0, len(pcm), chunk):
            part = pcm[offset : offset + chunk]
            while self.playout.room_samples < len(part) and not self._stopped:
                self._moved.clear()
                await self._moved.wait()
            if self._stopped:
                return
            self._begin_sound()
            span.end = self.playout.write(part)


def cut_at_word(text: str, fraction: float) -> int:
    """Index into `text` after the share `fraction` (0 to 1) of its words; of its characters where no spaces are.

    Rounded down: history must not claim a word that was not heard.
    """
    words = list(_WORD.finditer(text))
    if len(words) > 1:
        count = math.floor(len(words) * fraction + 1e-9)
        return words[count - 1].end() if count else 0
    if text.isascii():
        return len(text) if fraction >= 0.5 else 0
    return math.floor(len(text) * fraction + 1e-9)
