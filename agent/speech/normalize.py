"""What a voice should read: markup out, figures and signs in words, marks kept for the melody. Pure.

English and Mandarin have rules of their own, other languages a table; a language without one keeps its figures, which
its engine reads.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from agent.language import primary_language
from agent.speech.addresses import AddressWords, read_addresses
from agent.speech.bytable import table_reader
from agent.speech.english import read_english, spell_english
from agent.speech.mandarin import read_mandarin, spell_mandarin
from agent.speech.markup import restore_tags, strip_markup
from agent.speech.tables import table
from agent.speech.traced import SpokenWord, TracedText, words_of

__all__ = ["SpokenText", "normalize", "read_aloud"]

MAX_COMBINING = 2
"""Accents one letter may carry; more is decoration that no voice can read."""

WINDOW_CHARS = 600
"""Longer texts are read in parts of about this many characters, cut at blanks: so time grows with length, not with
its square, whatever the text holds. A clause is seldom longer."""

_COMBINING = re.compile(rf"([\u0300-\u036f]{{{MAX_COMBINING}}})[\u0300-\u036f]+")
_ENDLESS_DIGITS = re.compile(r"\d{19,}")
"""Longer than any number with a name; read one by one."""

_LAST_PARENTHESIS = re.compile(r"[)）](?=[\s\"'”’.!?。！？]*\Z)")
_LINE_END = re.compile(r"([^\s.!?…。！？,，;；:：、—-])[^\S\n]*\n\s*(?=\S)")
_WINDOW = re.compile(rf"[\s\S]{{1,{WINDOW_CHARS}}}(?:(?=\s)|\Z)|[\s\S]{{1,{WINDOW_CHARS}}}")
_DASH = re.compile(r"\s+[-–—]+\s+|—+|--+")
_LONE_HYPHEN = re.compile(r"(?<!\w)-+|-+(?!\w)")
_BLANKS = re.compile(r"\s+")
_ELLIPSIS = re.compile(r"\.{2,}|。{2,}|…{2,}")
_MARK_RUN = re.compile(r"([!?！？])[!?！？.。]+")
_MARK_SPACE = re.compile(r"\s+([,.;:!?…，。！？；：、])")
_COMMA_RUN = re.compile(r"([,，])(?:\s*[,，])+")
_COMMA_BEFORE_MARK = re.compile(r"[,，]\s*(?=[.;:!?。！？；：、…])")
_COMMA_BEHIND_MARK = re.compile(r"(?<=[.;:!?。！？；：、…])\s*[,，]")
_LEADING = re.compile(r"^[\s,.;:!?，。！？；：、…—-]+")
_HAN_GAP = re.compile(r"(?<=[\u3040-\u30ff\u4e00-\u9fff，。！？；：、])\s+(?=[\u3040-\u30ff\u4e00-\u9fff])")
_NEVER_READ = str.maketrans(dict.fromkeys("<>[]{}|｜#*_^~\\№", " ") | {"`": "", "“": "", "”": "", '"': ""})
"""No engine gets these, whatever the language: to some they are commands."""


@dataclass(frozen=True, slots=True)
class SpokenText:
    """What an engine is to read, word by word with the source of each. Empty when there is nothing to say."""

    text: str
    words: tuple[SpokenWord, ...] = ()


def normalize(text: str, language: str, tags: Collection[str] = ()) -> str:
    """What the engine should read for `text`; empty when there is nothing to say. See `read_aloud`."""
    return _read(text, language, tags).text


def read_aloud(text: str, language: str, tags: Collection[str] = (), offset: int = 0) -> SpokenText:
    """What the engine should read for `text`, and where each of its words comes from.

    Args:
        text: a clause as the hook wrote it; may hold markdown, emoji, control tokens, anything.
        language: BCP 47 tag; the rules go by its first part.
        tags: names of `[tags]` (in lower case) that the engine knows and gets; all others are dropped.
        offset: added to the places in `text`, which the words name.
    """
    draft = _read(text, language, tags)
    return SpokenText(draft.text, words_of(draft, offset))


def _read(text: str, language: str, tags: Collection[str]) -> TracedText:
    tag = primary_language(language)
    draft = TracedText(text)
    kept = strip_markup(draft, table(tag).get("heart", ""), tags)
    draft.sub(_COMBINING, r"\1")
    draft.sub(_LAST_PARENTHESIS, "")
    draft.sub(_LINE_END, r"\1, ")
    ends = [m.end() for m in _WINDOW.finditer(draft.text)]
    if len(ends) < 2:
        _read_window(draft, tag)
    else:
        whole = TracedText("")
        for window in draft.pieces(ends):
            _read_window(window, tag)
            whole.append(window, " ")
        draft = whole
    if not kept and not any(char.isalnum() for char in draft.text):
        draft.clear()
    restore_tags(draft, kept)
    return draft


def _read_window(draft: TracedText, tag: str) -> None:
    reader = table_reader(tag)
    spell = spell_mandarin if tag == "zh" else reader.spell if reader else spell_english if tag == "en" else None
    if spell is not None:
        draft.sub(_ENDLESS_DIGITS, lambda m: f" {spell(m.group())} ")
    if tag == "en":
        read_english(draft)
    elif tag == "zh":
        read_mandarin(draft)
    elif reader is not None:
        reader.read(draft)
    else:
        read_addresses(draft, AddressWords(**table(tag)["address"]), table("en")["top_domains"], str)
    draft.sub(_DASH, ", ")
    if spell is not None:
        draft.sub(_LONE_HYPHEN, " ")
    draft.translate(_NEVER_READ)
    draft.sub(_BLANKS, " ")
    draft.sub(_ELLIPSIS, "…")
    draft.sub(_MARK_RUN, _one_mark)
    draft.sub(_MARK_SPACE, r"\1")
    draft.sub(_COMMA_RUN, r"\1")
    draft.sub(_COMMA_BEFORE_MARK, "")
    draft.sub(_COMMA_BEHIND_MARK, "")
    draft.sub(_LEADING, "")
    if tag in ("zh", "ja"):
        draft.sub(_HAN_GAP, "")
    draft.strip()


def _one_mark(m: re.Match[str]) -> str:
    return "?" if "?" in m.group() else "？" if "？" in m.group() else m[1]
