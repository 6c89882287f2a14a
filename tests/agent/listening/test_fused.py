"""The wait: bounded, continuous, monotone, and right about the turns that rules of silence get wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import ListeningSettings
from agent.listening.endpoint import EndOfTurn, Evidence, SilenceEndpoint
from agent.listening.fused import FusedEndpoint, Weights, create_endpoint

ENDPOINT = FusedEndpoint(120, 1600)

TEXTS = ["", "yes", "I want to", "my number is", "where is my order?", "five five", "我想要", "好的"]
chances = st.none() | st.floats(0, 1)
evidences = st.builds(
    Evidence,
    text=st.sampled_from(TEXTS),
    stable=st.sampled_from(TEXTS),
    expect=st.sampled_from(["free", "digits", "yes_no", "name"]),
    language=st.sampled_from(["en", "zh", "de"]),
    min_digits=st.none() | st.integers(0, 20),
    end_of_turn=chances,
    sound=chances,
    asked=st.sampled_from(["", "Is that right?", "What is your number?"]),
    pause_ms=st.none() | st.floats(0, 10_000),
)


def said(text: str, **more: object) -> Evidence:
    return replace(Evidence(text=text, stable=text), **more)  # type: ignore[arg-type]


@given(evidences)
def test_the_wait_keeps_its_bounds_whatever_is_known_or_missing(evidence: Evidence) -> None:
    verdict = ENDPOINT.judge(evidence)
    assert 120 <= verdict.wait_ms <= 1600
    assert 0 < verdict.probability < 1


@given(evidences, st.floats(0, 1), st.floats(0, 1))
def test_a_surer_sound_never_waits_longer(evidence: Evidence, one: float, other: float) -> None:
    less, more = sorted((one, other))
    unsure, sure = (ENDPOINT.judge(replace(evidence, sound=value)) for value in (less, more))
    assert unsure.wait_ms >= sure.wait_ms
    assert unsure.probability <= sure.probability


@given(evidences, st.floats(0, 0.999))
def test_a_small_change_of_evidence_is_a_small_change_of_the_wait(evidence: Evidence, chance: float) -> None:
    here, there = (ENDPOINT.judge(replace(evidence, sound=value)).wait_ms for value in (chance, chance + 0.001))
    # The steepest place is at 0.005, where the log odds are held.
    assert abs(here - there) < 75


@given(evidences, st.floats(0, 5000), st.floats(0, 5000))
def test_longer_pauses_of_the_caller_never_shorten_an_unsure_wait(evidence: Evidence, one: float, other: float) -> None:
    short, long = sorted((one, other))
    quick, slow = (ENDPOINT.judge(replace(evidence, pause_ms=value)) for value in (short, long))
    assert quick.probability == slow.probability
    assert quick.wait_ms <= slow.wait_ms


def test_a_turn_that_is_surely_over_waits_the_least() -> None:
    done = said("Where is my order?", sound=0.98, end_of_turn=0.95)
    assert ENDPOINT.judge(done).wait_ms == pytest.approx(120, abs=60)


def test_a_turn_that_is_surely_not_over_waits_the_most() -> None:
    assert ENDPOINT.judge(said("my number is", sound=0.03, end_of_turn=0.05)).wait_ms == 1600


def test_without_any_source_it_is_patient_and_not_stuck() -> None:
    verdict = ENDPOINT.judge(Evidence(language="de"))
    assert verdict.probability == 0.5
    assert 500 <= verdict.wait_ms <= 1200


def test_a_phone_number_in_three_groups_survives_pauses_of_a_second() -> None:
    expected = {"expect": "digits", "min_digits": 10}
    # A voice that falls at the end of each group: the model is fooled, the count is not.
    for group in ("zero seven nine", "zero seven nine four six one"):
        assert ENDPOINT.judge(said(group, sound=0.95, end_of_turn=0.9, **expected)).wait_ms > 1000
    whole = said("zero seven nine four six one two two eight five", sound=0.9, end_of_turn=0.9, **expected)
    assert ENDPOINT.judge(whole).wait_ms < 300


def test_a_number_that_nobody_asked_for_is_waited_for_too() -> None:
    assert ENDPOINT.judge(said("my number is zero seven", sound=0.5)).wait_ms > 1000


@pytest.mark.parametrize("text", ["I would like emmm", "so, uhh", "it was the, um"])
def test_a_filler_is_not_the_end(text: str) -> None:
    assert ENDPOINT.judge(said(text, sound=0.6, end_of_turn=0.6)).wait_ms > 1000


def test_yes_after_a_yes_no_question_is_answered_at_once() -> None:
    asked = ENDPOINT.judge(said("Yes.", sound=0.2, asked="Shall I send it today?"))
    unasked = ENDPOINT.judge(said("Yes.", sound=0.2))
    assert asked.wait_ms < unasked.wait_ms
    assert asked.wait_ms < 200


def test_mandarin_is_judged_by_its_own_words() -> None:
    whole, half = (ENDPOINT.judge(said(text, language="zh")).wait_ms for text in ("我的订单到了吗", "我的号码是"))
    assert whole < 500
    assert half > 1500


def test_a_source_without_weight_is_not_heard() -> None:
    deaf = FusedEndpoint(120, 1600, weights=Weights(0, 0, 0, 0))
    assert deaf.judge(said("my number is", sound=0.01, end_of_turn=0.01)).probability == 0.5


@pytest.mark.parametrize(("least", "most"), [(0, 100), (-1, 100), (200, 100)])
def test_bounds_must_be_in_order(least: float, most: float) -> None:
    with pytest.raises(ValueError, match="min_ms"):
        FusedEndpoint(least, most)


def test_the_settings_choose_the_estimator() -> None:
    fused: EndOfTurn = create_endpoint(ListeningSettings(endpoint_min_ms=300, endpoint_max_ms=900))
    assert fused.judge(said("my number is")).wait_ms == 900
    assert fused.judge(said("Yes.", sound=0.99, asked="Is it?")).wait_ms == 300
    silence = create_endpoint(ListeningSettings(endpoint="silence", endpoint_silence_ms=700))
    assert isinstance(silence, SilenceEndpoint)
    assert silence.judge(Evidence()).wait_ms == 700


def test_a_least_wait_above_the_greatest_is_kept() -> None:
    settings = ListeningSettings(endpoint_min_ms=800, endpoint_max_ms=400)
    assert create_endpoint(settings).judge(said("my number is")).wait_ms == 800
