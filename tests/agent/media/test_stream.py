"""AudioSender to AudioReceiver without a network: timestamps, marker bits, DTX, loss, key presses, hostile packets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import MediaError
from agent.media.frames import Pcm
from agent.media.inbound import AudioReceiver
from agent.media.jitter import JitterBuffer
from agent.media.opus import Encoder
from agent.media.outbound import AudioSender
from agent.media.rtp import build_rtp, parse_rtp, seq_delta, ts_delta

OPUS, EVENT = 111, 126


def sender() -> AudioSender:
    return AudioSender(Encoder(24_000), OPUS, (EVENT, 8_000), ssrc=42)


def receiver() -> AudioReceiver:
    return AudioReceiver(OPUS, {EVENT: 8_000}, JitterBuffer())


def tone(tick: int) -> Pcm:
    t = (np.arange(480) + tick * 480) / 24_000
    return (9000 * np.sin(2 * np.pi * 300 * t)).astype(np.int16)


def level(frame: Pcm) -> float:
    return float(np.abs(frame.astype(float)).mean())


def test_timestamps_follow_real_time_across_silence_and_each_spurt_is_marked() -> None:
    out, packets = sender(), []
    for tick in range(200):
        speech = 20 <= tick < 50 or 150 <= tick < 170
        packets += [(tick, parse_rtp(p)) for p in out.tick(tone(tick) if speech else None, tick)]
    first_tick, first = packets[0]
    for tick, packet in packets:
        assert ts_delta(packet.timestamp, first.timestamp) == (tick - first_tick) * 960
    assert [tick for tick, packet in packets if packet.marker] == [20, 150]
    numbers = [packet.sequence for _, packet in packets]
    assert [seq_delta(b, a) for a, b in itertools.pairwise(numbers)] == [1] * (len(numbers) - 1)


def test_silence_is_dtx_with_a_keep_alive_every_400_ms() -> None:
    out, sent = sender(), []
    for tick in range(250):
        sent += [tick] * len(out.tick(tone(tick) if tick < 50 else None, tick))
    silent = [tick for tick in sent if tick >= 75]
    gaps = {b - a for a, b in itertools.pairwise(silent)}
    assert gaps == {20}
    assert len([tick for tick in sent if 50 <= tick < 75]) < 20


def test_skipped_ticks_leave_a_gap_in_time_and_none_in_sequence() -> None:
    out = sender()
    (a,) = out.tick(tone(0), 0)
    (b,) = out.tick(tone(1), 9)
    first, second = parse_rtp(a), parse_rtp(b)
    assert ts_delta(second.timestamp, first.timestamp) == 9 * 960
    assert seq_delta(second.sequence, first.sequence) == 1


def test_speech_arrives_whole_and_silence_stays_silent() -> None:
    out, into, frames = sender(), receiver(), []
    for tick in range(200):
        now = 50 + tick * 0.02
        for packet in out.tick(tone(tick) if 20 <= tick < 120 else None, tick):
            into.receive(packet, now)
        frame, _ = into.tick(now + 0.001)
        assert frame.shape == (320,)
        assert frame.dtype == np.int16
        frames.append(frame)
    loud = [n for n, frame in enumerate(frames) if level(frame) > 2000]
    assert 98 <= len(loud) <= 103
    assert loud == list(range(loud[0], loud[-1] + 1))
    assert max(level(frame) for frame in frames[150:]) < 50
    assert (into.counters.lost, into.corrupt) == (0, 0)


def through(lost: set[int], ticks: int) -> tuple[list[Pcm], AudioReceiver]:
    """Voiced sound through sender and receiver, without the packets of `lost` ticks."""
    at = np.arange(480 * ticks) / 24_000
    phase = 2 * np.pi * np.cumsum(120 + 30 * np.sin(2 * np.pi * 0.8 * at)) / 24_000
    pcm = (4000 * sum(np.sin(k * phase) / k for k in range(1, 12))).astype(np.int16)
    out = AudioSender(Encoder(24_000, expected_loss_pct=10), OPUS, None, ssrc=42)
    into, frames = receiver(), []
    for tick in range(ticks):
        now = 50 + tick * 0.02
        for packet in out.tick(pcm[tick * 480 : (tick + 1) * 480], tick):
            if tick not in lost:
                into.receive(packet, now)
        frames.append(into.tick(now + 0.001)[0])
    return frames, into


@pytest.mark.parametrize("every", [50, 20, 7])
def test_lost_packets_leave_no_hole_in_voice(every: int) -> None:
    lost = {tick for tick in range(20, 290) if tick % every == every - 1}
    whole, _ = through(set(), 300)
    frames, into = through(lost, 300)
    ratios = [level(a) / level(b) for a, b in zip(frames[10:], whole[10:], strict=True)]
    assert min(ratios) > 0.2
    counters = into.counters
    assert counters.lost == len(lost) == counters.fec + counters.concealed
    # libopus copies only frames with enough voice in them; this sound has it in two of three.
    assert counters.fec >= 0.4 * len(lost)


def test_key_presses_travel_both_in_order_and_make_no_sound() -> None:
    out, into, digits = sender(), receiver(), []
    out.send_dtmf("19#")
    frames = []
    for tick in range(60):
        now = 50 + tick * 0.02
        for packet in out.tick(None, tick):
            into.receive(packet, now)
        frame, got = into.tick(now + 0.001)
        frames.append(frame)
        digits += got
    assert digits == ["1", "9", "#"]
    assert max(level(frame) for frame in frames) < 50
    assert into.counters.lost == 0


def test_speech_goes_on_after_a_key_press_with_a_new_marker() -> None:
    out, markers = sender(), []
    for tick in range(30):
        if tick == 10:
            out.send_dtmf("5")
        markers += [(tick, parse_rtp(p).payload_type) for p in out.tick(tone(tick), tick) if parse_rtp(p).marker]
    assert markers == [(0, OPUS), (10, EVENT), (15, OPUS)]


def test_without_telephone_event_a_press_is_an_error() -> None:
    with pytest.raises(MediaError, match="telephone-event"):
        AudioSender(Encoder(24_000), OPUS, None, ssrc=1).send_dtmf("1")


def test_a_packet_that_does_not_decode_is_concealed_and_counted() -> None:
    out, into, frames = sender(), receiver(), []
    for tick in range(60):
        now = 50 + tick * 0.02
        for data in out.tick(tone(tick), tick):
            packet = parse_rtp(data)
            if tick == 30:
                # Code 3, one frame, CBR with a padding length that runs past the end.
                broken = bytes([packet.payload[0] | 3, 0x41, 0xFF, 0xFF])
                data = build_rtp(OPUS, False, packet.sequence, packet.timestamp, packet.ssrc, broken)
            into.receive(data, now)
        frames.append(into.tick(now + 0.001)[0])
    assert into.corrupt == 1
    assert min(level(frame) for frame in frames[10:]) > 1500


def test_unknown_payload_types_are_counted_and_dropped() -> None:
    into = receiver()
    into.receive(build_rtp(0, False, 1, 1, 1, b"pcmu"), 0.0)
    into.receive(build_rtp(OPUS, False, 1, 1, 1, b""), 0.0)
    into.receive(b"short", 0.0)
    assert into.corrupt == 3
    assert into.counters.received == 0


HEADERS = st.tuples(
    st.sampled_from([OPUS, EVENT, 0]),
    st.integers(0, 65535),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2),
    st.binary(max_size=60),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(HEADERS, st.binary(max_size=80)), max_size=60))
def test_hostile_packets_never_raise_and_every_tick_makes_a_frame(
    packets: list[tuple[int, int, int, int, bytes] | bytes],
) -> None:
    into, now = receiver(), 10.0
    for item in packets:
        data = item if isinstance(item, bytes) else build_rtp(item[0], True, *item[1:])
        into.receive(data, now)
        frame, _ = into.tick(now)
        assert frame.shape == (320,)
        now += 0.02
