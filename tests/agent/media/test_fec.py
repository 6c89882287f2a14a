"""In-band FEC follows what the peer reports."""

from __future__ import annotations

from agent.media.fec import CLEAN_S, HOLD_S, FecPolicy


def test_it_begins_with_what_is_configured_and_ends_on_a_clean_path() -> None:
    policy = FecPolicy(5)
    assert policy.percent == 5
    assert not policy.report(0.0, 10.0)
    assert not policy.report(0.0, 10.0 + CLEAN_S / 2)
    assert policy.report(0.0, 10.0 + CLEAN_S)
    assert policy.percent == 0


def test_one_late_report_is_not_enough() -> None:
    policy = FecPolicy(5)
    assert not policy.report(0.0, 500.0)
    assert policy.percent == 5


def test_loss_brings_it_back_at_once_and_for_long() -> None:
    policy = FecPolicy(5)
    for second in range(10):
        policy.report(0.0, float(second))
    assert policy.percent == 0
    assert policy.report(0.02, 10.0)
    assert policy.percent == 5
    assert policy.report(0.12, 11.0)
    assert policy.percent == 10
    for second in range(12, 12 + int(HOLD_S)):
        assert not policy.report(0.0, float(second))
    assert policy.report(0.0, 12 + HOLD_S)
    assert policy.percent == 0


def test_it_is_bounded() -> None:
    policy = FecPolicy(0)
    assert policy.percent == 0
    policy.report(1.0, 0.0)
    assert policy.percent == 30
