"""Speech encoded once: the type, its place in the playout, and joints that a real decoder does not show."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from agent.errors import MediaError
from agent.media.codec import Encoder
from agent.media.encoded import EncodedFrame, EncodedSpeech, encode_speech
from agent.media.frames import Pcm
from agent.media.g711 import G711Encoder
from agent.media.g722 import G722Encoder
from agent.media.opus import Decoder
from agent.media.opus import Encoder as OpusEncoder
from agent.media.outbound import AudioSender
from agent.media.playout import Playout
from agent.media.rtp import parse_rtp, seq_delta

RATE = 24_000
FRAME = 480


def voice(frames: int, seed: int = 0) -> Pcm:
    """Gliding harmonics with breath: never quiet, never the same twice."""
    t = np.arange(frames * FRAME) / RATE
    phase = 2 * np.pi * np.cumsum(130 + 40 * np.sin(2 * np.pi * 0.9 * t + seed)) / RATE
    tone = sum(np.sin(k * phase + k * k) / k for k in range(1, 14))
    breath = np.random.default_rng(seed).normal(0, 0.05, len(t))
    return (3_500 * (tone + breath) * (0.7 + 0.3 * np.sin(2 * np.pi * 3 * t))).astype(np.int16)


def live() -> OpusEncoder:
    return OpusEncoder(RATE, bitrate=44_000, complexity=1, expected_loss_pct=0)


def careful() -> OpusEncoder:
    return OpusEncoder(RATE, bitrate=44_000, complexity=10, expected_loss_pct=10)


def counting(encoder: Encoder) -> list[int]:
    """The frames it encodes from now on, one entry each."""
    calls: list[int] = []
    original = encoder.encode

    def encode(pcm: Pcm) -> bytes:
        calls.append(len(pcm))
        return original(pcm)

    encoder.encode = encode  # type: ignore[method-assign]
    return calls


# --- the type


def test_every_frame_has_its_packet_and_the_samples_stay() -> None:
    pcm = voice(10)[:-100]
    speech = encode_speech(pcm, careful())
    assert len(speech.payloads) == 10
    assert speech.pcm is pcm
    assert (speech.key, speech.sample_rate_hz, speech.frame_samples) == (live().key, RATE, FRAME)
    assert speech.size_bytes == sum(map(len, speech.payloads)) + 2 * len(pcm)


def test_packets_and_samples_must_match() -> None:
    with pytest.raises(MediaError, match="2 packets for 480 samples"):
        EncodedSpeech("opus", RATE, (b"a", b"b"), np.zeros(480, np.int16))
    with pytest.raises(MediaError, match="float64"):
        EncodedSpeech("opus", RATE, (b"a",), np.zeros(480))


def test_the_key_tells_encodings_and_bit_rates_apart() -> None:
    keys = {e.key for e in (live(), OpusEncoder(RATE, bitrate=24_000), OpusEncoder(16_000), G722Encoder())}
    assert len(keys | {G711Encoder("PCMA").key, G711Encoder("PCMU").key}) == 6


# --- in the playout


def test_frames_come_with_their_packets_and_positions_count_samples() -> None:
    playout, pcm = Playout(RATE), voice(5)[:-100]
    speech = encode_speech(pcm, careful())
    assert playout.write_encoded(speech) == len(pcm)
    playout.end()
    for index in range(5):
        frame = playout.read()
        assert frame is not None
        assert np.array_equal(frame[: len(pcm) - index * FRAME], pcm[index * FRAME : (index + 1) * FRAME])
        assert playout.encoded is not None
        assert (playout.encoded.speech, playout.encoded.index) == (speech, index)
    assert playout.position == len(pcm)
    assert playout.drained
    assert playout.read() is None
    assert playout.encoded is None


def test_encoded_speech_begins_and_ends_on_a_frame() -> None:
    playout, pcm = Playout(RATE), voice(3)
    playout.write(pcm[:600])
    playout.write_encoded(encode_speech(pcm[: FRAME + 50], careful()))
    playout.write(pcm[:FRAME])
    reads = [(playout.read(), playout.encoded) for _ in range(6)]
    assert [encoded.index if encoded else None for _, encoded in reads] == [None, None, 0, 1, None, None]
    second, fourth, fifth = reads[1][0], reads[3][0], reads[4][0]
    assert second is not None
    assert np.array_equal(second[:120], pcm[480:600])
    assert not second[120:].any()
    assert fourth is not None
    assert not fourth[50:].any()
    assert fifth is not None
    assert np.array_equal(fifth, pcm[:FRAME])
    assert playout.position == 600 + FRAME + 50 + FRAME


def test_pause_resume_and_clear_work_inside_encoded_speech() -> None:
    playout, pcm = Playout(RATE), np.full(10 * FRAME, 8_000, np.int16)
    playout.write_encoded(encode_speech(pcm, careful()))
    playout.read()
    playout.pause()
    faded = playout.read()
    assert faded is not None
    assert (faded[0], playout.encoded) == (8_000, None)
    assert abs(int(faded[-1])) < 50
    assert playout.read() is None
    assert playout.position == FRAME
    playout.resume()
    again = playout.read()
    assert again is not None
    assert (again[-1], playout.encoded) == (8_000, None)
    playout.read()
    assert playout.encoded is not None
    assert playout.encoded.index == 2
    heard = playout.clear()
    assert heard == 3 * FRAME + 120
    tail = playout.read()
    assert tail is not None
    assert playout.encoded is None
    assert not tail[120:].any()
    assert playout.read() is None
    assert playout.position == heard


def test_another_rate_or_too_much_is_refused_and_nothing_queued() -> None:
    playout = Playout(16_000)
    with pytest.raises(MediaError, match="16000 Hz, encoded speech at 24000 Hz"):
        playout.write_encoded(encode_speech(voice(2), careful()))
    small = Playout(RATE, max_queued_s=0.02)
    with pytest.raises(MediaError, match="full"):
        small.write_encoded(encode_speech(voice(2), careful()))
    assert playout.queued_samples == small.queued_samples == 0


# --- through the sender and a real decoder

Plan = list[tuple[Pcm | None, EncodedFrame | None]]


def frames(pcm: Pcm) -> list[Pcm]:
    return [pcm[at : at + FRAME] for at in range(0, len(pcm) - FRAME + 1, FRAME)]


def packed(speech: EncodedSpeech, *indices: int) -> Plan:
    return [(speech.pcm[i * FRAME : (i + 1) * FRAME], EncodedFrame(speech, i)) for i in indices]


def heard(plan: Plan) -> np.ndarray:
    """What a client's decoder makes of it."""
    sender, decoder = AudioSender(live(), 111, None, ssrc=1), Decoder(RATE)
    out = [decoder.decode(parse_rtp(p).payload) for n, (f, e) in enumerate(plan) for p in sender.tick(f, n, e)]
    return np.concatenate(out).astype(float)


def naive(before: Pcm, speech: EncodedSpeech, after: Pcm) -> np.ndarray:
    """Packets put between others as if they had no memory."""
    encoder, decoder = live(), Decoder(RATE)
    first = [encoder.encode(frame) for frame in frames(before)]
    encoder.reset()
    last = [encoder.encode(frame) for frame in frames(after)]
    return np.concatenate([decoder.decode(p) for p in (*first, *speech.payloads, *last)]).astype(float)


def likeness_db(a: np.ndarray, b: np.ndarray, window: slice) -> float:
    return 10 * float(np.log10(np.square(b[window]).mean() / (np.square(a[window] - b[window]).mean() + 1e-3)))


def ten_ms(frame: int) -> slice:
    return slice(frame * FRAME, frame * FRAME + FRAME // 2)


JOINTS = [ten_ms(40), ten_ms(44), ten_ms(80)]
"""Where packets are due, where the sender may first send them, and where live speech goes on."""


@pytest.mark.parametrize("seed", range(4))
def test_joints_in_mid_voice_differ_no_more_than_two_encoders_do(seed: int) -> None:
    pcm = voice(120, seed)
    speech = encode_speech(pcm[40 * FRAME : 80 * FRAME], careful())
    plan: Plan = [(f, None) for f in frames(pcm[: 40 * FRAME])]
    plan += [*packed(speech, *range(40)), *((f, None) for f in frames(pcm[80 * FRAME :]))]
    out, plain = heard(plan), heard([(f, None) for f in frames(pcm)])
    spliced = naive(pcm[: 40 * FRAME], speech, pcm[80 * FRAME :])
    decoder = Decoder(RATE)
    other = np.concatenate([decoder.decode(p) for p in encode_speech(pcm, careful()).payloads]).astype(float)
    inside = min(likeness_db(other, plain, slice(at, at + FRAME // 2)) for at in range(10 * FRAME, 115 * FRAME, 240))
    assert min(likeness_db(out, plain, window) for window in JOINTS) > inside - 1
    # The same measure finds packets that were merely put in between.
    assert min(likeness_db(spliced, plain, window) for window in JOINTS) < inside - 1
    # Neither a click (the second difference is large) nor a jump in level.
    curve, most = np.abs(np.diff(out, 2)), np.abs(np.diff(plain, 2))[10 * FRAME :].max()
    for window in JOINTS:
        assert curve[window].max() < most
        level = slice(window.start, window.start + 2 * FRAME)
        assert 0.8 < np.std(out[level]) / np.std(plain[level]) < 1.25


def test_at_silence_packets_go_out_from_the_first_and_the_encoder_rests() -> None:
    encoder = live()
    speech = encode_speech(np.concatenate((voice(20), np.zeros(5 * FRAME, np.int16))), careful())
    calls = counting(encoder)
    sender = AudioSender(encoder, 111, None, ssrc=1)
    sent = [sender.tick(f, n, e) for n, (f, e) in enumerate(packed(speech, *range(25)) + packed(speech, *range(25)))]
    assert [parse_rtp(p).payload for (p,) in sent] == [*speech.payloads, *speech.payloads]
    assert calls == []
    numbers = [parse_rtp(p).sequence for (p,) in sent]
    assert {seq_delta(b, a) for a, b in itertools.pairwise(numbers)} == {1}


def test_the_end_of_packets_rings_out_whole_in_silence() -> None:
    """What the encoder's lookahead holds belongs to the voice: 6.5 ms would be cut off every word."""
    pcm = voice(30)
    out = heard([*packed(encode_speech(pcm, careful()), *range(30)), *[(None, None)] * 8])
    plain = heard([*((f, None) for f in frames(pcm)), *[(None, None)] * 8])
    tail = slice(30 * FRAME, 30 * FRAME + 150)
    assert np.std(plain[tail]) > 500
    assert 0.7 < np.std(out[tail]) / np.std(plain[tail]) < 1.4
    assert np.abs(out[33 * FRAME :]).max() < 300


def test_a_fade_inside_packets_is_encoded_live_without_a_click() -> None:
    pcm, playout = voice(60), Playout(RATE)
    playout.write_encoded(encode_speech(pcm, careful()))
    plan: Plan = []
    for tick in range(50):
        if tick == 30:
            playout.clear()
        plan.append((playout.read(), playout.encoded))
    out, plain = heard(plan), heard([(f, None) for f in frames(pcm)])
    curve, inside = np.abs(np.diff(out, 2)), np.abs(np.diff(plain, 2))[10 * FRAME :].max()
    assert curve[28 * FRAME :].max() < 1.3 * inside
    assert np.std(out[29 * FRAME : 30 * FRAME]) > 1_000
    assert np.abs(out[32 * FRAME :]).max() < 300


def test_after_a_pause_packets_are_taken_up_again() -> None:
    pcm, playout = voice(60), Playout(RATE)
    speech = encode_speech(pcm, careful())
    playout.write_encoded(speech)
    sender = AudioSender(live(), 111, None, ssrc=1)
    payloads = []
    for tick in range(60):
        if tick == 20:
            playout.pause()
        if tick == 30:
            playout.resume()
        frame = playout.read()
        payloads += [parse_rtp(p).payload for p in sender.tick(frame, tick, playout.encoded)]
    assert payloads[:20] == list(speech.payloads[:20])
    # Frame 20 fades in live, JOINT_FRAMES more bring the encoder up, then packets again.
    assert payloads[-25:] == list(speech.payloads[25:50])


def test_packets_of_another_encoding_are_not_sent() -> None:
    encoder = live()
    calls = counting(encoder)
    speech = encode_speech(voice(10), OpusEncoder(RATE, bitrate=24_000))
    sender = AudioSender(encoder, 111, None, ssrc=1)
    for n, (frame, encoded) in enumerate(packed(speech, *range(10))):
        (packet,) = sender.tick(frame, n, encoded)
        assert parse_rtp(packet).payload != speech.payloads[n]
    assert len(calls) == 10


def test_without_state_in_the_encoding_there_is_no_joint_to_mind() -> None:
    pcm = np.arange(1_600).astype(np.int16)
    speech = encode_speech(pcm, G711Encoder("PCMU"))
    sender = AudioSender(G711Encoder("PCMU"), 0, None, ssrc=1)
    (loud,) = sender.tick(np.full(160, 9_000, np.int16), 0)
    sent = [sender.tick(pcm[n * 160 : (n + 1) * 160], n + 1, EncodedFrame(speech, n)) for n in range(10)]
    assert len(parse_rtp(loud).payload) == 160
    assert [parse_rtp(p).payload for (p,) in sent] == list(speech.payloads)
