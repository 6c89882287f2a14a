"""Languages as Rejoinder compares them."""

from __future__ import annotations

__all__ = ["primary_language"]


def primary_language(tag: str) -> str:
    """The primary subtag of a BCP 47 tag, in lower case: `en` of `en-GB` (RFC 5646 section 2.2.1).

    The underscore of POSIX locales is taken for a hyphen.
    """
    return tag.replace("_", "-").partition("-")[0].lower()
