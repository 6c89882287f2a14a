"""WebRTC peers without Opus, with another preference, and in stereo: real calls with stock aiortc on this machine."""

from __future__ import annotations

import asyncio
import fractions
from typing import Any

import numpy as np
import pytest
from aiortc import MediaStreamTrack, RTCRtpSender
from av import AudioFrame

from agent.config import MediaSettings
from agent.media.codec import CODECS, Codec
from agent.media.codecs import make_encoder
from agent.media.encoded import encode_speech
from agent.media.webrtc import WebRtcPort

pytestmark = pytest.mark.usefixtures("no_leaks")


def tone(hz: float, rate_hz: int, seconds: float) -> np.ndarray:
    return (8_000 * np.sin(2 * np.pi * hz * np.arange(int(rate_hz * seconds)) / rate_hz)).astype(np.int16)


def level(frame: Any) -> float:
    return float(np.abs(np.asarray(frame, float)).mean())


def pitch(pcm: np.ndarray, rate_hz: int) -> float:
    spectrum = np.abs(np.fft.rfft(pcm.astype(float) * np.hanning(len(pcm))))
    return float(np.argmax(spectrum) * rate_hz / len(pcm))


def offer_only(client: Any, names: list[str]) -> None:
    known = {codec.name: codec for codec in RTCRtpSender.getCapabilities("audio").codecs}
    (transceiver,) = client.pc.getTransceivers()
    transceiver.setCodecPreferences([known[name] for name in names])


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec.name != "opus"], ids=lambda codec: codec.name)
@pytest.mark.parametrize("encoded", [False, True], ids=["live", "encoded"])
async def test_both_voices_travel_without_opus(
    make_client: Any, ticker: Any, sink: Any, codec: Codec, encoded: bool
) -> None:
    client = make_client()
    offer_only(client, [codec.name])
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    assert f"a=rtpmap:{codec.payload_type} {codec.encoding}" in port.answer_sdp
    assert "opus" not in port.answer_sdp
    assert port.sample_rate_hz == port.playout.sample_rate_hz == codec.sample_rate_hz
    speech = tone(600, codec.sample_rate_hz, 4.0)
    if encoded:
        port.playout.write_encoded(encode_speech(speech, make_encoder(codec, MediaSettings())))
    else:
        port.playout.write(speech)
    port.attach(sink)
    track = await asyncio.wait_for(client.track, 20)
    heard: list[np.ndarray] = []
    rate = 0
    async with asyncio.timeout(20):
        while sum(level(f) > 2_000 for f in heard) < 50:
            frame = await track.recv()
            rate = frame.sample_rate
            samples = frame.to_ndarray()[0]
            heard.append(samples[::2] if len(frame.layout.channels) == 2 else samples)
    loud = np.concatenate([f for f in heard if level(f) > 2_000][5:])
    assert pitch(loud, rate) == pytest.approx(600, abs=8)
    await sink.until(lambda: sum(level(f) > 2_000 for f in sink.frames) >= 40)
    caller = np.concatenate([f for f in sink.frames if level(f) > 2_000][5:35])
    assert pitch(caller, 16_000) == pytest.approx(440, abs=4)
    assert port.stats().corrupt == 0
    await port.close()
    await client.pc.close()


async def test_the_callers_preference_is_kept(make_client: Any, ticker: Any) -> None:
    client = make_client()
    offer_only(client, ["PCMA", "opus", "PCMU"])
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    assert "a=rtpmap:8 PCMA/8000" in port.answer_sdp
    assert "opus" not in port.answer_sdp
    await port.close()
    await client.pc.close()


class StereoTrack(MediaStreamTrack):
    """440 Hz on the left, 880 Hz on the right, 48 kHz interleaved as a browser's music mode sends it."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._at = 0
        self._start: float | None = None

    async def recv(self) -> AudioFrame:
        loop = asyncio.get_running_loop()
        if self._start is None:
            self._start = loop.time()
        await asyncio.sleep(max(0.0, self._start + self._at / 48_000 - loop.time()))
        t = (np.arange(960) + self._at) / 48_000
        both = np.stack([9_000 * np.sin(2 * np.pi * hz * t) for hz in (440, 880)], axis=1).astype(np.int16)
        frame = AudioFrame.from_ndarray(both.reshape(1, -1), format="s16", layout="stereo")
        frame.sample_rate, frame.pts, frame.time_base = 48_000, self._at, fractions.Fraction(1, 48_000)
        self._at += 960
        return frame


async def test_stereo_is_heard_as_one_voice_at_its_own_speed(make_client: Any, ticker: Any, sink: Any) -> None:
    """Reported elsewhere: interleaved stereo read as mono is half as fast and an octave low."""
    client = make_client(audio=False)
    client.pc.addTrack(StereoTrack())
    port: WebRtcPort = await client.call(ticker, MediaSettings(), lambda text: None)
    port.attach(sink)
    await sink.until(lambda: sum(level(f) > 1_500 for f in sink.frames) >= 60)
    loud = np.concatenate([f for f in sink.frames if level(f) > 1_500][5:55]).astype(float)
    spectrum = np.abs(np.fft.rfft(loud * np.hanning(len(loud))))
    peaks = {hz: spectrum[hz * len(loud) // 16_000 - 2 : hz * len(loud) // 16_000 + 3].max() for hz in (220, 440, 880)}
    assert min(peaks[440], peaks[880]) > 20 * peaks[220]
    assert 0.5 < peaks[440] / peaks[880] < 2
    # Twice the samples a packet would pile up in the buffer.
    assert port.stats().inbound.delay_ms < 200
    await port.close()
    await client.pc.close()
