"""What happened in a call, as a list of contributions; and where two such lists differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any, Literal

__all__ = ["Difference", "Entry", "differences", "tell"]

Row = Mapping[str, Any]
Who = Literal["caller", "agent", "key", "transfer", "fault", "end"]

TOLERANCE_MS = 100.0
"""Answers whose times differ by less count as the same: five ticks."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One contribution. `t_ms` is its place in the recording, on the pacer's clock."""

    t_ms: int
    who: Who
    text: str
    """What was said or heard; the reason, for an end."""
    unheard: str = ""
    status: str = ""
    """completed, cancelled (interrupted) or failed, for the agent."""
    response_ms: float | None = None
    """From the caller's last word to the first sound of this answer."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes two entries the same, apart from their times."""
        return self.who, self.text, self.unheard, self.status


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where the two differ; a side that is None has nothing there."""

    what: Literal["changed", "missing", "added", "timing"]
    recorded: Entry | None
    replayed: Entry | None


def tell(rows: Iterable[Row]) -> list[Entry]:
    """The contributions in a timeline's rows, in order."""
    entries: list[Entry] = []
    turns: dict[str, int] = {}
    began: dict[str, int] = {}
    response: dict[str, float | None] = {}
    for row in rows:
        t_ms = int(row.get("t_ms") or 0)
        match row.get("event"):
            case "UserTranscript" if row.get("final"):
                # A turn that goes on is told again as a whole: the last word counts, at its first place.
                ident = str(row.get("item_id"))
                if ident in turns:
                    entries[turns[ident]] = replace(entries[turns[ident]], text=str(row.get("text", "")))
                    continue
                turns[ident] = len(entries)
                entries.append(Entry(t_ms, "caller", str(row.get("text", ""))))
            case "PlayoutStarted":
                began[str(row.get("response_id"))] = t_ms
            case "TurnTimings":
                response[str(row.get("response_id"))] = row.get("response_ms")
            case "ReplyFinished":
                ident = str(row.get("response_id"))
                heard, unheard = str(row.get("heard", "")), str(row.get("unheard", ""))
                if heard or unheard:
                    at = began.get(ident, t_ms)
                    status = str(row.get("status", ""))
                    entries.append(Entry(at, "agent", heard, unheard, status, response.get(ident)))
            case "DtmfPressed":
                entries.append(Entry(t_ms, "key", str(row.get("digit", ""))))
            case "TransferRequested":
                entries.append(Entry(t_ms, "transfer", str(row.get("to", ""))))
            case "CallFault" if row.get("part") != "recording":
                entries.append(Entry(t_ms, "fault", f"{row.get('part')}: {row.get('message')}"))
            case "CallEnded":
                entries.append(Entry(t_ms, "end", str(row.get("reason", ""))))
    return entries


def differences(recorded: Sequence[Entry], replayed: Sequence[Entry]) -> list[Difference]:
    """Where a replay went another way than the call, in order."""
    found: list[Difference] = []
    matcher = SequenceMatcher(a=[e.key for e in recorded], b=[e.key for e in replayed], autojunk=False)
    for kind, a0, a1, b0, b1 in matcher.get_opcodes():
        if kind == "equal":
            for old, new in zip(recorded[a0:a1], replayed[b0:b1], strict=True):
                if _apart(old.response_ms, new.response_ms):
                    found.append(Difference("timing", old, new))
            continue
        left, right = list(recorded[a0:a1]), list(replayed[b0:b1])
        while left and right and left[0].who == right[0].who:
            found.append(Difference("changed", left.pop(0), right.pop(0)))
        found += [Difference("missing", entry, None) for entry in left]
        found += [Difference("added", None, entry) for entry in right]
    return found


def _apart(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is not b
    return abs(a - b) > TOLERANCE_MS
