"""What a voice should read: markup out, figures and signs in words, marks kept for the melody. Pure.

English and Mandarin have rules of their own; other languages keep their figures, which their engines read.
"""

from __future__ import annotations

import re
import unicodedata

from agent.language import primary_language
from agent.speech.addresses import AddressWords, read_addresses
from agent.speech.english import DATA, read_english, spell_english
from agent.speech.mandarin import read_mandarin, spell_mandarin
from agent.speech.markup import strip_markup

__all__ = ["normalize"]

MAX_COMBINING = 2
"""Accents one letter may carry; more is decoration that no voice can read."""

_COMBINING = re.compile(rf"([\u0300-\u036f]{{{MAX_COMBINING}}})[\u0300-\u036f]+")
_REPEATED = re.compile(r"([^\w\s])\1{7,}")
_BLANKS = re.compile(r"[^\S\n]{2,}")
_EMPTY_LINES = re.compile(r"\n\s*\n")
_ENDLESS_DIGITS = re.compile(r"\d{19,}")
"""Longer than any number with a name; read one by one. Folding all these first keeps every later rule linear."""

_LINE_END = re.compile(r"([^\s.!?…。！？,，;；:：、—-])[^\S\n]*\n\s*(?=\S)")
_MARK_RUN = re.compile(r"([!?！？])[!?！？.。]+")
_ELLIPSIS = re.compile(r"\.{2,}|。{2,}|…{2,}")
_MARK_SPACE = re.compile(r"\s+([,.;:!?…，。！？；：、])")
_COMMAS = re.compile(r"(?:[,，]\s*)+([,，.;:!?。！？；：、…])")
_COMMAS_BEFORE = re.compile(r"([.;:!?。！？；：、…，])(?:\s*[,，])+")
_LEADING = re.compile(r"^[\s,.;:!?，。！？；：、…—-]+")
_DASH = re.compile(r"\s+[-–—]+\s+|—+|--+")
_LONE_HYPHEN = re.compile(r"(?<!\w)-+|-+(?!\w)")
_HAN_GAP = re.compile(r"(?<=[\u4e00-\u9fff，。！？；：、])\s+(?=[\u4e00-\u9fff])")

_OTHER = AddressWords("@", ".", "-", "_", "+", "")


def normalize(text: str, language: str) -> str:
    """What the engine should read for `text`; empty when there is nothing to say.

    Args:
        text: a clause as the hook wrote it; may hold markdown, emoji, control tokens, anything.
        language: BCP 47 tag; the rules go by its first part.
    """
    tag = primary_language(language)
    text = _EMPTY_LINES.sub("\n", _BLANKS.sub(" ", _REPEATED.sub(r"\1\1\1", text)))
    text = _COMBINING.sub(r"\1", unicodedata.normalize("NFC", strip_markup(text)))
    text = _LINE_END.sub(r"\1, ", text)
    text = _ENDLESS_DIGITS.sub(
        lambda m: " " + (spell_mandarin if tag == "zh" else spell_english)(m.group()) + " ", text
    )
    if tag == "en":
        text = read_english(text)
    elif tag == "zh":
        text = read_mandarin(text)
    else:
        text = read_addresses(text, _OTHER, DATA["top_domains"], str)
    text = _DASH.sub(", ", text)
    if tag in ("en", "zh"):
        text = _LONE_HYPHEN.sub(" ", text)
    text = _ELLIPSIS.sub("…", text)
    text = _MARK_RUN.sub(_one_mark, text)
    text = _MARK_SPACE.sub(r"\1", text)
    text = _COMMAS_BEFORE.sub(r"\1", _COMMAS.sub(r"\1", text))
    text = " ".join(_LEADING.sub("", text).split())
    if tag == "zh":
        text = _HAN_GAP.sub("", text)
    return text if any(c.isalnum() for c in text) else ""


def _one_mark(m: re.Match[str]) -> str:
    return "?" if "?" in m.group() else "？" if "？" in m.group() else m[1]
