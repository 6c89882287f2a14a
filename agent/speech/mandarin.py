"""How Mandarin text is read aloud: figures and signs in characters. Pure; the tables are data/zh.toml."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from agent.speech.addresses import AddressWords, read_addresses
from agent.speech.tables import table
from agent.speech.traced import TracedText

__all__ = ["read_mandarin", "spell_mandarin"]

DATA = table("zh")

MAX_INTEGER_DIGITS = 16
_DIGITS = "零一二三四五六七八九"
_CALLED = "零幺二三四五六七八九"
"""In telephone numbers and codes one is yāo, since yī is easily heard as qī."""

_ADDRESS = AddressWords("艾特", "点", "杠", "下划线", "加", "链接")


def _alt(words: Any) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


N = r"(?:\d{1,3}(?:,\d{3}){1,6}|\d+)(?:\.\d+)?"
_MEASURE = _alt(DATA["measure_words"])
_DATE = re.compile(r"(?<!\d)(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)")
_YEAR = re.compile(r"(?<!\d)(\d{4}|\d{2})(?=年(?!前|后|内|以|来|多|间))")
_MONTH_DAY = re.compile(r"(?<!\d)(\d{1,2})月(?:(\d{1,2})([日号]))?")
_TIME_SPAN = re.compile(r"(?<![\d:])(\d{1,2}:\d{2})\s?[-–~～]\s?(?=\d{1,2}:\d{2})")
_RATIO = re.compile(r"(?<![\d:])(\d{1,4}):(?=\d{1,4}(?![\d:]))")
_ROOM = re.compile(rf"(?<![\dA-Za-z.-])(\d{{3,4}})(?={_alt(DATA['room_words'])})")
_LISTED = re.compile(r"(?<=\d)\.(?=[\u4e00-\u9fff])")
_TIME = re.compile(r"(?<![\d:])(\d{1,2}):(\d{2})(?::(\d{2}))?(?![\d:])")
_PHONE = re.compile(
    r"(?<![\d.,A-Za-z-])(?:\+?86[- ]?)?(?:1[3-9]\d(?:[- ]?\d{4}){2}|[48]00[- ]?\d{3,4}[- ]?\d{3,4}"
    r"|0\d{2,3}[- ]\d{7,8}|\d{3,4}-\d{3,4}-\d{3,4})(?![\d-])"
)
_CODE = re.compile(
    rf"({_alt(DATA['code_words'])})((?:是|为|：|:|\s|#|尾号)*)((?=[A-Za-z-]{{0,8}}\d)[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*)(?!\.?\d|%)(?!\s?(?:{_MEASURE}))"
)
_LONE_CODE = re.compile(r"(?<![A-Za-z\d.-])([A-Z]{1,5}-?\d{3,}[A-Z0-9]*)")
_MONEY = re.compile(rf"(-?)({_alt(DATA['currencies'])})\s?(-?)({N})\s?([万亿])?")
_MONEY_AFTER = re.compile(rf"(?<![A-Za-z\d.])(-?)({N})\s?({_alt(DATA['currencies'])})(?![A-Za-z])")
_PERCENT = re.compile(rf"([-+−]?)({N})\s?[%％](?:\s?[-–~～到至]\s?({N})\s?[%％])?")
_PERCENT_RANGE = re.compile(rf"({N})\s?[-–~～]\s?({N})\s?[%％]")
_TEMPERATURE = re.compile(rf"([-+−]?)({N})\s?(°C|℃|°F|度)")
_UNIT = re.compile(rf"(?<![A-Za-z\d.])({N})\s?({_alt(DATA['units'])})(?![A-Za-z])")
_FRACTION = re.compile(r"(?<![\d/.])(\d{1,3})[/⁄](\d{1,3})(?![\d/])")
_RANGE = re.compile(rf"(?<![\d.A-Za-z-])({N})\s?[-–~～]\s?(?={N}(?![\d-]))")
_TWO = re.compile(rf"(?<![\d.,点第])2(?=\s?(?:{_MEASURE}))")
_DOTTED = re.compile(r"\d+(?:\.\d+){2,}")
_SIGNED = re.compile(r"(?<![\w.])([-−+])(?=\d)")
_NUMBER = re.compile(rf"{N}")
_SPACED_LETTERS = re.compile(r"(?<=[A-Za-z])(?=\d)")

_SYMBOL = re.compile(_alt(DATA["symbols"]))

_FULL_WIDTH = {ord("\uff01") + i: chr(0x21 + i) for i in range(94) if chr(0x21 + i) not in "!,:;?()"}
"""Full-width letters, figures and signs to plain ones, but not the marks that shape the melody."""

_LITTLE_NUMBERS = "①②③④⑤⑥⑦⑧⑨⑩½¼¾⅓⅔"
_DROPPED = str.maketrans(
    dict.fromkeys('《》〈〉「」『』【】〔〕“”"‘’*_`\\^{}[]#|•·', "")
    | {"（": "，", "）": "，", "(": "，", ")": "，", "→": "，", "/": " "}
)


def read_mandarin(draft: TracedText) -> None:
    """Put every figure and sign in characters; Latin words stay. Markup must be gone already."""
    draft.translate(_FULL_WIDTH)
    draft.map(lambda char: unicodedata.normalize("NFKC", char) if char in _LITTLE_NUMBERS else char)
    read_addresses(draft, _ADDRESS, DATA["top_domains"], spell_mandarin)
    draft.sub(_DATE, lambda m: f"{_spell(m[1])}年{_cardinal(m[2])}月{_cardinal(m[3])}日")
    draft.sub(_PHONE, lambda m: "，".join(spell_mandarin(g) for g in re.findall(r"\d+", m.group())))
    draft.sub(_CODE, lambda m: m.group() if m[3].isdigit() and len(m[3]) > 16 else m[1] + m[2] + _code(m[3]))
    draft.sub(_LONE_CODE, lambda m: _code(m[1]))
    draft.sub(_ROOM, lambda m: spell_mandarin(m[1]))
    draft.sub(_LISTED, "，")
    draft.sub(_PERCENT_RANGE, lambda m: f"百分之{_say(m[1])}到百分之{_say(m[2])}")
    draft.sub(_TIME_SPAN, r"\1到")
    draft.sub(_RANGE, r"\1到")
    draft.sub(_YEAR, lambda m: _spell(m[1]))
    draft.sub(_MONTH_DAY, lambda m: f"{_cardinal(m[1])}月" + (f"{_cardinal(m[2])}{m[3]}" if m[2] else ""))
    draft.sub(_TIME, _time)
    draft.sub(_RATIO, r"\1比")
    draft.sub(_MONEY, _money)
    draft.sub(_MONEY_AFTER, _money_after)
    draft.sub(_PERCENT, _percent)
    draft.sub(_TEMPERATURE, _temperature)
    draft.sub(_UNIT, lambda m: _say(m[1]) + DATA["units"][m[2]])
    draft.sub(_FRACTION, lambda m: f"{_cardinal(m[2])}分之{_cardinal(m[1])}")
    draft.sub(_DOTTED, lambda m: "点".join(_cardinal(p) for p in m.group().split(".")))
    draft.sub(_TWO, "两")
    draft.sub(_SIGNED, lambda m: "正" if m[1] == "+" else "负")
    draft.sub(_SPACED_LETTERS, " ")
    draft.sub(_NUMBER, lambda m: _say(m.group()))
    draft.sub(_SYMBOL, lambda m: str(DATA["symbols"][m.group()]))
    draft.translate(_DROPPED)


def _spell(digits: str) -> str:
    return "".join(_DIGITS[int(d)] for d in digits)


def spell_mandarin(digits: str) -> str:
    """Digits one by one, one as yāo."""
    return "".join(_CALLED[int(d)] for d in digits)


def _code(code: str) -> str:
    return "".join(
        spell_mandarin(run) if run.isdigit() else " ".join(run) for run in re.findall(r"\d+|[A-Za-z]+", code)
    )


def _cardinal(digits: str) -> str:
    """A whole number in characters; one with leading zeros, or of more than 16 figures, figure by figure."""
    digits = digits.replace(",", "")
    if len(digits) > MAX_INTEGER_DIGITS or (len(digits) > 2 and digits.startswith("0")):
        return _spell(digits)
    value = int(digits)
    if value == 0:
        return "零"
    groups: list[int] = []
    while value:
        value, group = divmod(value, 10_000)
        groups.append(group)
    said = ""
    gap = False
    for place in range(len(groups) - 1, -1, -1):
        group = groups[place]
        if group == 0:
            gap = bool(said)
            continue
        if said and (gap or group < 1000):
            said += "零"
        said += ("两" if group == 2 and place else _group(group)) + ("", "万", "亿", "万亿")[place]
        gap = False
    return said.removeprefix("一") if said.startswith("一十") else said


def _group(value: int) -> str:
    said = ""
    gap = False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, value = divmod(value, unit)
        if digit:
            said += ("零" if gap and said else "") + ("两" if digit == 2 and unit == 1000 else _DIGITS[digit]) + name
            gap = False
        else:
            gap = True
    return said


def _say(number: str) -> str:
    whole, _, decimals = number.replace(",", "").partition(".")
    return _cardinal(whole) + (f"点{_spell(decimals)}" if decimals else "")


def _time(m: re.Match[str]) -> str:
    hour, minute = int(m[1]), int(m[2])
    if hour > 24 or minute > 59:
        return m.group()
    said = ("两" if hour == 2 else _cardinal(m[1])) + "点"
    if minute == 30 and not m[3]:
        said += "半"
    elif minute:
        said += ("零" if minute < 10 else "") + _cardinal(str(minute)) + "分"
    elif not m[3]:
        said += "整" if not m.string[m.end() :].startswith("整") else ""
    return said + (f"{_cardinal(m[3])}秒" if m[3] else "")


def _money(m: re.Match[str]) -> str:
    minus = "负" if m[1] or m[3] else ""
    unit = DATA["currencies"][m[2]]
    after = m.string[m.end() :].startswith(unit)
    return f"{minus}{_say(m[4].rstrip('0').rstrip('.') if '.' in m[4] else m[4])}{m[5] or ''}{'' if after else unit}"


def _money_after(m: re.Match[str]) -> str:
    return f"{'负' if m[1] else ''}{_say(m[2])}{DATA['currencies'][m[3]]}"


def _percent(m: re.Match[str]) -> str:
    sign = {"": "", "+": "正"}.get(m[1], "负")
    return f"{sign}百分之{_say(m[2])}" + (f"到百分之{_say(m[3])}" if m[3] else "")


def _temperature(m: re.Match[str]) -> str:
    unit = DATA["units"].get(m[3], m[3])
    sign = {"": "", "+": "零上"}.get(m[1], "零下")
    return f"{sign}{_say(m[2])}{unit}"
