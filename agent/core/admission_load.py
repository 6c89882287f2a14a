"""What a process reports for admission: mean time to the first packet, and how much of its memory is used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

from agent.core.admission import Load

__all__ = ["FirstPackets", "memory_share"]

WINDOW_S = 20.0
"""Some twenty answers at ten calls: enough for a mean, and forgotten soon after the load has gone."""

MAX_ANSWERS = 4096
"""Two hundred a second for the whole window."""

CGROUP = Path("/sys/fs/cgroup")
PROC = Path("/proc")


class FirstPackets:
    """Times to the first packet of the answers of the last seconds. Pure: fed `now` in seconds."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, float]] = deque(maxlen=MAX_ANSWERS)

    def add(self, first_packet_ms: float, now: float) -> None:
        """One answer began to be heard this long after it was wanted."""
        self._seen.append((now, first_packet_ms))

    def load(self, memory: float, now: float) -> Load:
        """The report, with the used share of memory."""
        while self._seen and self._seen[0][0] <= now - self._window_s:
            self._seen.popleft()
        if not self._seen:
            return Load(memory)
        return Load(memory, sum(first for _, first in self._seen) / len(self._seen), len(self._seen))


def memory_share(read: Callable[[Path], str] = Path.read_text) -> float:
    """Used share, 0 to 1, of the memory this process may use: of its cgroup where that has a limit, else of the host.

    Page cache that the kernel can drop counts as free. 0 where neither can be read: no number is no reason to refuse.
    """
    return max(_cgroup(read), _host(read))


def _cgroup(read: Callable[[Path], str]) -> float:
    """cgroup v2 (Linux, Documentation/admin-guide/cgroup-v2.rst): memory.max, memory.current, memory.stat."""
    try:
        limit = read(CGROUP / "memory.max").strip()
        if limit == "max":
            return 0.0
        current = int(read(CGROUP / "memory.current"))
        droppable = _field(read(CGROUP / "memory.stat"), "inactive_file")
        return min(1.0, max(0, current - droppable) / int(limit))
    except (OSError, ValueError, ZeroDivisionError):
        return 0.0


def _host(read: Callable[[Path], str]) -> float:
    try:
        text = read(PROC / "meminfo")
        total, available = _field(text, "MemTotal:"), _field(text, "MemAvailable:")
        return min(1.0, max(0, total - available) / total)
    except (OSError, ValueError, ZeroDivisionError):
        return 0.0


def _field(text: str, name: str) -> int:
    """The number after a name; raises ValueError when there is none."""
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == name:
            return int(words[1])
    raise ValueError(name)
