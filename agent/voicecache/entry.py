"""One piece of cached speech: samples, word times, packets, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.asr.protocol import Word
from agent.errors import MediaError
from agent.media.encoded import EncodedSpeech
from agent.media.frames import Pcm
from agent.tts.protocol import Speech
from agent.voicecache.key import SpeechKey

__all__ = ["CachedSpeech"]

OVERHEAD_BYTES = 600
"""About what the objects of an entry take beside samples and packets."""

WORD_BYTES = 120


@dataclass(frozen=True, slots=True, eq=False)
class CachedSpeech:
    """Speech that is ready: int16 [n] mono at `sample_rate_hz`, words timed from its start.

    Must not be changed; `with_packets` makes a new one.
    """

    key: SpeechKey
    text: str
    """As the engine read it."""
    voice: str
    language: str
    source: str
    """Engine and version that made it."""
    sample_rate_hz: int
    pcm: Pcm
    words: tuple[Word, ...] = ()
    private: bool = False
    """Never leaves memory."""
    packets: Mapping[str, EncodedSpeech] = field(default_factory=dict)
    """By the coder's key (`Encoder.key`)."""

    @property
    def size_bytes(self) -> int:
        """Memory held, for a tier's bound."""
        size = OVERHEAD_BYTES + self.pcm.nbytes + WORD_BYTES * len(self.words)
        for speech in self.packets.values():
            size += sum(map(len, speech.payloads))
            if speech.pcm is not self.pcm:
                size += speech.pcm.nbytes
        return size

    @property
    def duration_s(self) -> float:
        return len(self.pcm) / self.sample_rate_hz

    def speech(self) -> Speech:
        """As an engine would have given it, in one piece."""
        return Speech(self.pcm, self.words, self.source)

    def encoded(self, coder_key: str) -> EncodedSpeech | None:
        """The packets of this coder, if they were made."""
        return self.packets.get(coder_key)

    def with_packets(self, speech: EncodedSpeech) -> CachedSpeech:
        """The same speech with one more coder's packets. Raises MediaError if they are of another length."""
        seconds = len(speech.pcm) / speech.sample_rate_hz
        if abs(seconds - self.duration_s) > 0.02:
            raise MediaError(f"packets of {seconds:.3f} s for speech of {self.duration_s:.3f} s")
        return replace(self, packets={**self.packets, speech.key: speech})
