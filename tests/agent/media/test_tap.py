"""A tap sees what comes and goes, on both kinds of port."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from agent.config import MediaSettings
from agent.media.frames import Pcm
from agent.media.pcm import PcmPort
from agent.media.rtp import parse_rtp
from agent.media.tap import Tappable
from agent.media.ticker import Ticker


class Tap:
    """Remembers."""

    def __init__(self) -> None:
        self.packets: list[tuple[float, bytes]] = []
        self.ticks: list[tuple[int, float, Pcm | None, tuple[Pcm, ...]]] = []

    def on_packet(self, data: bytes, now: float) -> None:
        self.packets.append((now, data))

    def on_tick(self, tick: int, now: float, agent: Pcm | None, caller: Sequence[Pcm]) -> None:
        self.ticks.append((tick, now, agent, tuple(caller)))


async def test_a_webrtc_port_shows_packets_and_both_sides_of_every_tick(
    make_client: Any, ticker: Ticker, sink: Any
) -> None:
    client = make_client()
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    assert isinstance(port, Tappable)
    tap = port.tap = Tap()
    port.attach(sink)
    spoken = (6_000 * np.sin(np.arange(24_000) / 24_000 * 2 * np.pi * 300)).astype(np.int16)
    port.playout.write(spoken)
    await sink.until(lambda: len(sink.frames) >= 60)
    info = port.stream_info
    assert (info.transport, info.rate_hz, info.encoding) == ("rtp", 24_000, "opus/48000/2")
    assert {parse_rtp(data).payload_type for _, data in tap.packets} <= {info.payload_type, *info.events}
    assert len(tap.packets) > 30
    heard = [frame for _, _, _, caller in tap.ticks for frame in caller]
    assert np.array_equal(np.concatenate(heard[-20:]), np.concatenate(sink.frames[-20:]))
    said = np.concatenate([agent for _, _, agent, _ in tap.ticks if agent is not None])
    assert np.array_equal(said[: len(spoken)], spoken[: len(said)])
    numbers = [tick for tick, *_ in tap.ticks]
    assert numbers == sorted(set(numbers))
    times = sorted([at for at, _ in tap.packets] + [at for _, at, *_ in tap.ticks])
    assert times[-1] - times[0] < 60
    await port.close()
    await client.pc.close()


async def test_a_pcm_port_shows_messages_and_two_frames_in_a_tick_that_catches_up() -> None:
    async with Ticker() as ticker:
        port = PcmPort(16_000, ticker=ticker, send=lambda _data: None)
        assert isinstance(port, Tappable)
        tap = port.tap = Tap()

        class Sink:
            frames: list[Pcm] = []  # noqa: RUF012
            enough = asyncio.Event()

            def on_audio(self, pcm: Pcm) -> None:
                self.frames.append(pcm)
                if len(self.frames) >= 14:
                    self.enough.set()

            def on_dtmf(self, digit: str) -> None: ...
            def on_closed(self, reason: str) -> None: ...

        sink = Sink()
        port.feed(np.arange(3_200).astype("<i2").tobytes())
        port.attach(sink)
        await asyncio.wait_for(sink.enough.wait(), 20)
        await port.close()
        assert [data for _, data in tap.packets] == [np.arange(3_200).astype("<i2").tobytes()]
        assert len(tap.ticks[0][3]) == 2
        heard = np.concatenate([frame for _, _, _, caller in tap.ticks for frame in caller])
        assert np.array_equal(heard[:3_200], np.arange(3_200))
        assert np.array_equal(heard, np.concatenate(sink.frames))
