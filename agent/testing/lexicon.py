"""Sound that carries its own words, so that a scripted recogniser hears what was said and a test what was heard.

Every sample's low byte holds half of a word's number: the lower seven bits in samples of even index, the upper seven,
marked by the eighth bit, in those of odd index. That is 40 dB below a voice, survives any cut, and is lost when sound
is scaled or resampled, as by the fade of a pause. A voice without a word (number 0) is noise to the recogniser.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agent.media.frames import HEARING_HZ, Pcm

__all__ = ["Lexicon", "SoundWord"]

MAX_WORDS = 1 << 14
"""Numbers that fit in two samples; older words are forgotten when they run out."""


@dataclass(frozen=True, slots=True)
class SoundWord:
    """A word that was made into sound."""

    text: str
    samples: int


class Lexicon:
    """The words of one stage, by number. Pure."""

    def __init__(self) -> None:
        self._words: dict[int, SoundWord] = {}
        self._next = 1

    def mark(self, pcm: Pcm, word: str = "") -> Pcm:
        """`pcm`, int16 [n], carrying `word`; an empty word is noise."""
        number = 0
        if word:
            number = self._next
            self._next = number % (MAX_WORDS - 1) + 1
            self._words[number] = SoundWord(word, len(pcm))
        return self.carry(pcm, number)

    def carry(self, pcm: Pcm, number: int) -> Pcm:
        """`pcm` carrying a word that is known by its number."""
        code = np.empty(len(pcm), np.int16)
        code[0::2] = number & 0x7F
        code[1::2] = 0x80 | (number >> 7)
        marked: Pcm = (pcm & ~np.int16(0xFF)) | code
        return marked

    def word(self, number: int) -> SoundWord | None:
        """The word of this number."""
        return self._words.get(number)

    def read(self, pcm: Pcm) -> dict[int, int]:
        """Numbers of the words in `pcm`, int16 [n], in order, each with about how many samples of it are there."""
        low = (pcm & 0xFF).astype(np.uint8)
        first, second = low[:-1], low[1:]
        pairs = (first < 0x80) & (second >= 0x80)
        if not pairs.any():
            return {}
        numbers = first[pairs].astype(np.int32) | (second[pairs].astype(np.int32) & 0x7F) << 7
        found, at, counts = np.unique(numbers, return_index=True, return_counts=True)
        return {int(found[i]): 2 * int(counts[i]) for i in np.argsort(at) if found[i] and int(found[i]) in self._words}

    def speech(self, text: str, seconds: float, sound: Pcm) -> Pcm:
        """`text` spoken evenly over `seconds`: `sound`, int16 [n] at 16 kHz, repeated and cut, carrying its words."""
        words = text.split()
        samples = round(seconds * HEARING_HZ)
        pcm = np.resize(sound, samples)
        if not words:
            return self.mark(pcm)
        sizes = np.array([len(word) + 1 for word in words])
        ends = np.round(np.cumsum(sizes) / sizes.sum() * samples).astype(int)
        parts = np.split(pcm, ends[:-1])
        return np.concatenate([self.mark(part, word) for part, word in zip(parts, words, strict=True)])
