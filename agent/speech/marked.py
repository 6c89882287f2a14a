"""Which clauses hold text that the hook marked as private. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agent.private import Private
from agent.speech.chunker import Clause, ClauseChunker

__all__ = ["MarkedChunker"]


class MarkedChunker:
    """A reply's chunker that knows which of its clauses hold a `Private` piece, or a part of one.

    The mark does not move any cut: "Your code is " and a private "4271." make one clause, and that is private.
    """

    def __init__(self, language: str = "en") -> None:
        self._chunker = ClauseChunker(language)
        self._cut_to = 0
        """Place in the source up to which there are clauses."""
        self._private: list[tuple[int, int]] = []
        """Places in the source, in order, of what is in no clause yet."""

    @property
    def language(self) -> str:
        """See ClauseChunker."""
        return self._chunker.language

    @language.setter
    def language(self, tag: str) -> None:
        self._chunker.language = tag

    @property
    def pending(self) -> str:
        """See ClauseChunker."""
        return self._chunker.pending

    def push(self, piece: str) -> list[tuple[Clause, bool]]:
        """The clauses that are now certain, each with whether it is private."""
        begin = self._cut_to + len(self._chunker.pending)
        clauses = self._chunker.push(piece)
        if isinstance(piece, Private) and (body := piece.strip()):
            # Blanks around it may go with the next clause, and tell nothing.
            end = (clauses[-1].end if clauses else self._cut_to) + len(self._chunker.pending)
            after = len(piece) - piece.index(body) - len(body)
            self._private.append((begin + piece.index(body), end - after))
        return self._marked(clauses)

    def flush(self) -> list[tuple[Clause, bool]]:
        """All that is pending, as `push` gives it."""
        return self._marked(self._chunker.flush())

    def _marked(self, clauses: Sequence[Clause]) -> list[tuple[Clause, bool]]:
        out = [(c, any(begin < c.end and c.start < end for begin, end in self._private)) for c in clauses]
        if clauses:
            self._cut_to = clauses[-1].end
            self._private = [span for span in self._private if span[1] > self._cut_to]
        return out
