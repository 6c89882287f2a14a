"""Whatever an authenticated or unknown peer sends: nothing raises out of the media path, and nothing grows."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import Any

import pylibsrtp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.config import MediaSettings
from agent.media import fec, inbound, jitter
from agent.media.reports import REMEMBERED
from agent.media.rtcp import ReportBlock, SenderInfo, build_report, parse_rtcp
from agent.media.rtp import build_rtp, is_rtcp
from agent.media.sdp import parse_offer
from agent.media.webrtc import WebRtcPort

OPUS, EVENT = 111, 126
KEY = bytes(range(30))
OFFER = "\r\n".join(
    [
        "v=0",
        "o=- 1 1 IN IP4 127.0.0.1",
        "s=-",
        "t=0 0",
        "a=group:BUNDLE 0",
        f"m=audio 9 UDP/TLS/RTP/SAVPF {OPUS} {EVENT}",
        "c=IN IP4 0.0.0.0",
        "a=ice-ufrag:abcd",
        "a=ice-pwd:0123456789abcdefghijklmn",
        "a=fingerprint:sha-256 " + ":".join(["00"] * 32),
        "a=setup:actpass",
        "a=mid:0",
        "a=sendrecv",
        "a=rtcp-mux",
        f"a=rtpmap:{OPUS} opus/48000/2",
        f"a=rtpmap:{EVENT} telephone-event/8000",
        "",
    ]
)


class NoTicker:
    def add(self, callback: Any) -> None: ...
    def remove(self, callback: Any) -> None: ...


class Victim:
    """A port whose DTLS is up, and the peer's side of its SRTP."""

    def __init__(self) -> None:
        self.port = WebRtcPort(
            parse_offer(OFFER),
            settings=MediaSettings(),
            ticker=NoTicker(),
            on_message=lambda text: None,  # type: ignore[arg-type]
        )
        self.transport = self.port._transport
        inward = pylibsrtp.Policy(key=KEY, ssrc_type=pylibsrtp.Policy.SSRC_ANY_INBOUND)
        outward = pylibsrtp.Policy(key=KEY, ssrc_type=pylibsrtp.Policy.SSRC_ANY_OUTBOUND)
        inward.window_size = outward.window_size = 1024
        outward.allow_repeat_tx = True
        self.transport._dtls._rx_srtp = pylibsrtp.Session(policy=inward)
        self.session = pylibsrtp.Session(policy=outward)

    def arrive(self, plain: bytes) -> bool:
        """Authenticate and deliver; False when SRTP itself will not carry it."""
        try:
            data = self.session.protect_rtcp(plain) if is_rtcp(plain) else self.session.protect(plain)
        except (pylibsrtp.Error, TypeError, ValueError):
            return False
        self.transport._media(data)
        return True

    def check_bounds(self) -> None:
        receiver, buffer = self.port._receiver, self.port._receiver._jitter
        assert len(buffer._order) == len(buffer._entries) <= jitter.MAX_PACKETS
        assert len(buffer._lost_seqs) <= jitter.LOST_REMEMBERED
        assert len(receiver._digits) <= inbound.MAX_WAITING_DIGITS
        assert len(self.port._reports._sent_at) <= REMEMBERED
        assert 0 <= self.port.stats().remote_lost_fraction <= 1
        assert self.port._reports.fec_percent <= fec.MAX_PCT

    def close(self) -> None:
        self.port._receiver.close()
        self.port._sender.close()


def rtcp_packet(first: int, kind: int, words: int, body: bytes) -> bytes:
    return struct.pack("!BBH", first, kind, words) + body


HONEST_LENGTH = st.builds(
    lambda count, kind, body: rtcp_packet(0x80 | count, kind, len(body) // 4, body[: len(body) // 4 * 4]),
    st.integers(0, 31),
    st.integers(192, 223),
    st.binary(max_size=200),
)
LYING_LENGTH = st.builds(
    rtcp_packet, st.integers(0, 255), st.integers(192, 223), st.integers(0, 65535), st.binary(max_size=64)
)
COMPOUND = st.lists(st.one_of(HONEST_LENGTH, LYING_LENGTH), min_size=1, max_size=6).map(b"".join)
RTP = st.builds(
    build_rtp,
    st.sampled_from([OPUS, EVENT, 0, 127]),
    st.booleans(),
    st.integers(0, 65535),
    st.integers(0, 2**32 - 1),
    st.integers(0, 3),
    st.binary(max_size=120),
)
ODD_HEADER = st.builds(
    lambda first, rest: bytes([first]) + rest, st.integers(128, 191), st.binary(min_size=1, max_size=100)
)


@given(st.one_of(COMPOUND, st.binary(max_size=300)))
def test_any_compound_is_read_to_its_end_in_values_that_fit(data: bytes) -> None:
    items = list(parse_rtcp(data))
    assert len(items) <= len(data) // 20 + 1
    for item in items:
        match item:
            case SenderInfo():
                assert 0 <= item.ntp < 1 << 64
            case ReportBlock():
                assert 0 <= item.lost_fraction <= 255
                assert -(1 << 23) <= item.lost_total < 1 << 23
                build_report(1, None, item, "x")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(COMPOUND, RTP, ODD_HEADER), max_size=40))
def test_authenticated_hostile_packets_stay_inside(packets: list[bytes]) -> None:
    victim = Victim()
    try:
        now = 5.0
        for packet in packets:
            victim.arrive(packet)
            # Again past the transport, which would count some errors as packets that did not authenticate.
            (victim.port.on_rtcp if is_rtcp(packet) else victim.port.on_rtp)(packet)
            frame, digits = victim.port._receiver.tick(now)
            assert frame.shape == (320,)
            assert set(digits) <= set("0123456789*#ABCD")
            now += 0.02
        victim.check_bounds()
    finally:
        victim.close()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=80), ODD_HEADER, COMPOUND), min_size=1, max_size=20))
def test_unauthenticated_packets_are_counted_and_nothing_else(packets: list[bytes]) -> None:
    victim = Victim()
    try:
        for packet in packets:
            victim.transport._media(packet)
        assert victim.transport.rejected == len(packets)
        assert victim.port.stats().inbound.received == 0
    finally:
        victim.close()


@pytest.mark.parametrize("size", [1_200, 9_000, 60_000])
def test_huge_packets_are_taken_or_counted(size: int) -> None:
    victim = Victim()
    try:
        for payload in (bytes(size), b"\xff" * size, b"\x03\xff" * (size // 2)):
            packet = build_rtp(OPUS, False, len(payload) & 0xFFFF, 960, 5, payload)
            victim.transport._media(packet)
            victim.port.on_rtp(packet)
            victim.port.on_rtcp(bytes([0x9F, 200]) + struct.pack("!H", 0xFFFF) + payload)
            victim.port.on_rtcp(bytes([0x9F, 201]) + struct.pack("!H", len(payload) // 4) + payload)
        for n in range(10):
            assert victim.port._receiver.tick(1.0 + n * 0.02)[0].shape == (320,)
        victim.check_bounds()
    finally:
        victim.close()


def storm(victim: Victim, count: int, rng: random.Random) -> int:
    """Packets of every hostile kind; nobody reads (no tick)."""
    carried = 0
    for _ in range(count):
        body = rng.randbytes(rng.randrange(0, 200))
        match rng.randrange(4):
            case 0:
                packet = build_rtp(OPUS, True, rng.randrange(65536), rng.randrange(2**32), rng.randrange(4), body)
            case 1:
                ended = struct.pack("!BBH", rng.randrange(16), 0x80, 800)
                packet = build_rtp(EVENT, True, rng.randrange(65536), rng.randrange(2**32), rng.randrange(4), ended)
            case 2:
                packet = rtcp_packet(0x80 | rng.randrange(32), 200 + rng.randrange(8), len(body) // 4, body)
            case _:
                packet = build_rtp(OPUS, True, rng.randrange(65536), rng.randrange(2**32), 7, b"\xf8" + body)
        carried += victim.arrive(packet)
    return carried


def test_a_storm_that_nobody_reads_does_not_grow_memory() -> None:
    victim, rng = Victim(), random.Random(2)
    try:
        assert storm(victim, 3_000, rng) > 1_000
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            storm(victim, 12_000, rng)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        victim.check_bounds()
        # 128 packets of 200 bytes and their bookkeeping are the bound; 12,000 kept would be megabytes.
        assert grown < 200_000
    finally:
        victim.close()


def test_a_track_nobody_reads_keeps_only_the_newest_second() -> None:
    victim = Victim()
    try:
        for n in range(5_000):
            victim.port.on_rtp(build_rtp(OPUS, n == 0, n & 0xFFFF, n * 960, 5, b"\xf8\xff\xfe"))
        victim.check_bounds()
        counters = victim.port._receiver.counters
        assert counters.received == 5_000
        assert counters.dropped >= 5_000 - jitter.MAX_PACKETS - 1
        assert victim.port.playout.queued_samples == 0
    finally:
        victim.close()


def test_key_presses_nobody_reads_are_bounded() -> None:
    victim = Victim()
    try:
        victim.port.on_rtp(build_rtp(OPUS, True, 0, 0, 5, b"\xf8\xff\xfe"))
        for n in range(1, 2_000):
            victim.port.on_rtp(build_rtp(EVENT, True, n, n * 400, 5, struct.pack("!BBH", n % 10, 0x80, 160)))
        _, digits = victim.port._receiver.tick(1.0)
        assert len(digits) == inbound.MAX_WAITING_DIGITS
    finally:
        victim.close()
