"""Plain PCM as a port: one frame a tick, back-pressure, bounds."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from agent.errors import MediaError, ProtocolError
from agent.media.frames import HEARING_SAMPLES
from agent.media.pcm import PcmPort


class ManualTicker:
    """Ticks when told."""

    def __init__(self) -> None:
        self.callbacks: list[Any] = []
        self.count = 0

    def add(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def remove(self, callback: Any) -> None:
        if callback in self.callbacks:
            self.callbacks.remove(callback)

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            for callback in tuple(self.callbacks):
                callback(self.count)
            self.count += 1


@pytest.fixture
def clock() -> ManualTicker:
    return ManualTicker()


def make(clock: ManualTicker, sink: Any, rate_hz: int = 24_000) -> tuple[PcmPort, list[bytes]]:
    sent: list[bytes] = []
    port = PcmPort(rate_hz, ticker=clock, send=sent.append)  # type: ignore[arg-type]
    port.attach(sink)
    return port, sent


def tone(rate_hz: int, seconds: float) -> bytes:
    t = np.arange(int(rate_hz * seconds)) / rate_hz
    return (8000 * np.sin(2 * np.pi * 500 * t)).astype("<i2").tobytes()


async def test_a_feeder_that_stops_is_told_once_and_again_when_it_is_back(clock: ManualTicker, sink: Any) -> None:
    port = PcmPort(16_000, ticker=clock, send=bytes, silence_s=0.02)  # type: ignore[arg-type]
    port.attach(sink)
    port.feed(bytes(640))
    clock.tick()
    assert sink.silences == []
    await asyncio.sleep(0.05)
    clock.tick(3)
    assert [what for what, _ in sink.silences] == ["stalled"]
    port.feed(bytes(640))
    clock.tick()
    assert [what for what, _ in sink.silences] == ["stalled", "resumed"]


async def test_silence_is_delivered_when_nothing_came(clock: ManualTicker, sink: Any) -> None:
    make(clock, sink)
    clock.tick(5)
    assert len(sink.frames) == 5
    assert all(frame.shape == (320,) and not frame.any() for frame in sink.frames)


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000, 48_000])
async def test_audio_arrives_at_16_khz_whole_and_at_its_level(clock: ManualTicker, sink: Any, rate_hz: int) -> None:
    port, _ = make(clock, sink, rate_hz)
    data = tone(rate_hz, 0.4)
    step = rate_hz // 50 * 2
    for at in range(0, len(data), step):
        port.feed(data[at : at + step])
        clock.tick()
    heard = np.concatenate(sink.frames).astype(float)
    assert len(sink.frames) == 20
    assert 7_500 < np.abs(heard[500:-500]).max() < 8_300


async def test_a_burst_is_caught_up_two_frames_a_tick_down_to_100_ms(clock: ManualTicker, sink: Any) -> None:
    port, _ = make(clock, sink, 16_000)
    for _ in range(5):
        port.feed(tone(16_000, 0.1))
    clock.tick(10)
    assert len(sink.frames) == 20
    clock.tick(5)
    assert len(sink.frames) == 25


async def test_ready_holds_a_fast_feeder_back_at_one_second(clock: ManualTicker, sink: Any) -> None:
    port, _ = make(clock, sink, 16_000)
    for _ in range(5):
        port.feed(tone(16_000, 0.2))
    waiter = asyncio.ensure_future(port.ready())
    await asyncio.sleep(0)
    assert not waiter.done()
    clock.tick()
    await asyncio.wait_for(waiter, 5)


async def test_a_feeder_that_does_not_wait_is_bounded(clock: ManualTicker, sink: Any) -> None:
    port, _ = make(clock, sink, 16_000)
    for _ in range(50):
        port.feed(tone(16_000, 0.2))
    assert port._queued <= 16_000 * 1.2
    assert port.dropped_samples == 50 * 3_200 - port._queued


async def test_playout_leaves_one_frame_a_tick_at_the_ports_rate(clock: ManualTicker, sink: Any) -> None:
    port, sent = make(clock, sink, 8_000)
    assert port.sample_rate_hz == 8_000
    speech = np.arange(400, dtype=np.int16)
    port.playout.write(speech)
    port.playout.end()
    clock.tick(5)
    assert [len(data) for data in sent] == [320] * 3
    assert np.array_equal(np.frombuffer(b"".join(sent), "<i2")[:400], speech)
    assert port.stats().packets_sent == 3


async def test_wrong_messages_are_refused_by_field(clock: ManualTicker, sink: Any) -> None:
    port, _ = make(clock, sink, 16_000)
    with pytest.raises(ProtocolError, match="odd") as caught:
        port.feed(b"\0\0\0")
    assert caught.value.field == "audio"
    with pytest.raises(ProtocolError, match="200 ms"):
        port.feed(b"\0" * 6_402)
    port.feed(b"")
    port.feed(b"\0" * 6_400)
    with pytest.raises(MediaError, match="44100"):
        PcmPort(44_100, ticker=clock, send=bytes)  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="digit"):
        port.press("12")
    port.press("5")
    assert sink.digits == ["5"]


async def test_a_closed_port_is_silent_lets_waiters_go_and_says_it_once(clock: ManualTicker, sink: Any) -> None:
    port, sent = make(clock, sink, 16_000)
    for _ in range(6):
        port.feed(tone(16_000, 0.2))
    waiter = asyncio.ensure_future(port.ready())
    port.peer_closed()
    port.peer_closed()
    await asyncio.wait_for(waiter, 5)
    await port.close()
    await port.close()
    port.feed(tone(16_000, 0.2))
    clock.tick(3)
    assert (sink.closed, sink.frames, sent) == (["peer closed"], [], [])


async def test_closing_here_is_not_reported_as_the_peers_doing(clock: ManualTicker, sink: Any) -> None:
    port, _ = make(clock, sink)
    await port.close()
    port.peer_closed()
    assert sink.closed == []


async def test_a_sink_attached_too_late_still_hears_of_the_end(clock: ManualTicker, sink: Any) -> None:
    port = PcmPort(16_000, ticker=clock, send=bytes)  # type: ignore[arg-type]
    port.peer_closed("peer vanished")
    port.attach(sink)
    await asyncio.wait_for(sink.ended.wait(), 5)
    assert sink.closed == ["peer vanished"]


async def test_a_broken_transport_ends_the_port(clock: ManualTicker, sink: Any) -> None:
    def send(data: bytes) -> None:
        raise ConnectionResetError

    port = PcmPort(16_000, ticker=clock, send=send)  # type: ignore[arg-type]
    port.attach(sink)
    port.playout.write(np.ones(HEARING_SAMPLES, np.int16))
    clock.tick(2)
    assert sink.closed == ["peer closed"]


async def test_a_port_that_fails_ends_the_call_instead_of_leaving_it_without_a_clock(
    clock: ManualTicker, sink: Any
) -> None:
    def broken(data: bytes) -> None:
        raise RuntimeError("fault")

    port = PcmPort(24_000, ticker=clock, send=broken)  # type: ignore[arg-type]
    port.attach(sink)
    port.playout.write(np.ones(480, np.int16))
    clock.tick()
    assert sink.closed == ["internal error"]
    assert clock.callbacks == []
