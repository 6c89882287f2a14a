"""Takes what is meant for the eye out of a text: markdown, tables, code marks, HTML tags, emoji. Pure."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Collection
from pathlib import Path
from typing import Any

from agent.speech.traced import TracedText

__all__ = ["CONTROL", "CONTROL_BEGUN", "STAGE_TAG", "restore_tags", "strip_markup"]

_DATA: dict[str, Any] = tomllib.loads((Path(__file__).parent / "data" / "markup.toml").read_text(encoding="utf-8"))

CONTROL = re.compile(r"[<＜][|｜][^|｜<>＜＞\n]{0,64}[|｜][>＞]")
"""A control token of a language model; some write it with full-width bars."""
CONTROL_BEGUN = re.compile(r"[<＜](?:[|｜][^|｜<>＜＞\n]{0,64}[|｜]?)?\Z")
STAGE_TAG = re.compile(r"\[/?[A-Za-z][\w \-=:.'/]{0,40}\]|\[[\u4e00-\u9fff]{1,6}\](?!\()")
"""A direction for a voice: `[laughter]`, `[pause 500ms]`, `[笑声]`."""

_BROKEN_CONTROL = re.compile(r"[<＜][|｜][\w▁]{0,64}(?:[|｜][>＞]?)?")
_COMMENT = re.compile(r"<!--.{0,500}?-->", re.DOTALL)
_FENCED = re.compile(
    r"^[^\S\n]{0,3}(?:```[^\n]*\n.*?(?:^[^\S\n]{0,3}```|\Z)|~~~[^\n]*\n.*?(?:^[^\S\n]{0,3}~~~|\Z))", re.M | re.S
)
_LINK = re.compile(r"!?\[([^\[\]\n]{0,300})\]\([^()\s]{0,600}(?:\s+\"[^\"\n]{0,200}\")?\)")
_FOOTNOTE = re.compile(r"\[\^?\d{1,3}\]")
_HTML = re.compile(rf"</?(?:{'|'.join(map(re.escape, _DATA['elements']))})(?:\s[^<>\n]{{0,200}})?/?>", re.I)
_RULE_LINE = re.compile(r"^[^\S\n]?(?:[-*_=][^\S\n]?){3,}$", re.M)
_TABLE_RULE = re.compile(
    r"^(?=[^-\n]{0,4}-)[^\S\n]?\|?[^\S\n]?:?-{2,}:?[^\S\n]?(?:\|[^\S\n]?:?-{2,}:?[^\S\n]?)*\|?[^\S\n]?$", re.M
)
_LINE_HEAD = re.compile(r"^[^\S\n]?(?:>[^\S\n]?)*(?:(?:#{1,6}[^\S\n]|[-*+•◦▪][^\S\n](?:\[[ xX]\][^\S\n])?))?", re.M)
_HEADING_TAIL = re.compile(r"(?<=\w)[^\S\n]#+[^\S\n]?$", re.M)
_NUMBERED = re.compile(r"^([^\S\n]?\d{1,3})[.)][^\S\n](?=\S)", re.M)
_STRONG = re.compile(r"\*{2,}|_{2,}|~~+|`+")
_STAR = re.compile(r"(?<![\w*])\*(?=[^\s*\d])|(?<=[^\s*])\*(?![\w*])|(?<=\w)\*(?=\W|$)")
_UNDERLINE = re.compile(r"(?<!\w)_(?=\w)|(?<=\w)_(?!\w)")
_ESCAPE = re.compile(r"\\([\\`*_{}\[\]()#+\-.!|>~])")
_HEART = re.compile(r"(?:(?<=[A-Za-z])[^\S\n]|^)<3(?![\d.])", re.M)
_EMOTICON = re.compile(r"(?<!\S)[:;=][-o']?[()DPp|](?![\w(])")
_EDGE_BARS = re.compile(r"^[^\S\n]?\|(?:[^\S\n]?\|)*|(?:\|[^\S\n]?)+$", re.M)
_BARS = re.compile(r"[^\S\n]?\|(?:[^\S\n]?\|)*[^\S\n]?")
_REPEATED = re.compile(r"([^\w\s])\1{7,}")
_BLANKS = re.compile(r"[^\S\n]{2,}")
_BLANK_LINES = re.compile(r"\n\s*\n")
_BREAKS = re.compile(r"\r\n?|[\u2028\u2029\x85]")

_KEPT_SYMBOLS = frozenset(_DATA["kept_symbols"])
_FIRST_KEPT_TAG = 0xE000
"""Kept tags stand as private-use characters while the rules run; the text's own ones are gone by then."""


def strip_markup(draft: TracedText, heart: str = "heart", tags: Collection[str] = ()) -> list[str]:
    """Leave the words of a text, one line a line; a table's cells are set apart by commas.

    Control tokens `<|...|>`, `[tags]`, link targets, fenced code, comments, known HTML tags, emoji and unprintable
    characters are dropped. `5 < 10` and `<3` are no markup.

    Args:
        heart: the word for `<3`.
        tags: names of `[tags]` that the engine knows; they stay, for `restore_tags`.

    Returns:
        The tags that were kept, in the order of their stand-ins.
    """
    draft.sub(_BREAKS, "\n")
    # First, so that a character that cannot be seen hides no mark.
    draft.map(_printable)
    draft.sub(_REPEATED, r"\1\1\1")
    draft.sub(_BLANKS, " ")
    draft.sub(_BLANK_LINES, "\n")
    draft.compose()
    for pattern in (_FENCED, _COMMENT, CONTROL, _BROKEN_CONTROL):
        draft.sub(pattern, " ")
    kept: list[str] = []

    def tag(m: re.Match[str]) -> str:
        if m.group()[1:-1].lower() not in tags or len(kept) > 0xFF:
            return " "
        kept.append(m.group())
        return chr(_FIRST_KEPT_TAG + len(kept) - 1)

    draft.sub(_LINK, r"\1")
    draft.sub(STAGE_TAG, tag)
    draft.sub(_FOOTNOTE, "")
    draft.sub(_HTML, " ")
    draft.sub(_BLANKS, " ")
    draft.sub(_RULE_LINE, "")
    draft.sub(_TABLE_RULE, "")
    draft.sub(_LINE_HEAD, "")
    draft.sub(_HEADING_TAIL, "")
    draft.sub(_NUMBERED, r"\1, ")
    draft.sub(_ESCAPE, r"\1")
    draft.sub(_HEART, f" {heart}")
    draft.sub(_EMOTICON, "")
    for pattern in (_STRONG, _STAR, _UNDERLINE, _EDGE_BARS):
        draft.sub(pattern, "")
    draft.sub(_BARS, ", ")
    return kept


def restore_tags(draft: TracedText, kept: list[str]) -> None:
    """Put the kept tags back for their stand-ins."""
    draft.translate({_FIRST_KEPT_TAG + index: tag for index, tag in enumerate(kept)})


def _printable(char: str) -> str:
    category = unicodedata.category(char)
    if char == "\n":
        return char
    if category in ("Cc", "Zs", "Zl", "Zp") or (category == "So" and char not in _KEPT_SYMBOLS):
        return " "
    # Variation selectors and skin tones only shape the emoji before them.
    gone = (
        category in ("Cf", "Cs", "Co", "Cn", "Me")
        or "\ufe00" <= char <= "\ufe0f"
        or "\U0001f3fb" <= char <= "\U0001f3ff"
    )
    return "" if gone else char
