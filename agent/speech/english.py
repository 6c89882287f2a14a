"""How English text is read aloud: numbers, money, dates, codes and signs as words. Pure; the tables are data/en.toml.

Rules run in order, each over the whole text; what one has written in words no later rule takes for figures.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from num2words import num2words

from agent.speech.addresses import AddressWords, read_addresses
from agent.speech.tables import table
from agent.speech.traced import TracedText

__all__ = ["DATA", "read_english", "spell_english"]

DATA = table("en")

MAX_INTEGER_DIGITS = 15
"""Longer numbers are codes; num2words ends at 10^306 anyhow."""

_ADDRESS = AddressWords("at", "dot", "dash", "underscore", "plus", "the link")


def _alt(words: Any) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_MONTH_OF = {name.lower(): name for name in DATA["months"]} | {
    short.rstrip(".").lower(): name for short, name in DATA["month_abbreviations"].items()
}
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

N = r"(?:\d{1,3}(?:,\d{3}){1,6}|\d+)(?:\.\d+)?"
_M = rf"(?:{_alt(DATA['months'])}|{_alt(s.rstrip('.') for s in DATA['month_abbreviations'])})\b\.?"
_CODE_WORD = rf"(?:{_alt({*DATA['code_words'], *(w.capitalize() for w in DATA['code_words'])})})"
_SCALE = rf"(?:\s?(hundred|{_alt(DATA['scales'])})\b)?"
_CUR = _alt(DATA["currencies"])

_ISO_DATE = re.compile(r"(?<![\w-])(\d{4})-(\d{2})-(\d{2})(?:T[\d:.]+Z?)?(?![\w-])")
_US_DATE = re.compile(r"(?<![\w/.])(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})(?![\w/])")
_SHORT_DATE = re.compile(rf"\b({_alt(DATA['before_dates'])})\s(\d{{1,2}})/(\d{{1,2}})(?![\w/])")
_MONTH_DAY = re.compile(rf"\b({_M})\s+(\d{{1,2}})(?:st|nd|rd|th)?(?![\w:%.]*\d|\w)(?:,?\s+(\d{{4}})\b)?")
_DAY_MONTH = re.compile(rf"\b(the\s+)?(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_M})(?:,?\s+(\d{{4}})\b)?")
_MONTH_YEAR = re.compile(rf"\b({_M}),?\s+(\d{{4}})\b")
_TIME = re.compile(r"(?<![\w:.])(\d{1,2}):(\d{2})(?::(\d{2}))?(?:\s?([AaPp])\.?\s?[Mm]\b(\.)?)?(?![\w:])")
_HOUR = re.compile(r"(?<![\w:.,])(\d{1,2})\s?([AaPp])(?:\.\s?[Mm]\.|[Mm]\b(\.)?)")
_PHONE = re.compile(
    r"(?<![\w.,/$-])(?:\+?\(?\d{1,4}\)?[ .-])?\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?![\w-])"
    r"|(?<![\w.,/$-])\d{3}-\d{4}(?![\w-])"
    r"|(?<![\w.,/$-])\+\d{1,3}(?:[ .-]?\(?\d{1,5}\)?){2,6}(?![\w-])"
    r"|(?<![\w.,/$-])0\d{2,4}[ -]\d{3,4}(?:[ -]\d{3,4})?(?![\w-])"
    r"|(?<![\w.,/$-])\d{3,4}-\d{3,4}-\d{3,4}(?![\w-])"
)
_CODE = re.compile(
    rf"\b({_CODE_WORD})"
    r"((?:\s+(?:number|numbers|no\.?|num|id|ID|code))?(?:\s+(?:is|are|was|ending in|ends in))?\s*[:#]?\s*#?)"
    r"(?<=[\s:#])((?=[A-Za-z-]{0,8}\d)[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*)\b(?![.,]\d)"
)
_HASH_CODE = re.compile(r"(?<!\w)#\s?((?=[A-Za-z-]{0,8}\d)[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*)\b")
_LONE_CODE = re.compile(r"(?<![\w.-])([A-Z]{1,5}-?\d{3,}[A-Z0-9]*(?:-[A-Z0-9]+)*)\b")
_MONEY = re.compile(rf"(?<![\w.])([-−]\s?)?({_CUR})\s?(-?)({N}){_SCALE}(?:\s?[-–]\s?(?:{_CUR})?\s?({N}){_SCALE})?")
_MONEY_AFTER = re.compile(
    rf"(?<![\w.,])(-?)({N})\s?({_alt(c for c in DATA['currencies'] if c not in ('$', 'A$', 'C$'))})(?!\w)"
)
_CENTS = re.compile(rf"(?<![\w.])({N})\s?¢")
_PERCENT_RANGE = re.compile(rf"(?<![\w.])({N})\s?%?\s?[-–]\s?({N})\s?%")
_PERCENT = re.compile(rf"({N})\s?[%％]")
_DEGREES = re.compile(rf"({N})\s?°\s?([CFK])?(?![a-z])")
_UNIT = re.compile(rf"(?<![\w.])({N})\s?({_alt(DATA['units'])})(?![\w/])")
_AROUND_THE_CLOCK = re.compile(r"(?<![\w/])24/7(?![\w/])")
_FRACTION = re.compile(r"(?<![\w./])(?:(\d{1,4})\s)?(\d{1,3})[/⁄](\d{1,4})(?![\w/])")
_POWER = re.compile(r"(?<=[A-Za-z0-9)])([²³])")
_AREA = re.compile(rf"(?<![\w.])({N})\s?({_alt(DATA['units'])})([²³])")
_TO_THE_POWER = re.compile(r"(?<=\d)\^(?=\d)")
_FEET = re.compile(r"(?<![\w.])(\d{1,2})['′]\s?(\d{1,2})[\"″]")
_PER = re.compile(rf"(?<=[\w.])\s?/\s?({_alt(DATA['per'])})\b")
_BARE_CENTS = re.compile(rf"(?<=[{re.escape(''.join(c for c in DATA['currencies'] if len(c) == 1))}])\.(?=\d)")
_SHORT_NUMBER = re.compile(rf"\b([Cc]all|[Dd]ial|[Tt]ext)\s({_alt(DATA['short_numbers'])})(?![\w,.-]*\d)")
_VANITY = re.compile(r"(?<![\w-])(1-)?([89]\d\d)-(?=[A-Z]{4,}(?![a-z]))")
_LONG_DIGITS = re.compile(r"(?<![\w.,])(?!\d+0{6})\d{10,18}(?![\w,]|\.\d)")
"""Ten figures and more without a mark are a telephone number or a code, but for round ones."""
_INNER_POINT = re.compile(r"(?<=[A-Za-z])\.(?=[a-z])")
_ORDINAL = re.compile(r"(?<![\w.])(\d{1,3}(?:,\d{3})+|\d{1,15})(st|nd|rd|th)\b", re.I)
_DECADE = re.compile(r"(?<![\w.])(?:(\d{2})|['’])(\d0)s\b")
_RANGE = re.compile(rf"(?<![\w.-])({N})\s?[-–]\s?({N})(?![\w-])")
_YEAR = re.compile(
    r"\b(in|since|by|of|from|until|till|before|after|during|year|to|and|spring|summer|autumn|fall|winter|Q[1-4])\s+(1[0-9]\d\d|20\d\d)\b(?![,.]\d)"
)
_NUMBER_SIGN = re.compile(r"\b(No|no|Nos)\.\s?(?=\d)")
_TITLE = re.compile(rf"(?<![\w.])({_alt(DATA['titles'])})(?=\s+[A-Z])")
_ABBREVIATION = re.compile(rf"(?<![\w.])({_alt(DATA['abbreviations'] | DATA['month_abbreviations'])})(?!\w)")
_STREET = re.compile(r"(?:\b[A-Z][a-z]+|(?:st|nd|rd|th|\d))\s+$")
_INITIALS = re.compile(r"(?<![\w.])((?:[A-Za-z]\.){2,6})(?!\w)")
_DOTTED = re.compile(r"(?<![\w.])(\d+(?:\.\d+){2,})(?!\w)")
_SIGNED = re.compile(rf"(?<![\w.)])([-−+±])\s?(?={N})")
_SIGN_OF = {
    pattern: re.compile(rf"(?<![\w.)])([-−+±])\s?(?={pattern.pattern})") for pattern in (_PERCENT, _DEGREES, _UNIT)
}
"""The sign in front of them, while they are still figures."""
_LETTER_FIGURE = re.compile(r"(?<=[A-Za-z])-?(?=\d)|(?<=\d)-?(?=[A-Za-z])")
_NUMBER = re.compile(rf"(?<!\d){N}|\d+")
_LEADING_POINT = re.compile(r"(?<![\w.])\.(\d+)")
_COMPARED = re.compile(r"(?<=[\w)])\s*(<=|>=|<|>)\s*(?=[\w(])")
_TIMES = re.compile(r"(?<=\d)\s*[*x×]\s*(?=\d)|(?<=\w)\s\*\s(?=\w)")
_SPAN_OF_TIME = re.compile(
    r"(?:(?<=\b[ap] m)|(?<=o'clock)|(?<=midnight))\s?[-–]\s?(?=[a-z])|(?<=\d)\s?[-–]\s?(?=[a-z -]{3,24} [ap] m\b)"
)
_INITIALS_AND = re.compile(r"\b([A-Z]{1,3})&([A-Z]{1,3})\b")
_AND_OR = re.compile(r"\band/or\b", re.I)
_SYMBOL = re.compile(_alt(DATA["symbols"]))
_ACRONYM = re.compile(r"(?<![\w'&.-])([A-Z]{2,5})(s?)(?![\w&])")
_CARDINAL_AND = re.compile(r"\band\s")


def read_english(draft: TracedText) -> None:
    """Put every figure and sign in words. Markup must be gone already; white space is left as it falls."""
    draft.translate(_PLAIN_MARKS)
    draft.sub(_AREA, lambda m: f"{_say(m[1])} {_POWERS[m[3]][0]} {DATA['units'][m[2]][m[1] != '1']}")
    draft.sub(_POWER, lambda m: _POWERS[m[1]][1])
    draft.map(lambda char: f" {unicodedata.normalize('NFKC', char)}" if unicodedata.category(char) == "No" else char)
    read_addresses(draft, _ADDRESS, DATA["top_domains"], spell_english)
    draft.sub(_ISO_DATE, lambda m: _date(m, int(m[2]), int(m[3]), m[1]))
    draft.sub(_US_DATE, _us_date)
    draft.sub(_SHORT_DATE, _short_date)
    draft.sub(_TIME, _time)
    draft.sub(_HOUR, lambda m: f"{_say(m[1])} {m[2].lower()} m{_stop(m)}")
    draft.sub(_SPAN_OF_TIME, " to ")
    draft.sub(_INITIALS_AND, lambda m: f"{' '.join(m[1])} and {' '.join(m[2])}")
    draft.sub(_PHONE, _phone)
    draft.sub(_VANITY, lambda m: ("one, " if m[1] else "") + spell_english(m[2]) + ", ")
    draft.sub(_SHORT_NUMBER, lambda m: f"{m[1]} {spell_english(m[2])}")
    draft.sub(_CODE, _code)
    draft.sub(_HASH_CODE, lambda m: f"number {_code_value(m[1])}")
    draft.sub(_LONE_CODE, lambda m: spell_english(m[1]))
    draft.sub(_LONG_DIGITS, _long_digits)
    draft.sub(_BARE_CENTS, "0.")
    draft.sub(_PER, lambda m: f" per {DATA['per'][m[1]]}")
    draft.sub(_FEET, lambda m: f"{_say(m[1])} foot {_say(m[2])}")
    draft.sub(_TO_THE_POWER, " to the power of ")
    draft.sub(_MONEY, _money)
    draft.sub(_MONEY_AFTER, lambda m: _minus(m[1]) + _amount(m[3], m[2], None))
    draft.sub(_CENTS, lambda m: f"{_say(m[1])} {'cent' if m[1] == '1' else 'cents'}")
    draft.sub(_MONTH_DAY, lambda m: _date(m, _month(m[1]), int(m[2]), m[3]))
    draft.sub(_DAY_MONTH, _day_month)
    draft.sub(_MONTH_YEAR, lambda m: f"{DATA['months'][_month(m[1]) - 1]} {_year(m[2])}")
    draft.sub(_PERCENT_RANGE, lambda m: f"{_say(m[1])} to {_say(m[2])} percent")
    draft.sub(_SIGN_OF[_PERCENT], _sign)
    draft.sub(_PERCENT, lambda m: f"{_say(m[1])} percent")
    draft.sub(_SIGN_OF[_DEGREES], _sign)
    draft.sub(_DEGREES, _degrees)
    draft.sub(_SIGN_OF[_UNIT], _sign)
    draft.sub(_UNIT, _unit)
    draft.sub(_AROUND_THE_CLOCK, "twenty-four seven")
    draft.sub(_FRACTION, _fraction)
    draft.sub(_ORDINAL, lambda m: _words(int(m[1].replace(",", "")), "ordinal"))
    draft.sub(_DECADE, lambda m: (_words(int(m[1])) + " " if m[1] else "") + _tens(m[2]))
    draft.sub(_RANGE, lambda m: f"{_say(m[1])} to {_say(m[2])}")
    draft.sub(_YEAR, lambda m: f"{m[1]} {_year(m[2])}")
    draft.sub(_NUMBER_SIGN, lambda m: "Numbers " if m[1] == "Nos" else "Number " if m[1] == "No" else "number ")
    draft.sub(_TITLE, _title)
    draft.sub(_ABBREVIATION, _abbreviation)
    draft.sub(_INITIALS, _initials)
    draft.sub(_ACRONYM, _acronym)
    draft.sub(_DOTTED, lambda m: " point ".join(_say(part) for part in m[1].split(".")))
    draft.sub(_TIMES, " times ")
    draft.sub(_COMPARED, lambda m: _COMPARISONS[m[1]])
    draft.sub(_SIGNED, _sign)
    draft.sub(_LEADING_POINT, lambda m: f"zero point {spell_english(m[1])}")
    draft.sub(_LETTER_FIGURE, " ")
    draft.sub(_NUMBER, lambda m: _say(m.group()))
    draft.sub(_INNER_POINT, " dot ")
    draft.sub(_AND_OR, "and or")
    draft.sub(_SYMBOL, lambda m: str(DATA["symbols"][m.group()]))
    draft.translate(_DROPPED)


_PLAIN_MARKS = str.maketrans(
    {
        "’": "'",
        "‘": "'",
        "“": '"',
        "”": '"',
        "−": "-",
        "‐": "-",
        "‑": "-",
        "℃": "°C",
        "℉": "°F",
        "¢": "¢",
        "（": "(",
        "）": ")",
    }
    | {chr(0xFF10 + i): str(i) for i in range(10)}
)
_DROPPED = str.maketrans(
    {
        '"': "",
        "#": " ",
        "_": " ",
        "*": " ",
        "\\": " ",
        "^": " ",
        "~": " ",
        "`": "",
        "{": " ",
        "}": " ",
        "[": " ",
        "]": " ",
    }
    | {
        "<": " ",
        ">": " ",
        "(": ", ",
        ")": ", ",
        "•": ", ",
        "·": ", ",
        "→": ", ",
        "←": ", ",
        "⇒": ", ",
        "–": " - ",
        "¢": " cents ",
    }
)
_COMPARISONS = {"<": " is less than ", ">": " is greater than ", "<=": " is at most ", ">=": " is at least "}
_POWERS = {"²": ("square", " squared"), "³": ("cubic", " cubed")}
_SIGNS = {"-": "minus", "−": "minus", "+": "plus", "±": "plus or minus"}


def _words(value: int, form: str = "cardinal") -> str:
    said: str = num2words(value, to=form)
    return _CARDINAL_AND.sub("", said.replace(",", ""))


def spell_english(code: str) -> str:
    """Digits and letters of ASCII one by one; long runs of digits in groups, a comma apart."""
    out: list[str] = []
    for run in re.findall(r"\d+|[A-Za-z]+", code):
        if run.isdigit():
            size = len(run) if len(run) <= 5 else 4 if len(run) % 4 == 0 else 3
            groups = [run[i : i + size] for i in range(0, len(run), size)]
            out.append(", ".join(" ".join(_DIGITS[int(d)] for d in group) for group in groups))
        else:
            out.append(" ".join(run.upper()))
    return " ".join(out)


def _say(number: str) -> str:
    whole, _, decimals = number.replace(",", "").partition(".")
    if len(whole) > MAX_INTEGER_DIGITS or (len(whole) > 1 and whole.startswith("0")):
        said = spell_english(whole)
    else:
        said = _words(int(whole))
    return f"{said} point {' '.join(_DIGITS[int(d)] for d in decimals)}" if decimals else said


def _year(year: str) -> str:
    return _words(int(year), "year")


def _tens(ten: str) -> str:
    return {"00": "hundreds", "10": "tens"}.get(ten) or _words(int(ten)).removesuffix("y") + "ies"


def _month(name: str) -> int:
    months: list[str] = DATA["months"]
    return months.index(_MONTH_OF[name.rstrip(".").lower()]) + 1


def _date(m: re.Match[str], month: int, day: int, year: str | None) -> str:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return m.group()
    return f"{DATA['months'][month - 1]} {_words(day, 'ordinal')}" + (f", {_year(year)}" if year else "")


def _us_date(m: re.Match[str]) -> str:
    first, second, year = int(m[1]), int(m[2]), m[3]
    if len(year) == 2:
        year = ("20" if int(year) < 70 else "19") + year
    return _date(m, first, second, year) if first <= 12 else _date(m, second, first, year)


def _short_date(m: re.Match[str]) -> str:
    month, day = int(m[2]), int(m[3])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return m.group()
    return f"{m[1]} {_date(m, month, day, None)}"


def _day_month(m: re.Match[str]) -> str:
    if not 1 <= int(m[2]) <= 31:
        return m.group()
    the = m[1] or "the "
    year = f", {_year(m[4])}" if m[4] else ""
    return f"{the}{_words(int(m[2]), 'ordinal')} of {DATA['months'][_month(m[3]) - 1]}{year}"


def _stop(m: re.Match[str]) -> str:
    """The full stop of `p.m.` stays if the text ends there."""
    return "." if m.group().endswith(".") and not m.string[m.end() :].strip("\"')”’ \n") else ""


def _time(m: re.Match[str]) -> str:
    hour, minute, second = int(m[1]), int(m[2]), m[3]
    if hour > 24 or minute > 59 or (second and int(second) > 59):
        return m.group()
    half = f" {m[4].lower()} m{_stop(m)}" if m[4] else ""
    if minute == 0:
        said = (
            _words(hour) + ("" if half or second else " o'clock")
            if 1 <= hour <= 12 or half
            else f"{_words(hour)} hundred"
        )
        said = "midnight" if hour in (0, 24) and not second else said
    else:
        said = f"{_words(hour)} {'oh ' if minute < 10 else ''}{_words(minute)}"
    if second:
        said += f" and {_words(int(second))} {'second' if int(second) == 1 else 'seconds'}"
    return said + half


def _phone(m: re.Match[str]) -> str:
    groups = re.findall(r"\d+", m.group())
    if len(groups) == 1:
        return ("plus " if m.group().startswith("+") else "") + spell_english(groups[0])
    said = ", ".join(" ".join(_DIGITS[int(d)] for d in group) for group in groups)
    return f"plus {said}" if m.group().startswith("+") else said


def _long_digits(m: re.Match[str]) -> str:
    digits = m.group()
    if len(digits) == 10 or (len(digits) == 11 and digits[0] == "1"):
        groups = [digits[:-10], digits[-10:-7], digits[-7:-4], digits[-4:]]
        return ", ".join(spell_english(group) for group in groups if group)
    return spell_english(digits)


def _code_value(code: str) -> str:
    return _say(code) if code.isdigit() and len(code) < 3 else spell_english(code)


def _code(m: re.Match[str]) -> str:
    code = m[3]
    follower = m.string[m.end() :].lstrip().split(" ", 1)[0].strip(".,;!?")
    if code.isdigit() and (len(code) < 3 or follower in DATA["amount_words"]):
        return m.group()
    if re.fullmatch(r"\d+(?:st|nd|rd|th|[kKmM]|" + _alt(DATA["units"]) + ")", code):
        return m.group()
    lead = m[2].replace("#", " number " if "number" not in m[2].lower() and m[1].lower() != "number" else " ")
    return f"{m[1]}{re.sub(r'(?i)no[.]?(?=[ :]*$)', 'number', lead)}{spell_english(code)}"


def _minus(sign: str | None) -> str:
    return "minus " if sign and sign.strip() else ""


def _money(m: re.Match[str]) -> str:
    minus = _minus(m[1]) or _minus(m[3])
    if m[6] is None:
        return minus + _amount(m[2], m[4], m[5])
    unit = DATA["currencies"][m[2]][1]
    scales = [f" {DATA['scales'].get(s, s)}" if s else "" for s in (m[5], m[7])]
    return f"{minus}{_say(m[4])}{scales[0]} to {_say(m[6])}{scales[1]} {unit}"


def _amount(currency: str, number: str, scale: str | None) -> str:
    names: list[str] = DATA["currencies"][currency]
    if scale:
        return f"{_say(number)} {DATA['scales'].get(scale, scale)} {names[1]}"
    whole, _, decimals = number.replace(",", "").partition(".")
    if not decimals or len(names) < 4 or len(decimals) > 2:
        return f"{_say(number)} {names[0] if number == '1' else names[1]}"
    large = f"{_say(whole)} {names[0] if whole == '1' else names[1]}"
    small = int(decimals.ljust(2, "0"))
    if not small:
        return large
    cents = f"{_words(small)} {names[2] if small == 1 else names[3]}"
    return cents if whole.strip("0") == "" else f"{large} and {cents}"


def _sign(m: re.Match[str]) -> str:
    return _SIGNS[m[1]] + " "


def _degrees(m: re.Match[str]) -> str:
    scale = {"C": " Celsius", "F": " Fahrenheit", "K": " Kelvin", None: ""}[m[2]]
    return f"{_say(m[1])} {'degree' if m[1] == '1' else 'degrees'}{scale}"


def _unit(m: re.Match[str]) -> str:
    one, many = DATA["units"][m[2]]
    return f"{_say(m[1])} {one if m[1] == '1' else many}"


def _fraction(m: re.Match[str]) -> str:
    above, below = int(m[2]), int(m[3])
    if not 0 < above < below or below > 1000:
        return f"{m[1] + ' ' if m[1] else ''}{_say(m[2])} slash {_say(m[3])}"
    names = DATA["denominators"].get(str(below)) or [_words(below, "ordinal"), _words(below, "ordinal") + "s"]
    said = f"{_words(above)} {names[0] if above == 1 else names[1]}"
    return f"{_say(m[1])} and {said}" if m[1] else said


def _title(m: re.Match[str]) -> str:
    if m[1] in DATA["abbreviations"] and _STREET.search(m.string[: m.start()]):
        return m.group()
    title: str = DATA["titles"][m[1]]
    return title


def _abbreviation(m: re.Match[str]) -> str:
    said: str = DATA["abbreviations"].get(m[1]) or DATA["month_abbreviations"][m[1]]
    ends = m[1].endswith(".") and not m.string[m.end() :].strip("\"') \n")
    return f"{said}." if ends else said


def _initials(m: re.Match[str]) -> str:
    letters = m[1].replace(".", "").upper()
    return " ".join(letters) + _stop(m)


def _acronym(m: re.Match[str]) -> str:
    """Letters one by one, if they make no word: `PDF`, `ATMs`, but not `NASA`. Shouted text stays."""
    letters, plural = m[1], m[2]
    if letters in DATA["said_as_words"] or (letters not in DATA["spelled"] and set(letters) & set("AEIOUY")):
        return m.group()
    return " ".join(letters) + ("'s" if plural else "")
