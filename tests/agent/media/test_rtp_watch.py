"""How long RTP may be missing in each state."""

from __future__ import annotations

import pytest

from agent.media.rtp_watch import Expected, RtpLimits, RtpWatch

LIMITS = RtpLimits(first_s=10.0, silence_s=20.0, hold_s=100.0)


def test_a_caller_from_whom_nothing_ever_came_is_given_up_with_the_settings_to_look_at() -> None:
    watch = RtpWatch(LIMITS, 50.0)
    assert watch.fault(None, 59.9) is None
    fault = watch.fault(None, 60.0)
    assert fault is not None
    assert "sip.advertised_address" in fault
    assert "10 s" in fault


def test_silence_in_a_conversation_counts_from_the_last_packet() -> None:
    watch = RtpWatch(LIMITS, 0.0)
    assert watch.fault(30.0, 49.9) is None
    assert watch.fault(30.0, 50.0) == "no RTP came for 20 s"


def test_on_hold_silence_is_expected_and_has_a_limit_of_its_own() -> None:
    watch = RtpWatch(LIMITS, 0.0)
    watch.expect(Expected.NOTHING, 30.0)
    assert watch.fault(29.0, 129.0) is None
    assert watch.fault(29.0, 130.0) == "on hold for 100 s"


def test_after_a_hold_the_silence_begins_anew() -> None:
    watch = RtpWatch(LIMITS, 0.0)
    watch.expect(Expected.NOTHING, 30.0)
    watch.expect(Expected.SPEECH, 90.0)
    assert watch.fault(29.0, 109.0) is None
    assert watch.fault(29.0, 110.0) is not None


@pytest.mark.parametrize("again", [31.0, 60.0])
def test_telling_the_same_state_twice_prolongs_nothing(again: float) -> None:
    watch = RtpWatch(LIMITS, 0.0)
    watch.expect(Expected.NOTHING, 30.0)
    watch.expect(Expected.NOTHING, again)
    assert watch.fault(29.0, 130.0) is not None
