"""Rules of the outgoing pacer that other agents were reported to break: ticker, playout and sender together."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from agent.media.encoded import encode_speech
from agent.media.opus import Decoder, Encoder
from agent.media.outbound import AudioSender
from agent.media.playout import Playout
from agent.media.rtp import RtpPacket, parse_rtp, seq_delta, ts_delta
from agent.media.ticker import MAX_CATCH_UP, Schedule

FRAME = 480
TICK_S = 0.02


class Line:
    """One call's way out in virtual time: what leaves, and when."""

    def __init__(self) -> None:
        self.playout = Playout(24_000)
        self.schedule = Schedule(0.0)
        self.sender = AudioSender(Encoder(24_000), 111, None, ssrc=1)
        self.sent: list[tuple[float, int, RtpPacket]] = []

    def wake(self, now: float) -> int:
        """The loop runs at `now`; returns the ticks run."""
        ticks = self.schedule.take(now)
        for tick in ticks:
            for data in self.sender.tick(self.playout.read(), tick, self.playout.encoded):
                self.sent.append((now, tick, parse_rtp(data)))
        return len(ticks)

    def run(self, ticks: range) -> None:
        for tick in ticks:
            self.wake(tick * TICK_S)

    def heard(self) -> np.ndarray:
        decoder = Decoder(24_000)
        return np.concatenate([decoder.decode(packet.payload) for _, _, packet in self.sent]).astype(float)


def voice(frames: int) -> np.ndarray:
    t = np.arange(frames * FRAME) / 24_000
    return (3_000 * sum(np.sin(2 * np.pi * k * 140 * t + k) / k for k in range(1, 12))).astype(np.int16)


@pytest.fixture
def line() -> Line:
    return Line()


def test_timestamps_advance_with_real_time_whatever_is_said(line: Line) -> None:
    line.run(range(50))
    line.playout.write(voice(30))
    line.run(range(50, 120))
    line.playout.write(voice(200))
    line.run(range(120, 150))
    line.playout.clear()
    line.run(range(150, 400))
    line.playout.write_encoded(encode_speech(voice(20), Encoder(24_000)))
    line.run(range(400, 440))
    _, first_tick, first = line.sent[0]
    for now, tick, packet in line.sent:
        assert ts_delta(packet.timestamp, first.timestamp) == (tick - first_tick) * 960
        assert now == pytest.approx(tick * TICK_S)
    assert [tick for _, tick, packet in line.sent if packet.marker] == [50, 120, 400]
    numbers = [packet.sequence for _, _, packet in line.sent]
    assert {seq_delta(b, a) for a, b in itertools.pairwise(numbers)} == {1}


def test_clear_is_heard_at_the_next_frame_and_speech_after_it_at_once(line: Line) -> None:
    """Reported elsewhere: seconds of silence after an interruption, because the next words kept old timestamps."""
    line.playout.write(voice(500))
    line.run(range(40))
    line.playout.clear()
    line.run(range(40, 60))
    loud = [tick for _, tick, packet in line.sent if len(packet.payload) > 60]
    assert max(loud) <= 41
    line.playout.write(voice(10))
    line.run(range(60, 70))
    spoken = [(now, packet) for now, tick, packet in line.sent if tick >= 60]
    assert len(spoken) == 10
    assert spoken[0][1].marker
    assert spoken[0][0] == pytest.approx(60 * TICK_S)
    before = line.sent[39][2]
    assert ts_delta(spoken[0][1].timestamp, before.timestamp) == (60 - 39) * 960


@pytest.mark.parametrize("encoded", [False, True])
def test_the_last_40_ms_of_a_turn_are_not_cut(line: Line, encoded: bool) -> None:
    pcm = voice(31)[: 30 * FRAME + 333]
    if encoded:
        line.playout.write_encoded(encode_speech(pcm, Encoder(24_000)))
    else:
        line.playout.write(pcm)
    line.playout.end()
    line.run(range(60))
    out = line.heard()
    end = len(pcm) + 156
    for start in range(end - 960, end - 100, 240):
        piece = slice(start, min(start + 240, end))
        assert np.std(out[piece]) > 0.5 * np.std(pcm[:9_600].astype(float))
    assert np.abs(out[end + 480 :]).max() < 600


def test_a_stall_is_caught_up_without_a_burst_beyond_the_policy(line: Line) -> None:
    line.playout.write(voice(300))
    line.run(range(50))
    assert line.wake(50 * TICK_S + 0.045) == 3
    assert line.wake(53 * TICK_S) == 1
    assert line.wake(53 * TICK_S + 1.0) == MAX_CATCH_UP
    assert line.schedule.skipped == 50 - MAX_CATCH_UP
    line.run(range(104, 150))
    per_moment = [len(list(group)) for _, group in itertools.groupby(line.sent, key=lambda item: item[0])]
    assert max(per_moment) == MAX_CATCH_UP
    # No word is lost to the stall, and media time has kept to the clock.
    assert line.playout.position == len(line.sent) * FRAME
    _, first_tick, first = line.sent[0]
    assert all(ts_delta(p.timestamp, first.timestamp) == (tick - first_tick) * 960 for _, tick, p in line.sent)


def test_catching_up_is_no_louder_than_speech_on_time(line: Line) -> None:
    on_time = Line()
    for way in (line, on_time):
        way.playout.write(voice(60))
    on_time.run(range(60))
    line.run(range(20))
    line.wake(23 * TICK_S)
    line.run(range(24, 60))
    assert np.array_equal(line.heard(), on_time.heard())


def test_what_left_is_what_is_reported_as_heard(line: Line) -> None:
    total = line.playout.write(voice(20))
    for tick in range(20):
        line.wake(tick * TICK_S)
        assert line.playout.position == (tick + 1) * FRAME
    line.run(range(20, 100))
    assert line.playout.position == total
