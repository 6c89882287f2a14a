"""From the words of a clause that were heard back to the text that the hook wrote. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agent.asr.protocol import Word
from agent.speech.chunker import Clause

__all__ = ["heard_to"]


def heard_to(clause: Clause, words: Sequence[Word], played_s: float, length_s: float) -> int:
    """Index into `clause.text` up to which it was heard; never behind a source word of which a part was not.

    Args:
        words: as the engine told them so far, in order, timed from the clause's start. They name words of
            `clause.spoken`, split the engine's way. Without any, words are taken to be spread evenly.
        played_s: how much of the clause was heard. A word counts once its middle was.
        length_s: of the whole clause, as far as that is known.
    """
    if not words:
        share = min(1.0, played_s / length_s) if length_s > 0 else 0.0
        return clause.source_after(int(len(clause.words) * share + 1e-9)) - clause.start
    count = sum((word.start_s + word.end_s) / 2 <= played_s for word in words)
    chars = _spoken_to(clause.spoken, words[:count])
    if chars is None:
        # An engine that rewrites its text: words by their number.
        return clause.source_after(len(clause.words) * count // max(len(words), len(clause.words))) - clause.start
    return clause.source_after_chars(chars) - clause.start


def _spoken_to(spoken: str, words: Sequence[Word]) -> int | None:
    """Characters of `spoken` that these words and the marks behind the last one cover; None if they are not in it."""
    folded, at = spoken.lower(), 0
    if len(folded) != len(spoken):
        folded = spoken
    for word in words:
        text = word.text.strip()
        found = folded.find(text.lower() if folded is not spoken else text, at)
        if found < 0:
            return None
        at = found + len(text)
    while words and at < len(spoken) and not spoken[at].isspace() and not spoken[at].isalnum():
        at += 1
    return at
