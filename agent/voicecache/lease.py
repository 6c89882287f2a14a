"""The right to make one entry, among all processes that share a Redis."""

from __future__ import annotations

from dataclasses import dataclass

from agent.voicecache.key import SpeechKey

__all__ = ["Lease"]


@dataclass(frozen=True, slots=True)
class Lease:
    """`token` is empty when another process holds it."""

    key: SpeechKey
    token: str

    @property
    def ours(self) -> bool:
        """Whether this process may, and is to give it back."""
        return bool(self.token)
