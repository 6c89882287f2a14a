"""The queue of speech: positions count what left, cutting fades, bounds hold."""

from __future__ import annotations

import numpy as np
import pytest

from agent.errors import MediaError
from agent.media.encoded import EncodedSpeech
from agent.media.playout import FADE_MS, KEPT_S, Playout


def ramp(count: int) -> np.ndarray:
    return np.arange(1, count + 1).astype(np.int16)


def test_frames_come_out_whole_and_in_order() -> None:
    playout = Playout(24_000)
    assert playout.write(ramp(700)) == 700
    assert playout.write(ramp(260)) == 960
    first, second = playout.read(), playout.read()
    assert first is not None
    assert second is not None
    assert np.array_equal(np.concatenate((first, second)), np.concatenate((ramp(700), ramp(260))))
    assert playout.position == 960
    assert playout.read() is None


def test_part_of_a_frame_waits_for_the_rest_until_the_end() -> None:
    playout = Playout(24_000)
    playout.write(ramp(100))
    assert playout.read() is None
    assert not playout.drained
    playout.end()
    frame = playout.read()
    assert frame is not None
    assert np.array_equal(frame[:100], ramp(100))
    assert not frame[100:].any()
    assert playout.position == 100
    assert playout.drained


def test_clear_leaves_a_short_fade_and_says_where_it_ends() -> None:
    playout = Playout(24_000)
    playout.write(np.full(24_000, 10_000, np.int16))
    playout.read()
    heard = playout.clear()
    assert heard == 480 + 120
    frame = playout.read()
    assert frame is not None
    assert frame[0] == 10_000
    assert frame[60] < 6_000
    assert not frame[120:].any()
    assert playout.read() is None
    assert playout.position == heard


def test_silence_does_not_move_the_position() -> None:
    playout = Playout(16_000)
    assert [playout.read() for _ in range(5)] == [None] * 5
    assert playout.position == 0
    assert playout.clear() == 0
    assert playout.drained


def test_it_is_bounded_and_takes_only_mono_int16() -> None:
    playout = Playout(16_000, max_queued_s=1.0)
    playout.write(np.zeros(15_000, np.int16))
    assert playout.room_samples == 1_000
    with pytest.raises(MediaError, match="room for 1000"):
        playout.write(np.zeros(1_001, np.int16))
    assert playout.queued_samples == 15_000
    with pytest.raises(MediaError, match="float32"):
        playout.write(np.zeros(10, np.float32))  # type: ignore[arg-type]
    with pytest.raises(MediaError, match="mono"):
        playout.write(np.zeros((10, 2), np.int16))


def test_what_was_read_can_be_read_again_and_the_position_goes_back_with_it() -> None:
    playout = Playout(24_000)
    playout.write(ramp(700))
    playout.write(ramp(1_700))
    playout.end()
    frames = [playout.read() for _ in range(3)]
    assert playout.rewind(600) == 600
    assert playout.position == 840
    assert playout.queued_samples == 2_400 - 840
    rest = []
    while (frame := playout.read()) is not None:
        rest.append(frame)
    assert playout.position == 2_400
    assert playout.drained
    whole = np.concatenate((ramp(700), ramp(1_700)))
    assert np.array_equal(np.concatenate([f for f in frames if f is not None]), whole[: 3 * 480])
    assert np.array_equal(np.concatenate(rest)[480 : 2_400 - 840], whole[840 + 480 :]), "but for the fade at the joint"


def test_no_more_is_kept_than_its_bound_and_nothing_from_before_a_cut() -> None:
    playout = Playout(8_000)
    for _ in range(20):
        playout.write(ramp(8_000))
        while playout.read() is not None:
            pass
    assert KEPT_S * 8_000 <= playout.rewind(1_000_000) <= (KEPT_S + 1) * 8_000
    playout.clear()
    while playout.read() is not None:
        pass
    assert playout.rewind(1_000_000) <= 8_000 * FADE_MS // 1000


def test_a_rewound_frame_is_sent_without_the_packet_it_no_longer_begins_with() -> None:
    playout = Playout(24_000)
    speech = EncodedSpeech("key", 24_000, tuple(b"packet" for _ in range(4)), ramp(4 * 480))
    playout.write_encoded(speech)
    for _ in range(2):
        playout.read()
        assert playout.encoded is not None
    playout.rewind(700)
    indices = []
    while playout.read() is not None:
        indices.append(None if playout.encoded is None else playout.encoded.index)
    assert indices == [None, None, 2, 3]


def test_a_pause_fades_out_over_a_frame_and_what_comes_back_fades_in() -> None:
    playout = Playout(24_000)
    playout.write(np.full(24_000, 10_000, np.int16))
    playout.read()
    playout.pause()
    assert not playout.silent
    fading = playout.read()
    assert fading is not None
    assert fading[0] == 10_000
    assert abs(int(fading[-1])) < 50
    assert np.abs(np.diff(fading.astype(int))).max() < 50, "no click"
    assert playout.silent
    assert playout.read() is None
    assert playout.rewind(240) == 240
    playout.resume()
    again = playout.read()
    assert again is not None
    assert again[0] == 0
    assert again[-1] == 10_000
    assert playout.position == 480 - 240 + 480


def test_a_pause_that_was_never_heard_leaves_no_fade() -> None:
    playout = Playout(24_000)
    playout.write(np.full(24_000, 10_000, np.int16))
    playout.pause()
    playout.resume()
    frame = playout.read()
    assert frame is not None
    assert (frame == 10_000).all()


def test_what_was_written_last_can_be_taken_back_as_far_as_it_is_unread() -> None:
    playout = Playout(24_000)
    playout.write(ramp(700))
    playout.write(ramp(260))
    playout.end()
    playout.read()
    assert playout.withdraw(300) == 300
    assert playout.queued_samples == 180
    last = playout.read()
    assert last is not None
    assert np.array_equal(last[:180], ramp(700)[480:660])
    assert not last[180:].any()
    assert playout.withdraw(10) == 0
    assert playout.position == 660


def test_one_queue_takes_over_what_waits_in_another() -> None:
    playout, other = Playout(24_000, max_queued_s=0.1), Playout(24_000)
    playout.write(ramp(480))
    other.write(ramp(960))
    other.end()
    playout.take_over(other)
    assert (playout.queued_samples, other.queued_samples) == (1_440, 0)
    assert [playout.read() is not None for _ in range(4)] == [True, True, True, False]
    assert playout.drained
    other.write(ramp(4_000))
    with pytest.raises(MediaError, match="full"):
        playout.take_over(other)
    assert other.queued_samples == 4_000
    with pytest.raises(MediaError, match="8000 Hz"):
        playout.take_over(Playout(8_000))


def test_what_never_sounded_is_neither_faded_nor_kept() -> None:
    playout = Playout(24_000)
    playout.pause()
    playout.write(np.full(4_800, 10_000, np.int16))
    assert [playout.read() for _ in range(3)] == [None, None, None]
    assert not playout.silent
    playout.resume()
    first = playout.read()
    assert first is not None
    assert (first == 10_000).all()
    other = Playout(24_000)
    other.write(np.full(4_800, 10_000, np.int16))
    assert other.clear() == 0
    assert other.read() is None
