"""The media port of a bridge: plain PCM, whose protocol has no way to send keys."""

from __future__ import annotations

from agent.errors import MediaError
from agent.media.pcm import PcmPort

__all__ = ["BridgePort"]


class BridgePort(PcmPort):
    """Implements MediaPort."""

    def send_dtmf(self, digits: str) -> None:  # noqa: ARG002  (the protocol's signature)
        """Raises MediaError: none of the bridged protocols carries keys to the telephone."""
        raise MediaError("keys cannot be sent over a bridge: its protocol has no message for them")
