"""RTCP reports of a call: when they are due, and what the peer's tell."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import MediaSettings
from agent.media.codec import PCMU
from agent.media.codecs import make_encoder, make_receiver
from agent.media.frames import Pcm
from agent.media.inbound import AudioReceiver
from agent.media.outbound import AudioSender
from agent.media.reports import REMEMBERED, Reports
from agent.media.rtcp import ReportBlock, SenderInfo, build_report, parse_rtcp

OURS, THEIRS = 7, 9
UNIX_S = 1_700_000_000.0


@pytest.fixture
def sender() -> AudioSender:
    sender = AudioSender(make_encoder(PCMU, MediaSettings()), 0, None, ssrc=OURS)
    sender.tick(silence(), 0)
    return sender


@pytest.fixture
def receiver() -> AudioReceiver:
    return make_receiver(PCMU, 0, {}, MediaSettings())


def silence() -> Pcm:
    return np.zeros(160, np.int16)


def block(*, ssrc: int = OURS, lost: int = 0, last_sr: int = 0, delay_s: float = 0.0) -> bytes:
    return build_report(THEIRS, None, ReportBlock(ssrc, lost, 0, 0, 0, last_sr, round(delay_s * 65536)), "peer")


def stamp(report: bytes) -> int:
    (info,) = [item for item in parse_rtcp(report) if isinstance(item, SenderInfo)]
    return info.ntp >> 16 & 0xFFFF_FFFF


@pytest.mark.parametrize(("chance", "apart"), [(0.0, 25), (0.5, 50), (0.999, 74)])
def test_a_report_is_due_at_once_and_then_each_second_or_so(chance: float, apart: int) -> None:
    reports = Reports(0, chance=lambda: chance)
    due = [tick for tick in range(200) if reports.due(tick)]
    assert due[0] == 0
    assert {after - before for before, after in itertools.pairwise(due)} == {apart}


def test_a_report_that_is_answered_tells_the_round_trip(sender: AudioSender, receiver: AudioReceiver) -> None:
    reports = Reports(0)
    sent = reports.build(sender, receiver, 10.0, UNIX_S)
    assert reports.round_trip_s is None
    reports.take(block(last_sr=stamp(sent), delay_s=0.5), sender, receiver, 10.58)
    assert reports.round_trip_s == pytest.approx(0.08, abs=0.001)
    # An answer that claims to have waited for longer than we did is no negative time.
    reports.take(block(last_sr=stamp(sent), delay_s=5.0), sender, receiver, 10.6)
    assert reports.round_trip_s == 0.0


def test_only_the_newest_reports_are_remembered(sender: AudioSender, receiver: AudioReceiver) -> None:
    reports = Reports(0)
    sent = [reports.build(sender, receiver, 10.0 + n, UNIX_S + n) for n in range(REMEMBERED + 1)]
    reports.take(block(last_sr=stamp(sent[0])), sender, receiver, 20.0)
    assert reports.round_trip_s is None
    reports.take(block(last_sr=stamp(sent[1])), sender, receiver, 20.0)
    assert reports.round_trip_s == pytest.approx(9.0)


def test_loss_is_told_and_a_change_of_what_to_prepare_for(sender: AudioSender, receiver: AudioReceiver) -> None:
    reports = Reports(0)
    assert not reports.take(block(), sender, receiver, 1.0)
    assert reports.take(block(lost=26), sender, receiver, 2.0)
    assert reports.remote_lost_fraction == pytest.approx(0.1, abs=0.01)
    assert reports.fec_percent >= 10
    assert not reports.take(block(lost=26), sender, receiver, 3.0)


def test_what_the_peer_says_of_another_stream_is_passed_over(sender: AudioSender, receiver: AudioReceiver) -> None:
    reports = Reports(0)
    assert not reports.take(block(ssrc=OURS + 1, lost=255), sender, receiver, 1.0)
    assert reports.remote_lost_fraction == 0.0


@given(st.binary(max_size=200))
def test_no_bytes_at_all_raise(data: bytes) -> None:
    sender = AudioSender(make_encoder(PCMU, MediaSettings()), 0, None, ssrc=OURS)
    receiver = make_receiver(PCMU, 0, {}, MediaSettings())
    reports = Reports(0)
    for head in (b"", struct.pack("!BBH", 0x81, 200, max(0, len(data) // 4)), struct.pack("!BBH", 0x9F, 201, 40)):
        reports.take(head + data, sender, receiver, 1.0)
