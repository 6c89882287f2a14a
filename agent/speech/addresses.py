"""How e-mail addresses and links are read in any language: short, and never character by character. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from agent.speech.traced import TracedText

__all__ = ["AddressWords", "read_addresses"]

_EMAIL = re.compile(
    r"(?:mailto:)?(?<![\w.+-])([A-Za-z0-9][\w.+-]{0,63})@([A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,4})"
)
_LINK = re.compile(r"(?:(?:https?|ftp|wss?)://|(?<![\w@.])www\.)([^\s<>\"'，。！？；、）)]{1,2000})", re.I)
_BARE = re.compile(
    r"(?<![\w@./-])((?:[A-Za-z0-9-]{1,63}\.){1,3}([A-Za-z]{2,6}))(/[^\s<>\"'，。！？；、）)]{0,500})?(?![\w-])"
)
_LAST_MARKS = ".,;:!?"


@dataclass(frozen=True, slots=True)
class AddressWords:
    """What the signs of an address are called."""

    at: str
    dot: str
    dash: str
    underscore: str
    plus: str
    link: str
    """Said for a link whose host is not a name."""


def read_addresses(
    draft: TracedText, words: AddressWords, top_domains: Collection[str], digits: Callable[[str], str]
) -> None:
    """Write out the addresses of a text; of a link only the host is read.

    Args:
        digits: reads a run of digits one by one.
    """

    def name(part: str) -> str:
        part = re.sub(r"\d+", lambda m: f" {digits(m.group())} ", part)
        for sign, word in ((".", words.dot), ("-", words.dash), ("_", words.underscore), ("+", words.plus)):
            part = part.replace(sign, f" {word} ")
        return " ".join(part.split())

    def host(address: str) -> tuple[str, str]:
        rest = address.rstrip(_LAST_MARKS)
        tail = address[len(rest) :]
        bare = re.split(r"[/?#]", rest, maxsplit=1)[0].rsplit("@", 1)[-1].split(":")[0]
        bare = re.sub(r"(?i)^www\.", "", bare)
        return (name(bare) if any(c.isalpha() for c in bare) else words.link), tail

    def link(m: re.Match[str]) -> str:
        said, tail = host(m.group(1))
        return f" {said}{tail}"

    def bare(m: re.Match[str]) -> str:
        if m.group(2).lower() not in top_domains:
            return m.group()
        said, _ = host(m.group(1))
        return f" {said}"

    draft.sub(_EMAIL, lambda m: f" {name(m.group(1))} {words.at} {name(m.group(2))} ")
    draft.sub(_LINK, link)
    draft.sub(_BARE, bare)
