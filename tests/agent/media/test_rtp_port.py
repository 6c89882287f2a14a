"""A telephone's audio: both ways, key presses, hold, encryption, ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest

from agent.config import MediaSettings
from agent.errors import MediaError
from agent.media.codec import G722, PCMA, PCMU, Codec
from agent.media.codecs import make_decoder, make_encoder
from agent.media.encoded import encode_speech
from agent.media.frames import Pcm
from agent.media.rtcp import ReportBlock, SenderInfo, build_report, ntp_time, parse_rtcp
from agent.media.rtp import build_rtp, parse_rtp
from agent.media.rtp_port import RtpPort
from agent.media.rtp_session import RtpSession, SrtpKey
from agent.media.rtp_watch import RtpLimits
from agent.media.srtp import Cipher

PEER = ("192.0.2.1", 4000)
SETTINGS = MediaSettings()
PLAIN = RtpSession(PEER, PCMU, 0, (101, 8000), known=True)


@dataclass
class Wire:
    """Stands for the sockets."""

    failures: int = 0
    port: int = 30_000
    rtp: list[tuple[bytes, tuple[str, int]]] = field(default_factory=list)
    rtcp: list[tuple[bytes, tuple[str, int]]] = field(default_factory=list)
    closed: int = 0

    def listen(self, on_rtp: Callable, on_rtcp: Callable) -> None:
        self.on_rtp, self.on_rtcp = on_rtp, on_rtcp

    def send_rtp(self, packet: bytes, to: tuple[str, int]) -> bool:
        self.rtp.append((packet, to))
        return True

    def send_rtcp(self, packet: bytes, to: tuple[str, int]) -> bool:
        self.rtcp.append((packet, to))
        return True

    def close(self) -> None:
        self.closed += 1


@dataclass
class Clock:
    """Stands for the ticker, and is the time."""

    now: float = 100.0
    tick: int = 0
    callbacks: list[Callable[[int], None]] = field(default_factory=list)

    def add(self, callback: Callable[[int], None]) -> None:
        self.callbacks.append(callback)

    def remove(self, callback: Callable[[int], None]) -> None:
        if callback in self.callbacks:
            self.callbacks.remove(callback)

    def run(self, ticks: int = 1, each: Callable[[int], None] | None = None) -> None:
        for _ in range(ticks):
            self.now += 0.02
            self.tick += 1
            if each is not None:
                each(self.tick)
            for callback in tuple(self.callbacks):
                callback(self.tick)


@dataclass
class Ear:
    """The call's side."""

    frames: list[Pcm] = field(default_factory=list)
    digits: list[str] = field(default_factory=list)
    stalls: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)

    def on_audio(self, pcm: Pcm) -> None:
        self.frames.append(pcm)

    def on_dtmf(self, digit: str) -> None:
        self.digits.append(digit)

    def on_stalled(self, silence_s: float) -> None:
        self.stalls.append("stalled")

    def on_resumed(self, silence_s: float) -> None:
        self.stalls.append("resumed")

    def on_closed(self, reason: str) -> None:
        self.closed.append(reason)


class Phone:
    """A port with its surroundings, and a telephone's way of sending."""

    def __init__(self, session: RtpSession = PLAIN, **options: object) -> None:
        self.wire, self.clock, self.ear = Wire(), Clock(), Ear()
        limits = RtpLimits(first_s=10, silence_s=20, hold_s=30)
        self.port = RtpPort(
            session,
            self.wire,
            settings=SETTINGS,
            ticker=self.clock,
            limits=limits,
            now=lambda: self.clock.now,
            **options,
        )
        self.port.attach(self.ear)
        self.sequence = 0

    def send(
        self, payload: bytes, samples: int, payload_type: int = 0, *, ssrc: int = 5, source: tuple[str, int] = PEER
    ) -> None:
        packet = build_rtp(payload_type, False, self.sequence & 0xFFFF, self.sequence * samples, ssrc, payload)
        self.sequence += 1
        self.wire.on_rtp(packet, source)

    def heard(self) -> Pcm:
        return np.concatenate(self.ear.frames)

    def sent(self) -> list:
        return [parse_rtp(packet) for packet, _ in self.wire.rtp]


def tone(rate_hz: int, seconds: float, hz: float = 440.0) -> Pcm:
    return (8000 * np.sin(2 * np.pi * hz * np.arange(round(rate_hz * seconds)) / rate_hz)).astype(np.int16)


def level(pcm: Pcm) -> float:
    return float(np.sqrt(np.mean(pcm.astype(np.float64) ** 2)))


@pytest.mark.parametrize(("codec", "number"), [(PCMU, 0), (PCMA, 8), (G722, 9)])
@pytest.mark.parametrize("ptime_ms", [10, 20, 30, 40, 60])
async def test_packets_of_every_length_come_out_as_20_ms_frames(codec: Codec, number: int, ptime_ms: int) -> None:
    phone = Phone(replace(PLAIN, codec=codec, payload_type=number))
    encoder = make_encoder(codec, SETTINGS)
    frames = np.split(tone(codec.sample_rate_hz, 2.0), 100)
    coded = b"".join(encoder.encode(frame) for frame in frames)
    size = len(coded) // 200 * ptime_ms // 10
    packets = [coded[at : at + size] for at in range(0, len(coded), size)]

    def each(tick: int) -> None:
        while packets and phone.sequence * ptime_ms <= (tick - 1) * 20:
            phone.send(packets.pop(0), ptime_ms * 8, number)

    phone.clock.run(110, each)
    assert {len(frame) for frame in phone.ear.frames} == {320}
    assert len(phone.ear.frames) == 110
    assert level(phone.heard()[8_000:24_000]) == pytest.approx(8000 / 2**0.5, rel=0.15)
    assert not phone.port.stats().inbound.lost


@pytest.mark.parametrize(("codec", "number"), [(PCMU, 0), (PCMA, 8), (G722, 9)])
async def test_speech_encoded_before_leaves_as_it_is(codec: Codec, number: int) -> None:
    phone = Phone(replace(PLAIN, codec=codec, payload_type=number))
    assert phone.port.playout.codec == codec
    speech = encode_speech(tone(codec.sample_rate_hz, 0.2), make_encoder(codec, SETTINGS))
    phone.port.playout.write_encoded(speech)
    phone.clock.run(10)
    assert [packet.payload for packet in phone.sent()] == list(speech.payloads)


async def test_packets_are_asked_for_in_the_encoding_that_was_agreed_on_last() -> None:
    phone = Phone()
    phone.port.agree(replace(PLAIN, codec=PCMA, payload_type=8))
    assert phone.port.playout.codec == PCMA
    # The playout keeps its rate, so what is sent in this one is resampled.
    phone.port.agree(replace(PLAIN, codec=G722, payload_type=9))
    assert phone.port.playout.codec is None
    phone.port.agree(PLAIN)
    assert phone.port.playout.codec == PCMU


async def test_what_is_written_leaves_as_20_ms_packets_in_a_row() -> None:
    phone = Phone()
    speech = tone(8000, 0.4)
    phone.port.playout.write(speech)
    phone.clock.run(30)
    packets = phone.sent()
    assert [packet.sequence - packets[0].sequence for packet in packets] == list(range(30))
    assert {b.timestamp - a.timestamp for a, b in pairwise(packets)} == {160}
    assert {to for _, to in phone.wire.rtp} == {PEER}
    decoder = make_decoder(PCMU)
    decoded = np.concatenate([decoder.decode(packet.payload) for packet in packets])
    assert level(decoded[1000:6000]) == pytest.approx(8000 / 2**0.5, rel=0.1)
    assert phone.port.stats().packets_sent == 30


async def test_a_key_press_without_any_marker_is_told_once() -> None:
    phone = Phone()
    for duration, flags in [(160, 0), (320, 0), (480, 0x80), (480, 0x80), (480, 0x80)]:
        packet = build_rtp(101, False, phone.sequence, 8000, 5, bytes([11, flags | 10]) + duration.to_bytes(2, "big"))
        phone.sequence += 1
        phone.wire.on_rtp(packet, PEER)
        phone.clock.run()
    phone.clock.run(20)
    assert phone.ear.digits == ["#"]
    phone.port.press("#")
    phone.port.press("7")
    phone.clock.run()
    assert phone.ear.digits == ["#", "7"]


async def test_key_presses_leave_as_events_and_by_signalling_where_there_are_none() -> None:
    phone = Phone()
    phone.port.send_dtmf("5")
    phone.clock.run(10)
    events = [packet for packet in phone.sent() if packet.payload_type == 101]
    assert events[0].payload[0] == 5
    assert sum(bool(packet.payload[1] & 0x80) for packet in events) == 3

    pressed: list[str] = []
    Phone(replace(PLAIN, event=None), send_key=pressed.append).port.send_dtmf("12#")
    assert pressed == ["1", "2", "#"]
    with pytest.raises(MediaError, match="telephone-event"):
        Phone(replace(PLAIN, event=None)).port.send_dtmf("1")


async def test_comfort_noise_is_a_pause_and_neither_loss_nor_corruption() -> None:
    phone = Phone()
    for _ in range(20):
        phone.send(b"\xff" * 160, 160)
        phone.clock.run()
    for _ in range(3):
        phone.send(b"\x40", 160, 13)
        phone.clock.run(5)
    phone.clock.run(20)
    stats = phone.port.stats()
    assert (stats.corrupt, stats.inbound.lost) == (0, 0)
    assert level(phone.heard()[-3200:]) < 50


async def test_a_second_ssrc_takes_the_stream_over() -> None:
    phone = Phone()
    encoder = make_encoder(PCMU, SETTINGS)
    for ssrc in (5, 6):
        phone.sequence = 1000 * ssrc
        for frame in np.split(tone(8000, 1.0), 50):
            phone.send(encoder.encode(frame), 160, ssrc=ssrc)
            phone.clock.run()
    assert level(phone.heard()[-12_000:]) > 5000


async def test_strangers_are_neither_heard_nor_answered() -> None:
    phone = Phone()
    phone.send(b"\xff" * 160, 160)
    for _ in range(50):
        phone.send(b"\x00" * 160, 160, source=("198.51.100.6", 4000), ssrc=77)
        phone.clock.run()
    assert level(phone.heard()) < 50
    assert {to for _, to in phone.wire.rtp} == {PEER}


async def test_a_hold_stops_both_ways_and_a_resume_goes_on_where_it_was() -> None:
    phone = Phone()
    speech = tone(8000, 2.0)
    phone.port.playout.write(speech)
    phone.clock.run(10)
    frames = len(phone.ear.frames)
    phone.port.agree(replace(PLAIN, sends=False, hears=True))
    assert phone.port.on_hold
    phone.wire.rtp.clear()
    queued = phone.port.playout.queued_samples
    phone.clock.run(100)
    assert not phone.wire.rtp
    assert len(phone.ear.frames) == frames
    assert phone.port.playout.queued_samples == queued
    phone.port.agree(PLAIN)
    phone.clock.run(10)
    assert len(phone.sent()) == 10
    assert len(phone.ear.frames) == frames + 10


async def test_a_reinvite_with_another_port_moves_the_stream_at_once() -> None:
    phone = Phone()
    phone.send(b"\xff" * 160, 160)
    phone.clock.run()
    phone.port.agree(replace(PLAIN, remote=("192.0.2.1", 5000)))
    phone.port.playout.write(tone(8000, 0.2))
    phone.wire.rtp.clear()
    phone.clock.run(5)
    assert {to for _, to in phone.wire.rtp} == {("192.0.2.1", 5000)}


async def test_another_encoding_in_the_middle_of_a_call_is_spoken_and_heard() -> None:
    phone = Phone()
    phone.clock.run(3)
    phone.port.agree(replace(PLAIN, codec=G722, payload_type=9))
    phone.port.playout.write(tone(8000, 0.6))
    phone.wire.rtp.clear()
    encoder = make_encoder(G722, SETTINGS)
    frames = np.split(tone(16_000, 0.6), 30)
    phone.clock.run(30, lambda _tick: phone.send(encoder.encode(frames.pop(0)), 160, 9))
    packets = phone.sent()
    assert {packet.payload_type for packet in packets} == {9}
    decoder = make_decoder(G722)
    out = np.concatenate([decoder.decode(packet.payload) for packet in packets])
    assert level(out[3200:8000]) == pytest.approx(8000 / 2**0.5, rel=0.2)
    assert level(phone.heard()[-3200:]) > 4000


async def test_encrypted_packets_are_read_and_plain_ones_are_not() -> None:
    ours = SrtpKey("AES_CM_128_HMAC_SHA1_80", bytes(range(30)))
    theirs = SrtpKey("AES_CM_128_HMAC_SHA1_80", bytes(range(30, 60)))
    phone = Phone(replace(PLAIN, send_key=ours, receive_key=theirs))
    peer = Cipher(theirs, ours)
    encoder = make_encoder(PCMU, SETTINGS)
    phone.wire.on_rtp(build_rtp(0, False, 1, 1, 9, b"\0" * 160), PEER)
    for sequence, frame in enumerate(np.split(tone(8000, 0.5), 25)):
        packet = build_rtp(0, False, sequence, sequence * 160, 5, encoder.encode(frame))
        phone.wire.on_rtp(peer.protect(packet), PEER)
        phone.clock.run()
    assert level(phone.heard()[-3200:]) > 4000
    assert phone.port.stats().corrupt == 1
    assert all(peer.unprotect(packet) is not None for packet, _ in phone.wire.rtp)


async def test_no_rtp_at_all_ends_the_call_with_a_clear_line(caplog: pytest.LogCaptureFixture) -> None:
    phone = Phone()
    phone.clock.run(499)
    assert not phone.ear.closed
    phone.clock.run(2)
    assert phone.ear.closed == ["peer vanished"]
    assert "no RTP at all came" in caplog.text
    assert not phone.clock.callbacks


async def test_a_held_call_outlives_the_silence_of_a_conversation() -> None:
    phone = Phone()
    phone.send(b"\xff" * 160, 160)
    phone.clock.run()
    phone.port.agree(replace(PLAIN, sends=False, hears=False))
    phone.clock.run(1490)
    assert not phone.ear.closed
    phone.clock.run(20)
    assert phone.ear.closed == ["peer vanished"]


async def test_a_silence_is_told_and_so_is_its_end() -> None:
    phone = Phone()
    phone.send(b"\xff" * 160, 160)
    phone.clock.run(150)
    phone.send(b"\xff" * 160, 160)
    phone.clock.run(2)
    assert phone.ear.stalls == ["stalled", "resumed"]


async def test_reports_go_to_the_next_port_or_with_the_audio_when_that_was_agreed() -> None:
    phone = Phone()
    phone.send(b"\xff" * 160, 160)
    phone.clock.run(80)
    assert {to for _, to in phone.wire.rtcp} == {("192.0.2.1", 4001)}
    assert any(isinstance(item, SenderInfo) for packet, _ in phone.wire.rtcp for item in parse_rtcp(packet))
    muxed = Phone(replace(PLAIN, rtcp_mux=True))
    muxed.clock.run(80)
    assert not muxed.wire.rtcp
    assert any(200 <= packet[1] <= 201 for packet, _ in muxed.wire.rtp)


async def test_the_peers_reports_tell_the_loss_and_malformed_ones_nothing() -> None:
    phone = Phone()
    phone.clock.run(2)
    ours = phone.sent()[0].ssrc
    block = ReportBlock(ours, 128, 10, 50, 8, 0, 0)
    phone.wire.on_rtcp(build_report(5, SenderInfo(5, ntp_time(1.0), 0, 1, 1), block, "x"), ("192.0.2.1", 4001))
    phone.wire.on_rtcp(b"\x80\xc8\xff\xff", ("192.0.2.1", 4001))
    phone.wire.on_rtcp(build_report(5, None, replace(block, lost_fraction=255), "x"), ("198.51.100.1", 4001))
    assert phone.port.stats().remote_lost_fraction == 0.5


async def test_closing_says_goodbye_once() -> None:
    phone = Phone()
    phone.clock.run(2)
    await phone.port.close()
    await phone.port.close()
    assert phone.wire.closed == 1
    assert phone.wire.rtcp[-1][0][-8:-6] == b"\x81\xcb"
    assert not phone.clock.callbacks


async def test_malformed_packets_are_counted_and_harm_nothing() -> None:
    phone = Phone()
    for junk in (b"", b"\x80", b"\x00" * 40, b"\x80\x00" + b"\x00" * 8, b"\xbf\x00" + b"\xff" * 30, b"\x80\x7f" * 20):
        phone.wire.on_rtp(junk, PEER)
        phone.wire.on_rtcp(junk, PEER)
    phone.clock.run(5)
    assert phone.port.stats().corrupt > 4
    assert len(phone.ear.frames) == 5
