"""Who gets the CPU first when there is not enough: the media clock, then everything else.

Linux schedules threads, each by its own policy. Synthesis and recognition use all the CPU they can get; a media thread
that waits behind them, or behind a neighbour on a shared machine, sends its frames late whatever its schedule says.
Measured with five calls on two cores at a load of 3 to 6: 27 to 1,177 of 3,750 frames over 20 ms late at nice -10 (nice
counts only within a session or container), none over 3.5 ms late under the real-time policy. The media thread uses
little, and the kernel's real-time throttle (95 %) leaves something to others in any case.

The engines' threads go before the rest of the machine too, behind the media thread. They hold the interpreter's lock
for moments; while a neighbour keeps the holder from the CPU, the media thread waits for the lock, whatever its policy.
Measured with five whole calls on two cores beside eight busy processes, wake-ups of the media clock over 12 ms late in
20 s: 28 with the engines at nice 5, 9 and 8 at nice 0, 0 and 0 at nice -10. Where the kernel groups processes by
login (autogroup), nice does not count between groups, and no such gain showed against load from another one.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Literal

__all__ = ["favour_engine_thread", "favour_media_thread"]

REALTIME_PRIORITY = 1
"""The lowest of the real-time priorities: above all ordinary threads, below those of the system."""
MEDIA_NICE = -10
ENGINE_NICE = -10
"""Each step of nice is about a quarter of the share."""


def favour_media_thread() -> Literal["realtime", "nice", "none"]:
    """Put the calling thread (the event loop's) before all others, as far as this process is allowed to.

    Needs CAP_SYS_NICE or RLIMIT_RTPRIO for "realtime" (root, or in Docker `--cap-add SYS_NICE`), the former for "nice".
    Threads and processes it starts afterwards begin with the ordinary policy. Nothing that blocks or computes for long
    may run on this thread.
    """
    if not sys.platform.startswith("linux"):
        return "none"
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(REALTIME_PRIORITY))
    except OSError:
        return "nice" if _nice(MEDIA_NICE) else "none"
    return "realtime"


def favour_engine_thread() -> bool:
    """Put the calling thread before other processes: first thing in every engine's thread. False where not allowed."""
    return sys.platform.startswith("linux") and _nice(ENGINE_NICE)


def _nice(value: int) -> bool:
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), value)
    except OSError:
        return False
    return True
