"""The jitter buffer in virtual time: payloads are packet numbers, so what was played is plain to see."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.media.jitter import MAX_PACKETS, Conceal, Decision, Decode, Fec, JitterBuffer, Silence

TICK_S = 0.02
SSRC = 77


@dataclass
class Sent:
    """One packet on its way."""

    arrives: float
    number: int
    sequence: int
    timestamp: int
    samples: int = 960
    ssrc: int = SSRC
    fec: bool = True
    dtx: bool = False
    event: bool = False


@dataclass
class Played:
    ticks: list[list[Decision[int]]] = field(default_factory=list)
    merged_at: list[int] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    most_held: int = 0

    @property
    def decisions(self) -> list[Decision[int]]:
        return [decision for tick in self.ticks for decision in tick]

    @property
    def real(self) -> list[int]:
        return [d.payload for d in self.decisions if isinstance(d, Decode)]

    def count(self, kind: type) -> int:
        return sum(isinstance(d, kind) for d in self.decisions)


def stream(
    count: int,
    *,
    samples: int = 960,
    first_seq: int = 1000,
    first_ts: int = 5000,
    start: float = 100.0,
    delay: Iterable[float] | None = None,
    fec: bool = True,
) -> list[Sent]:
    delays = list(delay) if delay is not None else [0.0] * count
    return [
        Sent(
            arrives=start + i * samples / 48_000 + delays[i],
            number=i,
            sequence=(first_seq + i) & 0xFFFF,
            timestamp=(first_ts + i * samples) & 0xFFFF_FFFF,
            samples=samples,
            fec=fec,
        )
        for i in range(count)
    ]


def play(
    buffer: JitterBuffer[int], packets: list[Sent], *, seconds: float, start: float = 100.0, quiet: bool = False
) -> Played:
    """Deliver packets at their times and tick every 20 ms, half a tick off the sender's clock."""
    waiting = sorted(packets, key=lambda p: p.arrives)
    played = Played()
    for n in range(int(seconds / TICK_S)):
        now = start + 0.01 + n * TICK_S
        while waiting and waiting[0].arrives <= now:
            p = waiting.pop(0)
            if p.event:
                buffer.push_event(p.ssrc, p.sequence)
            else:
                buffer.push(
                    p.ssrc, p.sequence, p.timestamp, p.number, p.arrives, samples=p.samples, fec=p.fec, dtx=p.dtx
                )
            played.most_held = max(played.most_held, len(buffer._order))
        made = buffer.tick(now)
        if buffer.may_shorten(now, quiet=lambda: quiet):
            made = made + buffer.tick(now)
            played.merged_at.append(n)
        played.ticks.append(made)
        played.delays.append(buffer.counters.delay_ms)
    return played


@pytest.fixture
def buffer() -> JitterBuffer[int]:
    return JitterBuffer()


def test_a_clean_stream_is_played_whole_and_in_order(buffer: JitterBuffer[int]) -> None:
    played = play(buffer, stream(200), seconds=4.2, quiet=True)
    assert played.real == list(range(200))
    counters = buffer.counters
    assert (counters.received, counters.lost, counters.late) == (200, 0, 0)
    # Concealment only after the stream has ended.
    assert all(isinstance(d, Decode) for tick in played.ticks[3:195] for d in tick)


def test_the_first_frame_waits_for_the_start_target(buffer: JitterBuffer[int]) -> None:
    played = play(buffer, stream(20), seconds=0.4)
    first = next(n for n, tick in enumerate(played.ticks) if isinstance(tick[0], Decode))
    assert 0.04 <= 0.01 + first * TICK_S < 0.06


def test_every_tick_makes_at_least_one_frame_and_carries_the_rest(buffer: JitterBuffer[int]) -> None:
    for samples in (480, 960, 1440, 1920, 2880):
        fresh: JitterBuffer[int] = JitterBuffer()
        played = play(fresh, stream(60, samples=samples), seconds=60 * samples / 48_000)
        total = 0
        for n, tick in enumerate(played.ticks):
            total += sum(d.samples for d in tick)
            extra = sum(1 for m in played.merged_at if m <= n)
            assert 0 <= total - 960 * (n + 1 + extra) < samples
        assert played.real == list(range(len(played.real)))
        assert len(played.real) >= 60 - 8 * 960 // samples
        assert fresh.counters.lost == 0
    assert buffer.counters.received == 0


def test_reordered_packets_are_put_in_order(buffer: JitterBuffer[int]) -> None:
    delays = [0.0] * 100
    for n in range(10, 100, 10):
        delays[n] = 0.03
    played = play(buffer, stream(100, delay=delays), seconds=2.2)
    assert played.real[:95] == list(range(95))
    assert buffer.counters.reordered >= 8
    assert buffer.counters.lost == 0


def test_duplicates_are_played_once(buffer: JitterBuffer[int]) -> None:
    packets = stream(50)
    again = [Sent(p.arrives + 0.005, p.number, p.sequence, p.timestamp) for p in packets]
    long_after = [Sent(p.arrives + 0.3, p.number, p.sequence, p.timestamp) for p in packets[:20]]
    played = play(buffer, packets + again + long_after, seconds=1.2)
    assert played.real == list(range(50))
    assert buffer.counters.duplicate == 70


def test_a_lost_packet_is_repaired_from_the_next_ones_fec(buffer: JitterBuffer[int]) -> None:
    packets = [p for p in stream(60) if p.number != 30]
    played = play(buffer, packets, seconds=1.0)
    at = next(n for n, tick in enumerate(played.ticks) if any(isinstance(d, Fec) for d in tick))
    assert played.ticks[at] == [Fec(31, 960)]
    assert played.ticks[at - 1] == [Decode(29, 960)]
    assert played.ticks[at + 1] == [Decode(31, 960)]
    assert (buffer.counters.lost, buffer.counters.fec, buffer.counters.concealed) == (1, 1, 0)


def test_without_fec_a_lost_packet_is_concealed(buffer: JitterBuffer[int]) -> None:
    packets = [p for p in stream(60, fec=False) if p.number != 30]
    played = play(buffer, packets, seconds=1.0)
    assert Conceal(960, 1.0, 1.0) in played.decisions
    assert (buffer.counters.lost, buffer.counters.fec, buffer.counters.concealed) == (1, 0, 1)


def test_one_loss_adds_no_delay(buffer: JitterBuffer[int]) -> None:
    packets = [p for p in stream(300) if p.number != 100]
    played = play(buffer, packets, seconds=5.8)
    assert abs(played.delays[-20] - played.delays[90]) <= 2.0
    assert played.count(Silence) <= 3


def test_a_burst_of_three_is_concealed_and_its_last_repaired(buffer: JitterBuffer[int]) -> None:
    packets = [p for p in stream(60) if p.number not in (30, 31, 32)]
    played = play(buffer, packets, seconds=1.0)
    middle = [d for d in played.decisions if not isinstance(d, Decode | Silence)]
    assert [type(d) for d in middle] == [Conceal, Conceal, Fec]
    assert (buffer.counters.lost, buffer.counters.fec) == (3, 1)


def test_concealment_fades_to_silence_within_100_ms(buffer: JitterBuffer[int]) -> None:
    packets = [p for p in stream(80, fec=False) if not 30 <= p.number < 50]
    played = play(buffer, packets, seconds=1.5)
    hole = [d for d in played.decisions if isinstance(d, Conceal)][:5]
    assert [d.samples for d in hole] == [960] * 5
    assert hole[0].gain_from == 1.0
    assert hole[-1].gain_to == 0.0
    assert all(a.gain_to == b.gain_from for a, b in itertools.pairwise(hole))
    assert buffer.counters.lost == 20
    assert played.real[-1] >= 70


def test_a_packet_that_comes_after_its_turn_is_late_and_not_played(buffer: JitterBuffer[int]) -> None:
    delays = [0.0] * 60
    delays[30] = 0.2
    played = play(buffer, stream(60, delay=delays), seconds=1.0)
    assert 30 not in played.real
    assert buffer.counters.late == 1
    assert buffer.counters.lost == 1


def test_a_delayed_packet_is_still_heard_when_nothing_overtook_it(buffer: JitterBuffer[int]) -> None:
    # A stall of the whole path: all packets from 50 on wait until the same moment.
    packets = stream(200)
    stalled = packets[50].arrives + 0.15
    for p in packets[50:]:
        p.arrives = max(p.arrives, stalled)
    played = play(buffer, packets, seconds=4.4, quiet=True)
    assert played.real == list(range(200))
    assert buffer.counters.lost == 0


@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize("stall", [0.2, 0.5, 0.9])
def test_after_a_burst_the_delay_is_back_within_two_seconds(
    buffer: JitterBuffer[int], stall: float, quiet: bool
) -> None:
    packets = stream(400)
    released = packets[100].arrives + stall
    for p in packets[100:]:
        p.arrives = max(p.arrives, released)
    played = play(buffer, packets, seconds=7.8, quiet=quiet)
    after = int((released - 100.0 + 2.0) / TICK_S)
    assert max(played.delays[after:380]) <= buffer._max_s * 1000 + 45
    assert buffer.counters.merged > 0
    assert len(played.real) >= 385


def test_the_target_follows_the_jitter_up_and_down() -> None:
    rng = random.Random(1)
    buffer: JitterBuffer[int] = JitterBuffer()
    calm = [0.0] * 200
    rough = [rng.uniform(0, 0.06) for _ in range(300)]
    play(buffer, stream(200, delay=calm), seconds=4.0)
    assert buffer.counters.target_ms == 20.0
    rest = stream(300, delay=rough, first_seq=1200, first_ts=5000 + 200 * 960, start=104.0)
    play(buffer, rest, seconds=6.0, start=104.0)
    assert 50.0 <= buffer.counters.target_ms <= 80.0
    rest = stream(300, first_seq=1500, first_ts=5000 + 500 * 960, start=110.0)
    play(buffer, rest, seconds=6.0, start=110.0)
    assert buffer.counters.target_ms == 20.0


@pytest.mark.parametrize("jitter", [0.03, 0.06])
def test_jitter_within_the_targets_reach_costs_almost_nothing(jitter: float) -> None:
    rng = random.Random(2)
    buffer: JitterBuffer[int] = JitterBuffer()
    delays = [rng.uniform(0, jitter) for _ in range(1000)]
    played = play(buffer, stream(1000, delay=delays), seconds=20.0, quiet=True)
    assert len(played.real) + played.count(Fec) >= 975
    assert played.count(Conceal) <= 30


@pytest.mark.parametrize("loss", [0.01, 0.02, 0.05, 0.1])
def test_random_loss_with_fec_leaves_few_holes(loss: float) -> None:
    rng = random.Random(3)
    buffer: JitterBuffer[int] = JitterBuffer()
    packets = [p for p in stream(2000) if rng.random() >= loss]
    played = play(buffer, packets, seconds=40.0, quiet=True)
    good = len(played.real) + played.count(Fec)
    assert good >= 2000 * (1 - 1.5 * loss * loss) - 5
    assert buffer.counters.lost == 2000 - len(packets)


@pytest.mark.parametrize("samples", [480, 960, 1440, 1920, 2880])
def test_every_packet_size_survives_loss_and_jitter_without_lasting_delay(samples: int) -> None:
    rng = random.Random(3)
    count = 60 * 48_000 // samples
    packets = stream(count, samples=samples, delay=[rng.uniform(0, 0.03) for _ in range(count)])
    arriving = [p for p in packets if rng.random() >= 0.02]
    buffer: JitterBuffer[int] = JitterBuffer()
    played = play(buffer, arriving, seconds=60.5)
    ok = (len(played.real) + played.count(Fec)) / count
    assert ok >= 0.97
    # The target follows the 30 ms of jitter; a packet of 60 ms comes when it is over, so its frames wait for it.
    assert max(played.delays[-100:-30]) <= 120 + samples / 48


def test_sequence_numbers_and_timestamps_wrap(buffer: JitterBuffer[int]) -> None:
    packets = stream(200, first_seq=65_500, first_ts=0xFFFF_FFFF - 50 * 960)
    played = play(buffer, [p for p in packets if p.number != 36], seconds=4.2, quiet=True)
    assert played.real == [n for n in range(200) if n != 36]
    assert (buffer.counters.lost, buffer.counters.fec, buffer.counters.resyncs) == (1, 1, 0)


def test_a_pause_of_the_sender_is_silence_and_no_loss(buffer: JitterBuffer[int]) -> None:
    packets = stream(50)
    packets[-1].dtx = True
    later = stream(50, first_seq=1050, first_ts=5000 + 150 * 960, start=103.0)
    for p in later:
        p.number += 50
    played = play(buffer, packets + later, seconds=4.2)
    assert played.real == list(range(100))
    assert (buffer.counters.lost, buffer.counters.resyncs) == (0, 0)
    # None of the pause was concealed; what was is the end of the stream.
    silent = [n for n, tick in enumerate(played.ticks) if all(isinstance(d, Silence) for d in tick)]
    assert len([n for n in silent if 50 <= n < 160]) >= 98
    assert not [n for n, tick in enumerate(played.ticks[:190]) if any(isinstance(d, Conceal) for d in tick)]


def test_keep_alives_in_a_long_pause_keep_it_silent(buffer: JitterBuffer[int]) -> None:
    packets = [Sent(100 + n * 0.4, n, 1000 + n, 5000 + n * 20 * 960, dtx=True, fec=False) for n in range(30)]
    played = play(buffer, packets, seconds=12.0)
    assert played.real == list(range(30))
    assert played.count(Conceal) == 0
    assert buffer.counters.lost == 0


def test_a_loss_at_the_end_of_a_pause_is_still_a_loss(buffer: JitterBuffer[int]) -> None:
    packets = stream(50)
    packets[-1].dtx = True
    later = stream(50, first_seq=1051, first_ts=5000 + 151 * 960, start=103.02)
    play(buffer, packets + later, seconds=4.2)
    assert buffer.counters.lost == 1


def test_a_pause_that_does_not_advance_timestamps_is_taken_up_again(buffer: JitterBuffer[int]) -> None:
    later = stream(100, first_seq=1050, first_ts=5000 + 50 * 960, start=111.0)
    for p in later:
        p.number += 50
    played = play(buffer, stream(50) + later, seconds=13.2, quiet=True)
    assert played.real == list(range(150))
    assert buffer.counters.resyncs == 1
    assert played.delays[-20] < 80


def test_a_new_source_is_followed_after_two_packets(buffer: JitterBuffer[int]) -> None:
    other = stream(50, first_seq=9, first_ts=123_456, start=101.0)
    for p in other:
        p.ssrc, p.number = 99, p.number + 1000
    played = play(buffer, stream(50) + other, seconds=2.2)
    assert played.real[:49] == list(range(49))
    assert played.real[-49:] == list(range(1001, 1050))
    assert buffer.counters.resyncs == 1


def test_single_foreign_packets_do_not_disturb_the_stream(buffer: JitterBuffer[int]) -> None:
    rng = random.Random(4)
    foreign = [Sent(100 + n * 0.1, 9000 + n, rng.randrange(65536), rng.randrange(2**32), ssrc=5) for n in range(20)]
    played = play(buffer, stream(100) + foreign, seconds=2.2)
    assert played.real == list(range(100))
    assert buffer.counters.dropped == 20


def test_a_timestamp_jump_resynchronises(buffer: JitterBuffer[int]) -> None:
    later = stream(100, first_seq=1050, first_ts=3_000_000_000, start=101.0)
    for p in later:
        p.number += 50
    played = play(buffer, stream(50) + later, seconds=3.2)
    assert buffer.counters.resyncs == 1
    assert played.real[-90:] == list(range(60, 150))


def test_a_key_press_takes_its_sequence_number_and_is_no_loss(buffer: JitterBuffer[int]) -> None:
    packets = stream(100)
    for p in packets[40:48]:
        p.event = True
    played = play(buffer, packets, seconds=2.0)
    assert played.real[:85] == [n for n in range(100) if not 40 <= n < 48][:85]
    assert not [d for tick in played.ticks[:90] for d in tick if isinstance(d, Conceal)]
    assert buffer.counters.lost == 0


def test_a_drifting_clock_is_followed_without_growing_delay() -> None:
    for drift in (0.999, 1.001):
        buffer: JitterBuffer[int] = JitterBuffer()
        packets = stream(3000)
        for p in packets:
            p.arrives = 100 + (p.arrives - 100) * drift
        played = play(buffer, packets, seconds=59.0, quiet=True)
        assert max(played.delays[200:2900]) < 90
        assert len(played.real) > 2900
        assert buffer.counters.lost == 0


def test_more_than_a_second_of_delay_is_cut_at_once(buffer: JitterBuffer[int]) -> None:
    packets = stream(300)
    released = packets[100].arrives + 1.8
    for p in packets[100:]:
        p.arrives = max(p.arrives, released)
    played = play(buffer, packets, seconds=5.8)
    at = int((released - 100) / TICK_S)
    assert max(played.delays[at + 3 :]) <= 1_200
    assert buffer.counters.dropped > 0


def test_the_buffer_is_bounded_in_packets(buffer: JitterBuffer[int]) -> None:
    for n in range(5000):
        buffer.push(SSRC, n & 0xFFFF, n * 480, n, 100.0 + n * 0.01 if n < 5 else 100.05, samples=480)
        assert len(buffer._entries) == len(buffer._order) <= MAX_PACKETS


PACKETS = st.tuples(
    st.integers(0, 2),
    st.one_of(st.integers(0, 40), st.integers(0, 65535)),
    st.one_of(st.integers(0, 40).map(lambda n: n * 960), st.integers(0, 2**32 - 1)),
    st.sampled_from([120, 480, 960, 2880, 5760]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.floats(0, 0.2),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(PACKETS, max_size=120))
def test_any_packets_leave_it_bounded_and_every_tick_whole(
    packets: list[tuple[int, int, int, int, bool, bool, bool, float]],
) -> None:
    buffer: JitterBuffer[int] = JitterBuffer()
    now, carried = 50.0, 0
    for n, (ssrc, sequence, timestamp, samples, fec, dtx, event, wait) in enumerate(packets):
        now += wait
        if event:
            buffer.push_event(ssrc, sequence)
        else:
            buffer.push(ssrc, sequence, timestamp, n, now, samples=samples, fec=fec, dtx=dtx)
        made = buffer.tick(now)
        if buffer.may_shorten(now, quiet=functools.partial(bool, fec)):
            made += buffer.tick(now)
            carried -= 960
        carried += sum(d.samples for d in made) - 960
        assert all(d.samples > 0 for d in made)
        assert 0 <= carried < 5760
        assert len(buffer._entries) == len(buffer._order) <= MAX_PACKETS
        assert buffer._order == sorted(set(buffer._order))
