"""The table of encodings is RFC 3551's, and each of them carries speech from sender to receiver."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from agent.config import MediaSettings
from agent.errors import MediaError
from agent.media.codec import CODECS, G722, OPUS, PCMA, PCMU, Codec, codec_named
from agent.media.codecs import make_decoder, make_encoder
from agent.media.inbound import AudioReceiver
from agent.media.jitter import JitterBuffer
from agent.media.outbound import AudioSender
from agent.media.rtp import build_rtp, parse_rtp, ts_delta


def test_static_payload_types_and_clocks_are_those_of_rfc_3551() -> None:
    assert [(c.name, c.payload_type, c.clock_hz) for c in (PCMU, PCMA, G722)] == [
        ("PCMU", 0, 8_000),
        ("PCMA", 8, 8_000),
        ("G722", 9, 8_000),
    ]
    assert (G722.sample_rate_hz, OPUS.clock_hz, OPUS.encoding) == (16_000, 48_000, "opus/48000/2")


def test_names_are_read_as_sdp_writes_them() -> None:
    assert codec_named("OPUS/48000/2") == OPUS
    assert codec_named("pcmu/8000/1") == PCMU
    assert [codec_named(text) for text in ("opus/48000", "G722/16000", "PCMU/8000/2", "L16/8000", "")] == [None] * 5


def test_an_unknown_encoding_is_an_error() -> None:
    for make in (make_decoder, lambda codec: make_encoder(codec, MediaSettings())):
        with pytest.raises(MediaError, match="L16/44100"):
            make(Codec("L16", 44_100, 44_100, 11))


def speech(codec: Codec, tick: int) -> np.ndarray:
    size = codec.sample_rate_hz // 50
    t = (np.arange(size) + tick * size) / codec.sample_rate_hz
    return (9_000 * np.sin(2 * np.pi * 300 * t)).astype(np.int16)


def carry(codec: Codec, lost: set[int], ticks: int = 150) -> tuple[list[np.ndarray], AudioReceiver, list[bytes]]:
    sender = AudioSender(make_encoder(codec, MediaSettings()), 9, None, ssrc=5)
    receiver = AudioReceiver(9, {}, JitterBuffer(clock_hz=codec.clock_hz), make_decoder(codec))
    frames, sent = [], []
    for tick in range(ticks):
        now = 50 + tick * 0.02
        for packet in sender.tick(speech(codec, tick) if 20 <= tick < 120 else None, tick):
            sent.append(packet)
            if tick not in lost:
                receiver.receive(packet, now)
        frames.append(receiver.tick(now + 0.001)[0])
    return frames, receiver, sent


def level(frame: np.ndarray) -> float:
    return float(np.abs(frame.astype(float)).mean())


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_speech_arrives_at_its_level_and_silence_stays_silent(codec: Codec) -> None:
    frames, receiver, _ = carry(codec, set())
    loud = [n for n, frame in enumerate(frames) if level(frame) > 3_000]
    assert 96 <= len(loud) <= 102
    assert loud == list(range(loud[0], loud[-1] + 1))
    middle = np.concatenate(frames[loud[10] : loud[90]]).astype(float)
    assert 0.9 < np.std(middle) / (9_000 / np.sqrt(2)) < 1.1
    crossings = np.count_nonzero(np.diff(np.signbit(middle)))
    assert abs(crossings - 2 * 300 * len(middle) / 16_000) < 10
    assert max(level(frame) for frame in frames[loud[-1] + 6 :]) < 60
    assert (receiver.corrupt, receiver.counters.lost) == (0, 0)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_a_lost_packet_leaves_no_hole(codec: Codec) -> None:
    frames, receiver, _ = carry(codec, {40, 60, 80})
    assert receiver.counters.lost == 3
    assert min(level(frame) for frame in frames[30:110]) > 2_000


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_timestamps_count_the_codecs_clock_and_only_opus_pauses(codec: Codec) -> None:
    _, _, sent = carry(codec, set())
    packets = [parse_rtp(data) for data in sent]
    steps = {ts_delta(b.timestamp, a.timestamp) for a, b in itertools.pairwise(packets)}
    step = codec.clock_hz // 50
    if codec == OPUS:
        assert all(value % step == 0 for value in steps)
        assert len(packets) < 130
    else:
        assert steps == {step}
        assert len(packets) == 150
    assert [packet.marker for packet in packets].count(True) == 1
    # Opus sends one keep-alive before the spurt; where silence is sent as well, the stream is one spurt.
    assert packets[1 if codec == OPUS else 0].marker


@pytest.mark.parametrize("ms", [10, 20, 30, 40, 60])
@pytest.mark.parametrize("codec", [PCMU, G722], ids=lambda codec: codec.name)
def test_packets_of_other_lengths_are_taken(codec: Codec, ms: int) -> None:
    encoder = make_encoder(codec, MediaSettings())
    stream = b"".join(encoder.encode(speech(codec, tick)) for tick in range(150))
    receiver = AudioReceiver(9, {}, JitterBuffer(clock_hz=8_000), make_decoder(codec))
    size, at, frames = 8 * ms, 0, []
    for tick in range(150):
        now = 50 + tick * 0.02
        while at + size <= len(stream) and at < (tick + 1) * 160:
            receiver.receive(build_rtp(9, at == 0, at // size, at, 7, stream[at : at + size]), now)
            at += size
        frames.append(receiver.tick(now + 0.001)[0])
    assert min(level(frame) for frame in frames[15:140]) > 4_000
    assert receiver.counters.lost == 0
