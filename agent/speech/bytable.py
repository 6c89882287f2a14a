"""How a language is read that needs no more than a table: numbers, money, dates, times, codes and signs as words. Pure.

English and Mandarin have modules of their own. docs/speech.md says what the keys of a table mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from num2words import num2words

from agent.speech.addresses import AddressWords, read_addresses
from agent.speech.tables import table
from agent.speech.traced import TracedText

__all__ = ["TableReader", "table_reader"]

MAX_INTEGER_DIGITS = 15
"""Longer numbers are codes."""

_PLAIN = str.maketrans(
    {"’": "'", "‘": "'", "−": "-", "‐": "-", "‑": "-", "℃": "°C", "℉": "°F"}
    | {chr(0xFF10 + i): str(i) for i in range(10)}
    | {"％": "%", "＋": "+", "（": "(", "）": ")", "：": ":"}
)
_PHONE = (
    r"(?<![\w.,/$€-])(?:\+\d{1,3}(?:[ .-]?\(?\d{1,5}\)?){2,6}"
    r"|\(?0\d{1,4}\)?(?:[ .-]\d{2,8}){1,5}|\d{1,4}(?:-\d{2,4}){2,4})(?![\w-])"
)
_LONE_CODE = re.compile(r"(?<![\w.-])([A-Z]{1,5}-?\d{3,}[A-Z0-9]*(?:-[A-Z0-9]+){0,4})(?![A-Za-z0-9])")
_ISO_DATE = re.compile(r"(?<![\w-])(\d{4})-(\d{2})-(\d{2})(?![\w-])")
_DATE = re.compile(r"(?<![\w/.])(\d{1,2})([/.])(\d{1,2})\2(\d{4}|\d{2})(?![\w/])")
_LETTER_FIGURE = re.compile(r"(?<=[A-Za-z])-?(?=\d)|(?<=\d)(?=[A-Za-z])")
_DOTTED = re.compile(r"(?<![\w.])\d+(?:\.\d+){2,}(?!\w)")
_PARENTHESIS = re.compile(r"\s*[()]\s*")


def _alt(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) or r"(?!)"


@cache
def table_reader(language: str) -> TableReader | None:
    """The reader of a primary language subtag; None where the table has no numbers."""
    data = table(language)
    return TableReader(data) if "number_words" in data else None


class TableReader:
    """Reads text by one language's table."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self._language: str = data["number_words"]
        self._digits: list[str] = data["digits"]
        self._gap = "" if data.get("unspaced") else " "
        self._pause = "、" if data.get("unspaced") else ", "
        self._months: list[str] = data.get("months", [])
        self._address = AddressWords(**data["address"])
        self._symbols: dict[str, str] = {"°": self._gap.join(("", data["units"]["°C"][1], ""))} | data["symbols"]
        self._compile()

    def _compile(self) -> None:
        data = self._data
        decimal, groups = re.escape(data["decimal"]), re.escape(data["thousands"])
        # A group sign other than a blank cannot be told from a foreign point unless three figures follow it.
        point = r"|\.(?:\d{1,2}|\d{4,})(?!\d)" if data["decimal"] == "," else ""
        n = (
            rf"(?:\d{{1,3}}(?:,\d{{3}}){{1,6}}\.\d{{1,2}}(?!\d)"
            rf"|\d{{1,3}}(?:[{groups}]\d{{3}}(?!\d)){{1,6}}(?:{decimal}\d+)?|\d+(?:{decimal}\d+{point})?)"
        )
        edge = r"(?<![\d.,])" if data.get("unspaced") else r"(?<![\w.,])"
        currencies, units = _alt(data["currencies"]), _alt(data["units"])
        self._number = re.compile(rf"(?<!\d){n}|\d+")
        # Where a blank parts thousands, blanks alone make no telephone number.
        blanks = "" if " " in data["thousands"] else r"|(?<![\w.,-])\d{3}(?: \d{2,4}){2,3}(?![\w-]|[.,]\d)"
        self._phone = re.compile(_PHONE + blanks)
        self._money = re.compile(rf"(?<![A-Za-z0-9])(-?)(?:({currencies})\s?({n})|({n})\s?({currencies}))(?![A-Za-z])")
        self._percent = re.compile(rf"{edge}({n})\s?%")
        self._unit = re.compile(rf"{edge}({n})\s?({units})(?![\w/])")
        self._range = re.compile(rf"{edge}({n})\s?[-–~〜]\s?(?={n}(?!-))")
        self._signed = re.compile(rf"(?<![\w.)])([-+])\s?(?={n})")
        marks = data["time"]["marks"]
        self._time = re.compile(
            rf"(?<![\d:.,])(\d{{1,2}})(?::|\s?h\s?)(\d{{2}})(?:\s?(?:{marks})(?![A-Za-z]))?(?![\d:])"
            rf"|(?<![\d:.,])(\d{{1,2}})\s?(?:{marks})(?![A-Za-z間])"
        )
        # "3. Mai" at the head of a line looks like a list's number, which the markup rules have set apart.
        listed = "|," if data.get("ordinal_days") else ""
        self._month_day = re.compile(
            rf"(?:(?<!\w)(\w{{1,5}})\s)?(?<![\d.,])(\d{{1,2}})(?:er|º|\.º|\.{listed})?\s((?:de\s)?(?:{_alt(self._months)}))"
            rf"(?!\w)(?:(\s(?:de\s)?)(\d{{4}})(?!\d))?"
        )
        self._month_year = re.compile(rf"(?<!\w)((?:{_alt(self._months)})\s(?:de\s)?)(\d{{4}})(?![\d.,])")
        self._ordinal = re.compile(rf"(?<![\w.,])(\d{{1,4}})({_alt(data['ordinals'])})(?!\w)")
        self._ordinal_point = re.compile(r"(?<![\w.,])(\d{1,3})\.(?=\s[A-ZÄÖÜ]\w)")
        self._code = re.compile(
            rf"(?<![A-Za-z])({_alt(data['code_words'])})([\s:#：はが]*(?:(?:n°|n\.º|Nr\.|es|ist|est|è|é|lautet)\s)?)"
            r"((?=[A-Za-z-]{0,8}\d)[A-Za-z0-9]+(?:-[A-Za-z0-9]+){0,6})(?![\w%€]|[.,]\d)",
            re.I,
        )
        self._title = re.compile(rf"(?<![\w.])({_alt(data.get('titles', ()))})(?=\s+[A-ZÀ-Þ])")
        self._abbreviation = re.compile(rf"(?<![\w.])({_alt(data.get('abbreviations', ()))})(?!\w)")
        self._ending = re.compile(rf"(?<=[a-zß-ÿ])({_alt(data.get('endings', ()))})(?!\w)")
        self._symbol = re.compile(_alt(self._symbols))

    def read(self, draft: TracedText) -> None:
        """Put every figure and sign in words. Markup must be gone already."""
        data = self._data
        draft.translate(_PLAIN)
        read_addresses(draft, self._address, table("en")["top_domains"], self.spell)
        draft.sub(_ISO_DATE, lambda m: self._date(m, m[3], m[2], m[1]))
        if self._months:
            draft.sub(_DATE, lambda m: self._date(m, m[1], m[3], m[4] if len(m[4]) == 4 else f"20{m[4]}"))
        draft.sub(self._time, self._read_time)
        draft.sub(self._phone, lambda m: self._pause.join(self.spell(group) for group in re.findall(r"\d+", m.group())))
        draft.sub(self._code, lambda m: m[1] + m[2] + (self.spell(m[3]) if len(m[3]) > 2 else m[3]))
        draft.sub(_LONE_CODE, lambda m: self.spell(m[1]))
        draft.sub(self._range, lambda m: self._gap.join((m[1], data["to"], "")))
        draft.sub(self._money, self._read_money)
        if self._months:
            draft.sub(self._month_day, self._read_month_day)
            draft.sub(self._month_year, lambda m: m[1] + self._year(m[2]))
        draft.sub(self._signed, lambda m: (data["minus"] if m[1] == "-" else data["plus"]) + self._gap)
        draft.sub(self._percent, lambda m: self._gap.join((self._say(m[1]), data["percent"])))
        draft.sub(self._unit, lambda m: self._amount(m[1], data["units"][m[2]]))
        draft.sub(self._ordinal, self._read_ordinal)
        if data.get("ordinal_point"):
            draft.sub(self._ordinal_point, lambda m: self._words(int(m[1]), "ordinal") + data["oblique_ending"])
        draft.sub(self._title, lambda m: str(data["titles"][m[1]]))
        draft.sub(self._abbreviation, self._read_abbreviation)
        draft.sub(self._ending, lambda m: str(data["endings"][m[1]]))
        draft.sub(_DOTTED, lambda m: f" {data['point']} ".join(self._say(part) for part in m.group().split(".")))
        draft.sub(_LETTER_FIGURE, " ")
        draft.sub(self._number, lambda m: self._say(m.group()))
        draft.sub(self._symbol, lambda m: self._symbols[m.group()])
        draft.sub(_PARENTHESIS, self._pause)

    def spell(self, code: str) -> str:
        """Figures and letters one by one."""
        runs = re.findall(r"\d|[A-Za-z]+", code)
        return self._gap.join(self._digits[int(run)] if run.isdigit() else " ".join(run.upper()) for run in runs)

    def _words(self, value: int, form: str = "cardinal") -> str:
        said: str = num2words(value, lang=self._language, to=form)
        return said.replace(",", "")

    def _say(self, number: str) -> str:
        data = self._data
        whole, decimals = self._parts(number)
        if len(whole) > MAX_INTEGER_DIGITS or (len(whole) > 1 and whole.startswith("0")):
            said = self.spell(whole)
        else:
            said = self._words(int(whole))
        if not decimals:
            return said
        as_number = data["decimals"] == "number" and len(decimals) <= 2 and not decimals.startswith("0")
        return self._gap.join((said, data["point"], self._words(int(decimals)) if as_number else self.spell(decimals)))

    def _parts(self, number: str) -> tuple[str, str]:
        """Figures before and behind the decimal mark, by this language's habit or, where that is plain, the foreign."""
        data = self._data
        mark = data["decimal"]
        if "." in number and ("," in number or not re.fullmatch(r"\d{1,3}(?:\.\d{3})+", number)):
            mark = max(".,", key=number.rfind) if "," in number else "."
        whole, _, decimals = number.rpartition(mark) if mark in number else (number, "", "")
        return re.sub(r"\D", "", whole), re.sub(r"\D", "", decimals)

    def _amount(self, number: str, names: list[str]) -> str:
        """`1 km` is the table's own wording; other numbers take the plural."""
        return names[0] if number == "1" else f"{self._say(number)}{self._gap}{names[1]}"

    def _read_money(self, m: re.Match[str]) -> str:
        names: list[str] = self._data["currencies"][m[2] or m[5]]
        number = m[3] or m[4]
        minus = self._data["minus"] + self._gap if m[1] else ""
        whole, decimals = self._parts(number)
        if not decimals or len(names) < 4 or len(decimals) > 2:
            return minus + self._amount(number, names)
        small = int(decimals.ljust(2, "0"))
        large = self._amount(str(int(whole)) if len(whole) <= MAX_INTEGER_DIGITS else whole, names[:2])
        if not small:
            return minus + large
        cents = self._amount(str(small), names[2:])
        return minus + (cents if not whole.strip("0") else large + self._data["money_joint"] + cents)

    def _read_time(self, m: re.Match[str]) -> str:
        words = self._data["time"]
        hour, minute = int(m[1] or m[3]), int(m[2] or 0)
        if hour > 24 or minute > 59:
            return m.group()
        if hour in (0, 24) and not minute and "midnight" in words:
            return str(words["midnight"])
        # "às 10 horas" and "10 Uhr" hold the word already; where none is said, "in punto" would be too much.
        whole = words["one"] if hour == 1 else words["whole"].format(self._words(hour))
        if not minute:
            return str(whole)
        bare = whole if words["whole"].endswith(words["marks"].split("|")[0]) and "half" not in words else None
        said_hour = bare or (words["one"] if hour == 1 else self._hour(hour))
        if minute == 30 and "half" in words:
            return f"{said_hour}{self._gap}{words['half']}"
        return str(words["minutes"].format(hour=said_hour, minute=self._words(minute)))

    def _hour(self, hour: int) -> str:
        return self._words(hour) + ("時" if self._data.get("unspaced") else "")

    def _year(self, year: str) -> str:
        return self._words(int(year), "year")

    def _day(self, day: int, before: str) -> str:
        data = self._data
        if data.get("ordinal_days"):
            oblique = before in data["oblique_after"]
            ending: str = data["oblique_ending" if oblique else "day_ending"]
            return self._words(day, "ordinal") + ending
        return str(data["first_day"]) if day == 1 else self._words(day)

    def _date(self, m: re.Match[str], day: str, month: str, year: str) -> str:
        if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
            return m.group()
        if not self._months:
            return f"{self._words(int(year))}年{self._words(int(month))}月{self._words(int(day))}日"
        before = m.string[: m.start()].rsplit(maxsplit=1)[-1:] or [""]
        joint = f" {self._data['month_joint']} " if "month_joint" in self._data else " "
        return joint.join((self._day(int(day), before[0]), self._months[int(month) - 1], self._year(year)))

    def _read_month_day(self, m: re.Match[str]) -> str:
        if not 1 <= int(m[2]) <= 31:
            return m.group()
        before = f"{m[1]} " if m[1] else ""
        year = m[4] + self._year(m[5]) if m[5] else ""
        return f"{before}{self._day(int(m[2]), m[1] or '')} {m[3]}{year}"

    def _read_ordinal(self, m: re.Match[str]) -> str:
        old, new = self._data["ordinals"][m[2]]
        said = self._words(int(m[1]), "ordinal")
        return said.removesuffix(old) + new if said.endswith(old) else said

    def _read_abbreviation(self, m: re.Match[str]) -> str:
        said: str = self._data["abbreviations"][m[1]]
        ends = m[1].endswith(".") and not m.string[m.end() :].strip("\"')»” \n")
        return f"{said}." if ends else said
