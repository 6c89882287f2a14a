"""Takes what is meant for the eye out of a text: markdown, tables, code marks, HTML tags, emoji. Pure."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["strip_markup"]

_CONTROL = re.compile(r"<\|[^|<>]{0,64}\|>")
_COMMENT = re.compile(r"<!--.{0,2000}?-->", re.DOTALL)
_FENCED = re.compile(r"```[^\n]*\n.*?(?:```|\Z)|~~~[^\n]*\n.*?(?:~~~|\Z)", re.DOTALL)
_LINK = re.compile(r"!?\[([^\[\]\n]{0,300})\]\(([^()\s]{0,600}(?:\s+\"[^\"\n]*\")?)\)")
_TAG = re.compile(r"\[/?[A-Za-z][A-Za-z_\- ]{0,30}\]")
_FOOTNOTE = re.compile(r"\[\^?\d{1,3}\]")
_HTML = re.compile(
    r"</?(?:[abiupqs]|br|hr|em|strong|code|pre|sub|sup|span|div|ul|ol|li|h[1-6]|img|table|tr|td|th|tbody|thead|font|"
    r"small|del|mark|blockquote|speak|break|prosody|voice)(?:\s[^<>\n]{0,200})?/?>",
    re.I,
)
_RULE_LINE = re.compile(r"^\s*(?:[-*_=]\s*){3,}$")
_TABLE_RULE = re.compile(r"^\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*$")
_LINE_HEAD = re.compile(r"^\s*(?:>\s?)*\s*(?:#{1,6}\s+|[-*+•◦▪]\s+(?:\[[ xX]\]\s+)?)")
_HEADING_TAIL = re.compile(r"\s#+\s*$")
_NUMBERED = re.compile(r"^(\s*\d{1,3})[.)]\s+(?=\S)")
_STRONG = re.compile(r"\*{2,}|_{2,}|~~+|`+")
_STAR = re.compile(r"(?<![\w*])\*(?=[^\s*\d])|(?<=[^\s*])\*(?![\w*])|(?<=\w)\*(?=\W|$)")
_UNDERLINE = re.compile(r"(?<!\w)_(?=\w)|(?<=\w)_(?!\w)")
_ESCAPE = re.compile(r"\\([\\`*_{}\[\]()#+\-.!|>~])")
_HEART = re.compile(r"(?<=[A-Za-z]) <3(?![\d.])|^<3(?![\d.])")

_KEPT_SYMBOLS = frozenset("°℃℉№℡")
"""Category So, yet read."""


def strip_markup(text: str) -> str:
    """The words of a text, one line a line; a table's cells are set apart by commas.

    Control tokens `<|...|>`, `[tags]`, link targets, fenced code, comments, known HTML tags, emoji and unprintable
    characters are dropped. `5 < 10` and `<3` are no markup.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _CONTROL.sub(" ", _COMMENT.sub(" ", _FENCED.sub(" ", text)))
    text = _FOOTNOTE.sub("", _TAG.sub(" ", _LINK.sub(r"\1", text)))
    text = _HTML.sub(" ", text)
    lines = [_line(line) for line in text.split("\n") if not (_RULE_LINE.match(line) or _is_table_rule(line))]
    return _printable("\n".join(lines))


def _is_table_rule(line: str) -> bool:
    return bool("-" in line and _TABLE_RULE.match(line))


def _line(line: str) -> str:
    line = _LINE_HEAD.sub("", line)
    line = _HEADING_TAIL.sub("", line)
    line = _NUMBERED.sub(r"\1, ", line)
    line = _ESCAPE.sub(r"\1", line)
    line = _HEART.sub(" heart", line)
    line = _STRONG.sub("", line)
    line = _STAR.sub("", line)
    line = _UNDERLINE.sub("", line)
    if "|" in line:
        cells = [cell.strip() for cell in line.split("|")]
        line = ", ".join(cell for cell in cells if cell)
    return line


def _printable(text: str) -> str:
    out: list[str] = []
    for char in text:
        category = unicodedata.category(char)
        if char == "\n":
            out.append(char)
        elif category in ("Cc", "Zs", "Zl", "Zp") or (category == "So" and char not in _KEPT_SYMBOLS):
            out.append(" ")
        elif category not in ("Cf", "Cs", "Co", "Cn", "Me") and not _is_selector(char):
            out.append(char)
    return "".join(out)


def _is_selector(char: str) -> bool:
    """Variation selectors and skin tones, which only shape the emoji before them."""
    return "\ufe00" <= char <= "\ufe0f" or "\U0001f3fb" <= char <= "\U0001f3ff"
