"""RTP and RTCP as bytes: what is built parses back, and hostile packets are refused by field."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ProtocolError
from agent.media.rtcp import ReceptionStats, ReportBlock, SenderInfo, build_bye, build_report, ntp_time, parse_rtcp
from agent.media.rtp import build_rtp, is_rtcp, parse_rtp, seq_delta, ts_delta


@given(
    st.integers(0, 127),
    st.booleans(),
    st.integers(0, 65535),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=50),
)
def test_what_is_built_parses_back(pt: int, marker: bool, seq: int, ts: int, ssrc: int, payload: bytes) -> None:
    packet = parse_rtp(build_rtp(pt, marker, seq, ts, ssrc, payload))
    assert (packet.payload_type, packet.marker, packet.sequence) == (pt, marker, seq)
    assert (packet.timestamp, packet.ssrc, packet.payload) == (ts, ssrc, payload)


def test_extensions_csrcs_and_padding_are_stripped() -> None:
    header = struct.pack("!BBHII", 0x80 | 0x20 | 0x10 | 2, 111, 1, 2, 3)
    csrcs = b"\0" * 8
    extension = struct.pack("!HH", 0xBEDE, 1) + b"\x10\xff\0\0"
    assert parse_rtp(header + csrcs + extension + b"opus" + b"\0\0\3").payload == b"opus"


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"", "rtp"),
        (b"\x80" * 11, "rtp"),
        (b"\x40" + b"\0" * 20, "rtp.version"),
        (b"\x90" + b"\0" * 13, "rtp.extension"),
        (b"\x90" + b"\0" * 13 + b"\xff\xff" + b"\0" * 4, "rtp.csrc"),
        (b"\x8f" + b"\0" * 20, "rtp.csrc"),
        (b"\xa0" + b"\0" * 20, "rtp.padding"),
        (b"\xa0" + b"\0" * 19 + b"\xff", "rtp.padding"),
    ],
)
def test_a_malformed_packet_names_its_field(data: bytes, field: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_rtp(data)
    assert caught.value.field == field


@given(st.binary(max_size=120))
def test_random_bytes_parse_or_are_refused(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert len(parse_rtp(data).payload) <= len(data)
    list(parse_rtcp(data))
    is_rtcp(data)


def test_distances_wrap() -> None:
    assert seq_delta(2, 65535) == 3
    assert seq_delta(65535, 2) == -3
    assert ts_delta(10, 0xFFFF_FFF0) == 26
    assert ts_delta(0xFFFF_FFF0, 10) == -26


def test_a_report_parses_back() -> None:
    info = SenderInfo(7, ntp_time(1_700_000_000.5), 48_000, 10, 1000)
    block = ReportBlock(9, 25, -3, 70_000, 48, 1234, 5678)
    data = build_report(7, info, block, "rejoinder") + build_bye(7)
    assert is_rtcp(data)
    assert len(data) % 4 == 0
    assert list(parse_rtcp(data)) == [info, block]
    assert list(parse_rtcp(build_report(7, None, None, "x"))) == []


def test_aiortc_reads_our_reports() -> None:
    from aiortc.rtp import RtcpByePacket, RtcpPacket, RtcpSdesPacket, RtcpSrPacket

    info = SenderInfo(7, ntp_time(1_700_000_000.5), 48_000, 10, 1000)
    parsed = RtcpPacket.parse(
        build_report(7, info, ReportBlock(9, 25, 3, 70_000, 48, 1, 2), "rejoinder") + build_bye(7)
    )
    assert [type(p) for p in parsed] == [RtcpSrPacket, RtcpSdesPacket, RtcpByePacket]
    assert parsed[0].reports[0].packets_lost == 3
    assert parsed[1].chunks[0].items == [(1, b"rejoinder")]


def test_loss_is_counted_by_sequence_and_since_the_last_report() -> None:
    stats = ReceptionStats(48_000)
    assert stats.report(0.0) is None
    for n in range(100):
        if n % 4:
            stats.received_packet(5, (65_500 + n) & 0xFFFF, n * 960, n * 0.02)
    first = stats.report(2.0)
    assert first is not None
    assert (first.ssrc, first.lost_total) == (5, 24)
    assert first.lost_fraction == 24 * 256 // 99
    assert first.highest_sequence == 65_536 + 63
    again = stats.report(3.0)
    assert again is not None
    assert again.lost_fraction == 0


def test_jitter_follows_the_spread_of_arrivals() -> None:
    calm, rough = ReceptionStats(48_000), ReceptionStats(48_000)
    for n in range(500):
        calm.received_packet(5, n, n * 960, 10 + n * 0.02)
        rough.received_packet(5, n, n * 960, 10 + n * 0.02 + (0.01 if n % 2 else 0.0))
    assert calm.jitter_s < 0.0001
    assert 0.005 < rough.jitter_s < 0.012


def test_the_delay_since_a_sender_report_lets_its_sender_compute_the_round_trip() -> None:
    stats = ReceptionStats(48_000)
    stats.received_packet(5, 1, 0, 1.0)
    stats.received_sr(SenderInfo(5, 0x1234_5678_9ABC_DEF0, 0, 1, 1), 2.0)
    block = stats.report(2.5)
    assert block is not None
    assert (block.last_sr, block.delay_since_sr) == (0x5678_9ABC, 32768)


def test_a_new_source_starts_its_own_statistics() -> None:
    stats = ReceptionStats(48_000)
    for n in range(0, 100, 2):
        stats.received_packet(5, n, n * 960, n * 0.02)
    stats.received_packet(6, 40_000, 0, 3.0)
    block = stats.report(3.0)
    assert block is not None
    assert (block.ssrc, block.lost_total) == (6, 0)
