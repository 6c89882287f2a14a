"""Both sides of a recording share one clock, whatever happens in between, for ten minutes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agent.config import MediaSettings
from agent.media.frames import Pcm
from agent.media.opus import Encoder
from agent.media.rtp import build_rtp
from agent.recording.files import Plan, RecordingFiles
from agent.recording.lanes import Lanes, Slot
from agent.recording.recorder import CallRecorder
from agent.recording.writer import Recording
from agent.replay.port import open_port
from tests.agent.recording.studio import stereo

MINUTES = 10
TICKS = MINUTES * 60 * 50
MARKS = (7, 1_000, 9_999, 15_013, 22_222, TICKS - 20)
"""Ticks at which a tone begins on both sides at once."""


def tone(rate_hz: int, ms: int = 20) -> Pcm:
    t = np.arange(rate_hz * ms // 1000) / rate_hz
    return (12_000 * np.sin(2 * np.pi * 500 * t)).astype(np.int16)


class _Direct(Recording):
    """Writes at once, without a thread."""

    def __init__(self, plan: Plan) -> None:
        self.files = RecordingFiles(plan)

    def put(self, batch) -> None:  # type: ignore[no-untyped-def]
        self.files.write(batch)

    def end(self, reason: str) -> None:
        self.files.close(reason)


def recorder(folder: Path, fmt: str, rate_hz: int, ends_at: float = 0.0) -> CallRecorder:
    one = CallRecorder(
        "call_1", lambda _event: None, now=lambda: ends_at, max_slots=10**9, on_error=lambda _reason: None
    )
    one.begin(_Direct(Plan(folder, "call_1", fmt, rate_hz, {}, {})))  # type: ignore[arg-type]
    return one


def onset(side: Pcm, near: int, per_slot: int) -> int:
    """Sample at which the tone begins, by correlation with it, around slot `near`."""
    start = (near - 5) * per_slot
    part = side[start : start + 12 * per_slot].astype(np.float64)
    return start + int(np.argmax(np.correlate(part, tone(per_slot * 50).astype(np.float64), "valid")))


@pytest.mark.parametrize(("fmt", "rate_hz"), [("wav", 24_000), ("ogg", 24_000), ("wav", 8_000), ("ogg", 48_000)])
def test_marks_on_both_sides_lie_at_the_same_sample_after_ten_minutes(tmp_path: Path, fmt: str, rate_hz: int) -> None:
    port = open_port(
        {"transport": "pcm", "rate_hz": rate_hz, "encoding": "", "payload_type": 0, "events": {}}, MediaSettings()
    )
    one = recorder(tmp_path, fmt, rate_hz)
    port.tap = one
    port.attach(_Deaf())
    number = 40
    skipped = 0
    places = []
    playout = port.playout
    for tick in range(TICKS):
        if tick % 5_000 == 4_000:
            # The process stalled: ticks that never ran are time all the same.
            number += 37
            skipped += 37
        if tick in (500, 12_000):
            playout.write(tone(rate_hz, 900))
        if tick in (510, 12_010):
            playout.pause()
        if tick in (540, 12_040):
            playout.resume()
        if tick in (550, 12_050):
            playout.clear()
        frame = np.zeros(rate_hz // 50, np.int16)
        if tick in MARKS:
            playout.write(tone(rate_hz))
            playout.end()
            frame = tone(rate_hz)
            places.append(tick + skipped)
        if tick not in range(18_100, 18_104):
            # What the port still holds of the backlog goes out in these four.
            port.packet(frame.astype("<i2").tobytes(), tick / 50)
        if tick == 18_000:
            # 200 ms at once, worked off two frames a tick.
            port.packet(np.zeros(rate_hz // 10, "<i2").tobytes(), tick / 50)
            port.packet(np.zeros(rate_hz // 10, "<i2").tobytes(), tick / 50)
        port.run_tick(number, tick / 50)
        number += 1
    one.close("over")
    samples = stereo(tmp_path / f"call_1.{fmt}")
    per_slot = 320 if fmt == "wav" else 960
    assert len(samples) == (TICKS + skipped) * per_slot
    # The port's resampler delays what the call hears by a constant, 3.1 ms at most.
    delay = port._resampler.delay_s * per_slot * 50  # type: ignore[attr-defined]
    for place in places:
        left, right = (onset(samples[:, side], place, per_slot) for side in (0, 1))
        assert abs(right - place * per_slot) <= per_slot // 320, f"agent at slot {place}"
        assert abs(left - delay - place * per_slot) <= per_slot // 320 + 1, f"caller at slot {place}"


class _Deaf:
    def on_audio(self, pcm: Pcm) -> None: ...
    def on_dtmf(self, digit: str) -> None: ...
    def on_closed(self, reason: str) -> None: ...


def test_lost_and_reordered_packets_leave_both_sides_aligned(tmp_path: Path) -> None:
    port = open_port(
        {"transport": "rtp", "rate_hz": 24_000, "encoding": "opus/48000/2", "payload_type": 111, "events": {}},
        MediaSettings(),
    )
    one = recorder(tmp_path, "wav", 24_000)
    heard: list[Pcm] = []

    class Ear(_Deaf):
        def on_audio(self, pcm: Pcm) -> None:
            heard.append(pcm)

    port.tap = one
    port.attach(Ear())
    encoder = Encoder(24_000)
    rng = np.random.default_rng(5)
    noise = (rng.standard_normal(480 * 3_000) * 3_000).astype(np.int16)
    spoken = []
    for tick in range(3_000):
        payload = encoder.encode(noise[tick * 480 : (tick + 1) * 480])
        packet = build_rtp(111, False, tick & 0xFFFF, tick * 960, 9, payload)
        if rng.random() > 0.05:
            at = tick / 50 + float(rng.exponential(0.01))
            one.on_packet(packet, at)
            port.packet(packet, at)
        if tick % 700 == 100:
            port.playout.write(tone(24_000))
            port.playout.end()
            spoken.append(tick)
        port.run_tick(tick, tick / 50 + 0.03)
    one.close("over")
    samples = stereo(tmp_path / "call_1.wav")
    assert np.array_equal(samples[:, 0], np.concatenate(heard))
    assert port.stats().inbound.lost > 50
    for tick in spoken:
        assert onset(samples[:, 1], tick, 320) == tick * 320


def test_a_second_frame_in_a_tick_waits_for_a_quiet_one_and_moves_nothing_else() -> None:
    lanes = Lanes(16_000)
    loud = [np.full(320, 5_000 + number, np.int16) for number in range(8)]
    quiet = np.zeros(320, np.int16)
    slots = [Slot(None, (loud[0], loud[1])), *(Slot(None, (frame,)) for frame in loud[2:])]
    slots += [Slot(None, (quiet,)), Slot(None, (quiet,)), Slot(loud[0], (loud[7],))]
    left, right = np.concatenate([lanes.push(slots), lanes.finish()]).T
    assert [int(v) for v in left[::320]] == [*(int(f[0]) for f in loud), 0, 5_007]
    assert int(np.flatnonzero(right)[0]) == 9 * 320


def test_a_caller_who_is_never_quiet_keeps_a_bounded_backlog() -> None:
    lanes = Lanes(16_000)
    loud = np.full(320, 5_000, np.int16)
    out = lanes.push([Slot(None, (loud, loud))] * 500)
    assert len(out) == 500 * 320
    assert lanes.dropped == 500 - 59
