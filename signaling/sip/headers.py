"""Header fields of one message: ordered, names without case, compact forms known (RFC 3261 section 7.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from signaling.sip.grammar import TOKEN, split

__all__ = ["LISTS", "Headers", "canonical_name"]

COMPACT = {
    "a": "Accept-Contact",
    "b": "Referred-By",
    "c": "Content-Type",
    "d": "Request-Disposition",
    "e": "Content-Encoding",
    "f": "From",
    "i": "Call-ID",
    "j": "Reject-Contact",
    "k": "Supported",
    "l": "Content-Length",
    "m": "Contact",
    "n": "Identity-Info",
    "o": "Event",
    "r": "Refer-To",
    "s": "Subject",
    "t": "To",
    "u": "Allow-Events",
    "v": "Via",
    "x": "Session-Expires",
    "y": "Identity",
}
"""The registry of RFC 3261 section 20 and its extensions."""
SPELLED = {"call-id": "Call-ID", "cseq": "CSeq", "rack": "RAck", "rseq": "RSeq", "min-se": "Min-SE"} | {
    "www-authenticate": "WWW-Authenticate",
    "mime-version": "MIME-Version",
    "p-asserted-identity": "P-Asserted-Identity",
}
LISTS = frozenset(
    "accept accept-encoding accept-language alert-info allow allow-events contact error-info in-reply-to "
    "proxy-require record-route require route supported unsupported via warning path service-route".split()
)
"""Fields whose value is a comma-separated list. The authentication fields are not: their commas are their own."""


def canonical_name(name: str) -> str:
    """The long name, spelled as the RFCs spell it: `v` is `Via`, `content-length` is `Content-Length`."""
    lower = name.lower()
    if lower in COMPACT:
        return COMPACT[lower]
    known = SPELLED.get(lower)
    return known if known is not None else "-".join(part.capitalize() for part in lower.split("-"))


class Headers:
    """A multi-map that keeps the order of fields."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[tuple[str, str]] = ()) -> None:
        self._items: list[tuple[str, str]] = []
        for name, value in items:
            self.add(name, value)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and self._items == other._items

    def __repr__(self) -> str:
        return f"Headers({[name for name, _ in self._items]})"

    def add(self, name: str, value: str) -> None:
        """Append a field. Raises ValueError on a line break or a bad name: nobody may smuggle in a field."""
        if "\r" in value or "\n" in value or not TOKEN.fullmatch(name):
            raise ValueError(f"header {name[:40]!r}: a token as name and a value without line breaks were expected")
        self._items.append((canonical_name(name), value))

    def replace(self, name: str, value: str) -> None:
        """Replace every field of that name by one."""
        self.remove(name)
        self.add(name, value)

    def prepend(self, name: str, value: str) -> None:
        """Put a field before all others."""
        self.add(name, value)
        self._items.insert(0, self._items.pop())

    def replace_first(self, name: str, value: str) -> None:
        """Change the first field of that name in place."""
        wanted = canonical_name(name)
        at = next(index for index, (key, _) in enumerate(self._items) if key == wanted)
        self.add(name, value)
        self._items[at] = self._items.pop()

    def remove(self, name: str) -> None:
        wanted = canonical_name(name)
        self._items = [item for item in self._items if item[0] != wanted]

    def get(self, name: str) -> str | None:
        """The first value, or None."""
        wanted = canonical_name(name)
        return next((value for key, value in self._items if key == wanted), None)

    def all(self, name: str) -> list[str]:
        """Values as they stand, one a field."""
        wanted = canonical_name(name)
        return [value for key, value in self._items if key == wanted]

    def values(self, name: str) -> list[str]:
        """Values of a list field, one an element. Raises SipError on quotes or brackets without an end."""
        return [element for value in self.all(name) for element in split(value, ",")]

    def tokens(self, name: str) -> frozenset[str]:
        """Elements of a list of tokens such as Supported or Allow, in lower case; empty ones are left out."""
        found = (element.strip().lower() for value in self.all(name) for element in value.split(","))
        return frozenset(filter(None, found))

    def copy(self) -> Headers:
        twin = Headers()
        twin._items = list(self._items)
        return twin
