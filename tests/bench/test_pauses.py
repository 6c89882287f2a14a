"""The truth of the turns: each text says as many pauses as its clip holds, and a turn ends where a sentence does."""

from __future__ import annotations

import numpy as np
import pytest

from agent.asr.protocol import Hypothesis
from agent.listening.endpoint import Evidence, SilenceEndpoint
from bench._endings import Closing, Traced, before, decide, is_inner
from bench._fitting import Example, fit_weights, least_sure
from bench._pauses import Pause, PausedTurn, Utterance, utterances

HYPOTHESIS = Hypothesis("one", "one")


def turn() -> PausedTurn:
    pauses = [Pause(1000, 1900, "part"), Pause(2500, 2900, "sentence")]
    return PausedTurn(Utterance("any", None, ()), np.zeros(0, np.int16), pauses, 4000)


def closing(last_ms: float, resumed_ms: float = float("inf")) -> Closing:
    return Closing(last_ms + 100, last_ms, 500, HYPOTHESIS, last_ms + 200, None, 0.0, None, resumed_ms + 50, resumed_ms)


def test_every_turn_ends_with_a_whole_sentence_and_joins_only_in_between() -> None:
    for utterance in utterances():
        assert utterance.pieces[-1].joint is None, utterance.name
        assert all(piece.joint is not None for piece in utterance.pieces[:-1]), utterance.name


def test_no_clip_is_in_two_turns() -> None:
    names = [piece.clip.name for utterance in utterances() for piece in utterance.pieces]
    assert len(names) == len(set(names))


def test_a_clip_that_stops_in_mid_sentence_ends_no_turn() -> None:
    ends = {utterance.pieces[-1].clip.name for utterance in utterances()}
    assert not ends & {"LJ001-0004", "LJ001-0006", "LJ001-0016", "librivox-0880", "librivox-0920"}


def test_a_closing_is_told_by_the_pause_that_it_lies_in() -> None:
    assert before(turn(), closing(1000)) == "part"
    assert before(turn(), closing(2510)) == "sentence"
    assert before(turn(), closing(2000)) == "part"


def test_speech_still_to_come_makes_a_closing_inner() -> None:
    assert is_inner(turn(), closing(1000, 1900))
    # A soft ending that the detector lost is the end all the same.
    assert not is_inner(turn(), closing(3850))
    assert not is_inner(turn(), closing(3990))


def test_pauses_longer_than_the_wait_are_cut_and_the_delay_counts_from_the_end() -> None:
    traced = Traced(turn(), [closing(1000, 1900), closing(2500, 2900), closing(4000)])
    outcome = decide(traced, SilenceEndpoint(600), lambda *_: Evidence(), audible_after_ms=150)
    assert [(pause.before, pause.cut, pause.audible) for pause in outcome.judged] == [
        ("part", True, True),
        ("sentence", False, False),
    ]
    assert outcome.delay_ms == 600
    assert outcome.cut_off
    assert outcome.talked_over


def test_the_source_that_tells_gets_the_weight() -> None:
    rng = np.random.default_rng(0)
    examples = [
        Example(
            Evidence(sound=float(rng.uniform(0.4, 1.0) if ended else rng.uniform(0.0, 0.6)), end_of_turn=other), ended
        )
        for ended, other in zip([True, False] * 100, rng.uniform(0, 1, 200).tolist(), strict=True)
    ]
    weights = fit_weights(examples, 0.8)
    assert weights.sound > 0.5
    assert weights.recogniser < 0.2
    assert weights.wording == pytest.approx(0, abs=1e-6)
    assert weights.expectation == 0.8


def test_the_threshold_is_the_least_that_cuts_off_few_enough() -> None:
    assert least_sure(lambda sure: 50 - 10 * sure, 25) == 2.5
    assert least_sure(lambda _: 100.0, 25) == 4.0
