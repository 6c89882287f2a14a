"""Texts as a person compares them."""

from __future__ import annotations

__all__ = ["plain"]


def plain(text: str) -> str:
    """A text without case, punctuation and doubled spaces."""
    return " ".join("".join(char if char.isalnum() or char == "'" else " " for char in text.casefold()).split())
