"""What a language's words say about the end of a turn: the shape of the tables. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

from agent.asr.agreement import split_words

__all__ = ["WordTables", "phrases"]

Phrases = frozenset[tuple[str, ...]]


def phrases(text: str) -> Phrases:
    """Comma-separated phrases as tuples of words; an unspaced script gives one word a character."""
    return frozenset(tuple(split_words(phrase)) for phrase in text.split(",") if phrase.strip())


@dataclass(frozen=True, slots=True)
class WordTables:
    """One language. All words are lower case, without punctuation but the apostrophe."""

    fillers: Phrases
    """At the end: the speaker is looking for words."""
    open_words: Phrases
    """At the end: something must follow."""
    half_open_words: Phrases
    """At the end: something follows more often than not."""
    open_phrases: Phrases
    """At the end: what was announced follows."""
    answers: Phrases
    """As the whole text: a complete answer, greeting or command."""
    closers: Phrases
    """At the end: nothing more is needed."""
    subordinators: Phrases
    """A sentence that begins so has a main clause to come."""
    yes_no_openers: Phrases
    """A question that begins so is answered by yes or no."""
    yes_no_endings: Phrases
    """A question that ends so is answered by yes or no."""
    question_openers: Phrases
    """The caller's own question or command begins so."""
    number_asked: Phrases
    """In the agent's question: digits are wanted."""
    name_asked: Phrases
    """In the agent's question: a name is wanted."""
    spelling_asked: Phrases
    """In the agent's question: letters are wanted."""
