"""The link within one process: for an embedded core, and as the plainest of the four to test against."""

from __future__ import annotations

import asyncio

from agent.core.link import SILENCE_S, Link

__all__ = ["InprocLink", "inproc_pair"]


class InprocLink(Link):
    """One end; make both with `inproc_pair`. What is sent is given to the other end in the next pass of the loop."""

    def __init__(self, name: str, *, silence_s: float = SILENCE_S) -> None:
        super().__init__(name, silence_s=silence_s)
        self._other: InprocLink | None = None

    def _transmit(self) -> None:
        other = self._other
        if other is not None:
            while self._waiting():
                asyncio.get_running_loop().call_soon(other._received, self._take())

    def _break(self) -> None:
        other, self._other = self._other, None
        if other is not None and other._other is self:
            # After what was transmitted, which is on its way by call_soon too.
            asyncio.get_running_loop().call_soon(other._fail, "the other side closed the link")

    async def _shut(self) -> None:
        self._break()


def inproc_pair(name: str = "inproc", *, silence_s: float = SILENCE_S) -> tuple[InprocLink, InprocLink]:
    """The edge's end and the core's end."""
    edge, core = InprocLink(name, silence_s=silence_s), InprocLink(name, silence_s=silence_s)
    edge._other, core._other = core, edge
    return edge, core
