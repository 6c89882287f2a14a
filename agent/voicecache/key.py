"""What makes two clauses the same sound. Pure."""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass

from agent.asr.protocol import EngineInfo
from agent.tts.protocol import Style, Voice

__all__ = ["KEY_BYTES", "SpeechKey", "normalised", "speech_key"]

KEY_BYTES = 20
"""160 bits: no two texts of this world collide."""

_DOMAIN = b"rejoinder speech 1"


@dataclass(frozen=True, slots=True)
class SpeechKey:
    """Names one sound. `digest` is all that leaves the process when the text is not to."""

    digest: bytes
    """blake2b, 20 bytes."""

    @property
    def hex(self) -> str:
        """40 hexadecimal digits, for files and Redis."""
        return self.digest.hex()


def normalised(text: str) -> str:
    """Text as it counts for the key: NFC, blanks folded. Case and marks stay, since they are heard."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def speech_key(text: str, voice: Voice, style: Style, engine: EngineInfo) -> SpeechKey:
    """The key of `text` (as the engine reads it) in this voice and style by this engine and version.

    PCM is kept at the engine's rate, which is part of the key; packets lie beside it, by the coder's own key.
    """
    digest = hashlib.blake2b(_DOMAIN, digest_size=KEY_BYTES)
    for part in (
        normalised(text),
        voice.name,
        voice.language,
        f"{style.rate:.4f}",
        style.instruction,
        engine.name,
        engine.version,
        str(engine.sample_rate_hz),
    ):
        # The length first, so that no two lists of parts read the same.
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4, "little"))
        digest.update(data)
    return SpeechKey(digest.digest())
