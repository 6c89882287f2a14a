"""An adaptive jitter buffer: packets in whenever they come, one 20 ms frame out each tick. Pure: no clock, no codec.

How it decides. Every packet has a transit `arrival - timestamp`; the smallest of the last few seconds is the path's
floor. Audio is played `target` after that floor, target being the 97th percentile of transit above it (RFC 3550 calls
the spread interarrival jitter). At a tick whose packet is absent:
- a later one is there: it is lost; repaired from the next packet's in-band FEC, else concealed;
- none is there: it may yet come. Concealment bridges the wait without moving on, so a late packet is still heard and
  only the delay grows; if it turns out to be lost, what was bridged counts as played. Nothing is waited for twice.
A pause by the sender (timestamps jump, sequence numbers do not) is silence, not loss. Delay above target is worked off
by `may_shorten`: two frames become one, in quiet first, and within 2 s in any case.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from agent.media.frames import FRAME_MS
from agent.media.rtp import seq_delta, ts_delta

__all__ = ["MAX_PACKETS", "Conceal", "Decision", "Decode", "Fec", "JitterBuffer", "JitterCounters", "Silence"]

T = TypeVar("T")

MAX_PACKETS = 128
"""Hard bound: 1.28 s of the shortest packets used in calls (10 ms). The oldest goes first."""
MAX_EXCESS_S = 1.0
"""Delay above target beyond this is cut at once: nobody can talk with an agent that hears them a second late."""
CONCEAL_MS = 100
"""Concealment ends in silence here; longer extrapolation sounds like a stuck vowel and invents words."""
FADE_FROM_MS = 60
WINDOW_PACKETS = 150
"""Packets whose transit is remembered: 3 s of 20 ms packets."""
REVIEW_PACKETS = 10
"""How often the target is computed anew, in packets."""
WARM_PACKETS = 25
"""Before this many the start target holds: too few to know the path."""
QUANTILE = 0.97
MARGIN_S = 0.005
"""Above the quantile, for the scheduling of our own tick."""
RESYNC_S = 2.0
"""A transit this far from the floor means the sender's timestamps jumped."""
MAX_DROPOUT = 3_000
MAX_MISORDER = 100
"""Sequence steps that still belong to one source (RFC 3550 A.1)."""
PROBATION = 2
"""Packets in a row from a new source, or after a wild sequence jump, before it is believed (RFC 3550 A.1)."""
PATIENCE_S = 0.5
"""Delay above target waits this long for quiet before frames are merged in mid-speech."""
HYSTERESIS_S = 0.005
LOST_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class Decode(Generic[T]):
    """Decode this packet: `samples` of audio (in the RTP clock)."""

    payload: T
    samples: int


@dataclass(frozen=True, slots=True)
class Fec(Generic[T]):
    """Recover the lost packet of `samples` length from the in-band FEC of `payload`, which stays in the buffer."""

    payload: T
    samples: int


@dataclass(frozen=True, slots=True)
class Conceal:
    """Extrapolate `samples`, with a gain that falls from `gain_from` to `gain_to` (linear, 0 to 1)."""

    samples: int
    gain_from: float
    gain_to: float


@dataclass(frozen=True, slots=True)
class Silence:
    samples: int


Decision = Decode[T] | Fec[T] | Conceal | Silence


@dataclass(slots=True)
class JitterCounters:
    """What the buffer did. All but the two delays only grow."""

    received: int = 0
    lost: int = 0
    """Packets whose turn came without them."""
    fec: int = 0
    """Of the lost, repaired by FEC."""
    concealed: int = 0
    """20 ms frames (or shorter parts) extrapolated."""
    late: int = 0
    """Came after their turn."""
    duplicate: int = 0
    reordered: int = 0
    resyncs: int = 0
    """New source, sequence or timestamp jump."""
    dropped: int = 0
    """Thrown away: a bound was reached, or a foreign source."""
    merged: int = 0
    """Frames saved by merging two into one, to bring the delay back."""
    delay_ms: float = 0.0
    target_ms: float = 0.0


@dataclass(slots=True)
class _Entry(Generic[T]):
    timestamp: int
    samples: int
    """0 for a packet without audio (telephone-event): it only takes its place in the sequence."""
    payload: T | None
    fec: bool
    dtx: bool


class JitterBuffer(Generic[T]):
    """See the module.

    Args:
        clock_hz: RTP clock of timestamps and of `samples`.
        min_ms, start_ms, max_ms: bounds of the target delay, and its value until the path is known.
    """

    def __init__(self, *, clock_hz: int = 48_000, min_ms: int = 20, start_ms: int = 40, max_ms: int = 120) -> None:
        self.clock_hz = clock_hz
        self.frame = clock_hz * FRAME_MS // 1000
        self.counters = JitterCounters(target_ms=float(start_ms))
        self._min_s, self._start_s, self._max_s = min_ms / 1000, start_ms / 1000, max_ms / 1000
        self._conceal_max = clock_hz * CONCEAL_MS // 1000
        self._fade_from = clock_hz * FADE_FROM_MS // 1000
        self._target_s = self._start_s
        self._carry = 0
        self._ssrc: int | None = None
        self._suspect: tuple[int, int, int] | None = None
        self._clear_stream()

    def _clear_stream(self) -> None:
        self._entries: dict[int, _Entry[T]] = {}
        self._order: list[int] = []
        self._highest: int | None = None
        self._last_ts = 0
        self._next_seq: int | None = None
        self._next_ts = 0
        self._bridged = 0
        self._in_dtx = False
        self._in_pause = False
        self._lost_run = 0
        self._lost_seqs: deque[int] = deque(maxlen=LOST_REMEMBERED)
        self._transits: deque[float] = deque(maxlen=WINDOW_PACKETS)
        self._floor: float = 0.0
        self._review = 0
        self._excess_since: float | None = None
        self._since_merge = 0

    # --- in

    def push(
        self,
        ssrc: int,
        sequence: int,
        timestamp: int,
        payload: T,
        now: float,
        *,
        samples: int,
        fec: bool = False,
        dtx: bool = False,
    ) -> None:
        """One audio packet.

        Args:
            samples: its duration in the RTP clock, > 0.
            fec: it carries a copy of the packet before it.
            dtx: it says that the sender stops sending until there is speech.
        """
        self.counters.received += 1
        if not self._admit(ssrc, sequence):
            return
        seq = self._extend(sequence)
        ts = self._last_ts + ts_delta(timestamp, self._last_ts & 0xFFFF_FFFF) if self._transits else timestamp
        if self._transits and abs(now - ts / self.clock_hz - self._floor) > RESYNC_S:
            self._restart(ssrc)
            seq, ts = self._extend(sequence), timestamp
        if self._insert(seq, _Entry(ts, samples, payload, fec, dtx)):
            self._last_ts = ts if seq == self._highest else self._last_ts
            self._observe(now - ts / self.clock_hz)

    def push_event(self, ssrc: int, sequence: int) -> None:
        """A packet that takes its sequence number and makes no audio (telephone-event): its place is not a loss."""
        if self._ssrc == ssrc and self._highest is not None and self._admit(ssrc, sequence):
            self._insert(self._extend(sequence), _Entry(0, 0, None, fec=False, dtx=False))

    def _admit(self, ssrc: int, sequence: int) -> bool:
        if self._ssrc is None:
            self._ssrc = ssrc
            return True
        if ssrc == self._ssrc:
            if self._highest is None:
                return True
            ahead = seq_delta(sequence, self._highest & 0xFFFF)
            if -MAX_MISORDER <= ahead <= MAX_DROPOUT:
                self._suspect = None
                return True
        suspect = self._suspect
        count = suspect[2] + 1 if suspect and suspect[0] == ssrc and suspect[1] == sequence else 1
        if count >= PROBATION:
            self._restart(ssrc)
            return True
        self._suspect = (ssrc, (sequence + 1) & 0xFFFF, count)
        self.counters.dropped += 1
        return False

    def _restart(self, ssrc: int) -> None:
        self.counters.resyncs += 1
        self.counters.dropped += len(self._entries)
        self._clear_stream()
        self._ssrc = ssrc
        self._suspect = None

    def _extend(self, sequence: int) -> int:
        if self._highest is None:
            # High enough that a packet reordered before the first one stays positive.
            self._highest = 0x10000 + sequence
            return self._highest
        return self._highest + seq_delta(sequence, self._highest & 0xFFFF)

    def _insert(self, seq: int, entry: _Entry[T]) -> bool:
        assert self._highest is not None
        if seq in self._entries:
            self.counters.duplicate += 1
            return False
        if self._next_seq is not None and seq < self._next_seq:
            if seq in self._lost_seqs:
                self._lost_seqs.remove(seq)
                self.counters.late += 1
            else:
                self.counters.duplicate += 1
            return False
        if seq < self._highest:
            self.counters.reordered += 1
        else:
            self._highest = seq
        if len(self._order) >= MAX_PACKETS:
            self._pop()
            self.counters.dropped += 1
        self._entries[seq] = entry
        insort(self._order, seq)
        return True

    def _observe(self, transit: float) -> None:
        first = not self._transits
        self._transits.append(transit)
        if first or transit < self._floor:
            self._floor = transit
        self._review += 1
        if self._review >= REVIEW_PACKETS:
            self._review = 0
            ordered = sorted(self._transits)
            self._floor = ordered[0]
            spread = ordered[int(len(ordered) * QUANTILE)] - self._floor + MARGIN_S
            low = self._min_s if len(ordered) >= WARM_PACKETS else self._start_s
            self._target_s = min(self._max_s, max(low, spread))
            self.counters.target_ms = round(self._target_s * 1000, 1)

    # --- out

    def tick(self, now: float) -> list[Decision[T]]:
        """The decisions that make the next 20 ms, together with what earlier longer packets left over."""
        decisions: list[Decision[T]] = []
        while self._carry < self.frame:
            decision = self._decide(now, self.frame - self._carry)
            self._carry += decision.samples
            decisions.append(decision)
        self._carry -= self.frame
        self._since_merge += 1
        self._cut_excess(now)
        return decisions

    def may_shorten(self, now: float, *, quiet: Callable[[], bool]) -> bool:
        """After a tick: whether the next frame should be merged into this one, because the delay is above target.

        Args:
            quiet: asked only where it matters, whether the frame just made is so quiet that nobody hears the joint.
        """
        excess = self._excess(now)
        if excess < HYSTERESIS_S or not self._next_is_real():
            if excess < 0:
                self._excess_since = None
            return False
        if self._excess_since is None:
            self._excess_since = now
        impatient = now - self._excess_since >= PATIENCE_S
        pace = 1 if excess > 0.4 else 2 if excess > 0.15 else 4
        if quiet() or (impatient and self._since_merge >= pace):
            self._since_merge = 0
            self.counters.merged += 1
            return True
        return False

    def _excess(self, now: float) -> float:
        """Seconds that could be cut with the target delay still kept; negative while the delay is at target."""
        if self._next_seq is None or not self._transits:
            return -1.0
        return now - self._floor - (self._next_ts - self._carry) / self.clock_hz - self._target_s

    def _next_is_real(self) -> bool:
        if not self._order or self._order[0] != self._next_seq:
            return False
        head = self._entries[self._order[0]]
        return self._carry + head.samples >= self.frame and head.timestamp == self._next_ts

    def _cut_excess(self, now: float) -> None:
        excess = self._excess(now)
        if self._next_seq is not None and self._transits:
            self.counters.delay_ms = round(max(0.0, excess + self._target_s) * 1000 + FRAME_MS, 1)
        if excess <= MAX_EXCESS_S:
            return
        while len(self._order) > 1 and self._excess(now) > 0:
            self._pop()
            self.counters.dropped += 1

    def _pop(self) -> _Entry[T]:
        seq = self._order.pop(0)
        entry = self._entries.pop(seq)
        if self._next_seq is not None:
            self._account_lost(seq)
            self._next_seq = seq + 1
            if entry.samples:
                self._next_ts = max(self._next_ts, entry.timestamp + entry.samples)
        return entry

    def _decide(self, now: float, need: int) -> Decision[T]:
        while self._order:
            seq = self._order[0]
            head = self._entries[seq]
            if not head.samples:
                # Key presses take the place of audio: what is missing meanwhile is a pause.
                self._in_dtx = True
                self._pop()
                continue
            due = now - self._floor - head.timestamp / self.clock_hz >= self._target_s
            if self._next_seq is None:
                if not due:
                    return Silence(need)
                self._next_seq, self._next_ts = seq, head.timestamp
            gap = head.timestamp - self._next_ts
            if gap <= -head.samples:
                self._pop()
                self.counters.late += 1
                continue
            covered = min(max(gap, 0), self._bridged)
            self._next_ts += covered
            self._bridged -= covered
            gap -= covered
            if seq == self._next_seq and (covered or gap > 0):
                self._in_pause = True
            if gap > 0:
                return self._pause(gap, need) if self._in_pause else self._repair(seq, head, gap)
            if self._in_pause and not due:
                # A talk spurt begins: waiting for the whole target again costs nothing here.
                return Silence(need)
            self._account_lost(seq)
            return self._play(head)
        return self._underrun(need)

    def _play(self, head: _Entry[T]) -> Decision[T]:
        self._pop()
        self._bridged = 0
        self._in_pause = False
        self._lost_run = 0
        self._in_dtx = head.dtx
        assert head.payload is not None
        return Decode(head.payload, head.samples)

    def _pause(self, gap: int, need: int) -> Silence:
        step = min(gap, need)
        self._next_ts += step
        return Silence(step)

    def _repair(self, seq: int, head: _Entry[T], gap: int) -> Decision[T]:
        if gap == head.samples and head.fec:
            self._account_lost(seq)
            self._next_ts += gap
            self.counters.fec += 1
            self._lost_run = 0
            assert head.payload is not None
            return Fec(head.payload, gap)
        reserve = head.samples if head.fec and gap > head.samples else 0
        step = min(gap - reserve, self.frame)
        self._next_ts += step
        return self._extrapolate(step)

    def _underrun(self, need: int) -> Decision[T]:
        if self._next_seq is None:
            return Silence(need)
        self._bridged += need
        if self._in_dtx:
            return Silence(need)
        return self._extrapolate(need)

    def _extrapolate(self, samples: int) -> Conceal | Silence:
        start = self._lost_run
        if start >= self._conceal_max:
            return Silence(samples)
        self._lost_run = start + samples
        self.counters.concealed += 1
        fade = self._conceal_max - self._fade_from

        def gain(at: int) -> float:
            return min(1.0, max(0.0, (self._conceal_max - at) / fade))

        return Conceal(samples, gain(start), gain(self._lost_run))

    def _account_lost(self, seq: int) -> None:
        """`seq` is next: what lies between it and the last one played has been missed."""
        if self._next_seq is None:
            return
        missing = seq - self._next_seq
        if missing > 0:
            self.counters.lost += missing
            self._lost_seqs.extend(range(max(self._next_seq, seq - LOST_REMEMBERED), seq))
            self._next_seq = seq
