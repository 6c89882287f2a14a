from __future__ import annotations

import pytest

from agent.listening.endpoint import EndOfTurn, Evidence, SilenceEndpoint


def test_silence_waits_the_same_whatever_was_said() -> None:
    endpoint: EndOfTurn = SilenceEndpoint(500)
    assert endpoint.judge(Evidence()).wait_ms == 500.0
    assert (
        endpoint.judge(Evidence(text="my number is", expect="digits", min_digits=10, end_of_turn=0.01)).wait_ms == 500.0
    )


@pytest.mark.parametrize("wrong", [0, -1, float("nan")])
def test_a_wait_that_is_not_positive_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="silence_ms"):
        SilenceEndpoint(wrong)
