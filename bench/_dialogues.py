"""Scripted customer-service dialogues: bench/dialogues/*.toml, expanded with a seed. Pure.

Each domain has what callers say, what the agent may answer (a phrasing is drawn each time), the values that are filled
in, and courses of calls: a list of `caller act > agent act` with alternatives (`a|b`) and steps that not every call has
(`?0.4`).
"""

from __future__ import annotations

import random
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Dialogue", "Exchange", "dialogues"]

FOLDER = Path(__file__).parent / "dialogues"
_PLACE = re.compile(r"\{(\w+)\}")
_STEP = re.compile(r"([\w|]+) > ([\w|]+)(?: \?([\d.]+))?")


@dataclass(frozen=True, slots=True)
class Exchange:
    """The caller says something, the agent answers."""

    heard: str
    reply: str
    state: str
    """Where the dialogue stands after the reply, if the hook names it."""
    known: dict[str, str]
    """Values that were mentioned up to here, this exchange included."""
    expected: tuple[str, ...]
    """What the hook says it may answer next, if it does."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """One call."""

    domain: str
    voice: str
    greeting: Exchange
    exchanges: tuple[Exchange, ...]


def dialogues(count: int, seed: int) -> list[Dialogue]:
    """`count` calls, spread evenly over the domains, in random order."""
    domains = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.toml"))]
    rng = random.Random(seed)
    out = [_expand(domains[index % len(domains)], rng) for index in range(count)]
    rng.shuffle(out)
    return out


def _expand(domain: dict[str, Any], rng: random.Random) -> Dialogue:
    values = _Values(domain["values"], rng)
    course = rng.choices(domain["calls"], [call["weight"] for call in domain["calls"]])[0]
    steps: list[tuple[str, str]] = []
    for step in course["steps"]:
        match = _STEP.fullmatch(step)
        if match is None:
            raise ValueError(f"{domain['domain']}: not a step: {step!r}")
        if match[3] is None or rng.random() < float(match[3]):
            steps.append((rng.choice(match[1].split("|")), rng.choice(match[2].split("|"))))
    follow = _follow(domain)

    def exchange(heard: str, act: str) -> Exchange:
        reply = values.fill(rng.choice(domain["agent"][act]))
        expected: tuple[str, ...] = ()
        if domain["expects"]:
            # A hook knows its texts, and can fill in only what it knows.
            texts = [text for name in sorted(follow.get(act, ())) for text in domain["agent"][name]]
            expected = tuple(text for text in (values.fill_known(text) for text in texts) if text)
        return Exchange(heard, reply, act if domain["names_states"] else "", dict(values.mentioned), expected)

    greeting = exchange("", "greeting")
    exchanges = []
    for caller, agent in steps:
        exchanges.append(exchange(values.fill(rng.choice(domain["caller"][caller])), agent))
    return Dialogue(domain["domain"], domain["voice"], greeting, tuple(exchanges))


def _follow(domain: dict[str, Any]) -> dict[str, set[str]]:
    """Which agent acts may follow which, over all courses; optional steps may be left out."""
    follow: dict[str, set[str]] = {}
    for call in domain["calls"]:
        before = {"greeting"}
        for step in call["steps"]:
            match = _STEP.fullmatch(step)
            assert match is not None
            acts = set(match[2].split("|"))
            for act in before:
                follow.setdefault(act, set()).update(acts)
            before = acts if match[3] is None else before | acts
    return follow


class _Values:
    """One call's values: drawn when first needed, then kept; `other_x` is another one than `x`."""

    def __init__(self, choices: dict[str, list[str]], rng: random.Random) -> None:
        self._choices = choices
        self._rng = rng
        self._drawn: dict[str, str] = {}
        self.mentioned: dict[str, str] = {}

    def fill(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            name = match[1]
            if name.startswith("other_"):
                own = self._value(name.removeprefix("other_"))
                return self._rng.choice([each for each in self._choices[name.removeprefix("other_")] if each != own])
            self.mentioned[name] = self._value(name)
            return self.mentioned[name]

        filled = _PLACE.sub(value, text)
        return filled[0].upper() + filled[1:]

    def fill_known(self, text: str) -> str | None:
        """The text if all its values were mentioned before; else its beginning up to the clause that has another."""
        names = [match[1] for match in _PLACE.finditer(text)]
        if all(name in self.mentioned for name in names):
            return _PLACE.sub(lambda match: self.mentioned[match[1]], text)
        first = next(match.start() for match in _PLACE.finditer(text) if match[1] not in self.mentioned)
        head = text[:first]
        end = max(head.rfind(mark) for mark in (". ", "? ", "! "))
        return _PLACE.sub(lambda match: self.mentioned[match[1]], head[: end + 1]) if end > 0 else None

    def _value(self, name: str) -> str:
        if name not in self._drawn:
            self._drawn[name] = self._rng.choice(self._choices[name])
        return self._drawn[name]
