"""What follows what."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.voicecache import predictor as module
from agent.voicecache.predictor import Observation, Predictor
from agent.voicecache.situation import Situation

START = Situation("start", "How can I help?")
ELSEWHERE = Situation("end", "Anything else?")


def teach(predictor: Predictor, situation: Situation, heard: str, opening: str, times: int = 1) -> None:
    for _ in range(times):
        predictor.observe(predictor.observation(situation, heard, opening))


def first(predictor: Predictor, situation: Situation, partial: str = "") -> str:
    return predictor.predict(situation, partial)[0].text


def test_it_knows_nothing_at_first() -> None:
    assert Predictor().predict(START) == []


def test_it_learns_what_follows_where() -> None:
    predictor = Predictor()
    teach(predictor, START, "my parcel", "Let me look.", 3)
    teach(predictor, ELSEWHERE, "no", "Goodbye.", 5)
    assert first(predictor, START) == "Let me look."
    assert first(predictor, ELSEWHERE) == "Goodbye."


def test_it_backs_off_to_what_it_knows_of_a_part_of_the_situation() -> None:
    predictor = Predictor()
    teach(predictor, START, "", "Let me look.", 3)
    teach(predictor, ELSEWHERE, "", "Goodbye.", 3)
    assert first(predictor, Situation("start", "never said")) == "Let me look."
    assert first(predictor, Situation("", "Anything else?")) == "Goodbye."
    assert {p.text for p in predictor.predict(Situation("nowhere", "never"))} == {"Let me look.", "Goodbye."}


def test_the_callers_words_turn_it() -> None:
    predictor = Predictor()
    for _ in range(4):
        teach(predictor, START, "where is my parcel", "Let me look.")
        teach(predictor, START, "I want a refund", "I'm sorry to hear that.")
    assert first(predictor, START, "uh a refund") == "I'm sorry to hear that."
    assert first(predictor, START, "the parcel") == "Let me look."
    [likely, *_] = predictor.predict(START, "refund")
    assert likely.probability > 0.6
    assert "caller's words" in likely.why


def test_probabilities_are_of_all_that_may_come() -> None:
    predictor = Predictor()
    for number in range(10):
        teach(predictor, START, f"word{number}", f"Opening {number}.")
    for partial in ("", "word3"):
        found = predictor.predict(START, partial, limit=32)
        assert sum(p.probability for p in found) <= 1.0 + 1e-9
        assert all(p.probability > 0 for p in found)
        assert [p.probability for p in found] == sorted((p.probability for p in found), reverse=True)


def test_what_the_hook_expects_leads_until_it_is_known_better() -> None:
    predictor = Predictor()
    situation = Situation("start", "Hi.", expected=("Of course.",))
    assert first(predictor, situation) == "Of course."
    assert "the hook expects it" in predictor.predict(situation)[0].why
    teach(predictor, situation, "", "Let me look.", 20)
    assert first(predictor, situation) == "Let me look."


def test_names_are_left_open_and_filled_in() -> None:
    predictor = Predictor()
    for name in ("Anna", "Boris"):
        teach(predictor, Situation("named", "Your name?", slots={"name": name}), "", f"Thanks, {name}.")
    assert first(predictor, Situation("named", "Your name?", slots={"name": "Clara"})) == "Thanks, Clara."
    assert all("{" not in p.text for p in predictor.predict(Situation("named", "Your name?")))


def test_old_habits_fade() -> None:
    predictor = Predictor(half_life_turns=10)
    teach(predictor, START, "", "Old.", 30)
    teach(predictor, START, "", "New.", 15)
    assert first(predictor, START) == "New."
    slow = Predictor(half_life_turns=10_000)
    teach(slow, START, "", "Old.", 30)
    teach(slow, START, "", "New.", 15)
    assert first(slow, START) == "Old."


def test_it_says_why() -> None:
    predictor = Predictor()
    teach(predictor, START, "", "Let me look.", 3)
    assert predictor.predict(START)[0].why == "state and last clause 'start | How can I help?': 3.0 of 3.0"


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONTEXTS", 200)
    predictor = Predictor()
    for number in range(700):
        teach(
            predictor, Situation(f"state {number}", f"said {number}"), f"w{'x' * (number % 50)}", f"Opening {number}."
        )
    assert len(predictor) <= 200
    assert predictor.openings <= 8 * module.MAX_OPENINGS_PER_CONTEXT
    assert len(predictor.predict(Situation("state 699", "said 699"), limit=32)) <= 32


def test_numbers_never_overflow() -> None:
    predictor = Predictor(half_life_turns=1)
    teach(predictor, START, "", "Old.", 3)
    teach(predictor, START, "parcel", "Let me look.", 2000)
    [likely, *_] = predictor.predict(START, "parcel")
    assert likely.text == "Let me look."
    assert 0.5 < likely.probability <= 1.0


def test_two_that_see_the_same_learn_the_same_and_merge() -> None:
    seen = [Predictor().observation(START, f"word{i % 3}", f"Opening {i % 5}.") for i in range(40)]
    one, two = Predictor(), Predictor()
    for observation in seen:
        one.observe(observation)
    for observation in seen:
        two.observe(Observation.restore(json.loads(json.dumps(observation.describe()))))
    assert one.dump() == two.dump()


def test_it_goes_on_after_a_restart_with_what_it_knew() -> None:
    one, two = Predictor(), Predictor()
    teach(one, START, "parcel", "Let me look.", 7)
    teach(one, START, "refund", "Sorry.", 2)
    two.restore(json.loads(json.dumps(one.dump())))
    before, after = one.predict(START, "refund"), two.predict(START, "refund")
    assert [p.text for p in before] == [p.text for p in after]
    assert [p.probability for p in before] == pytest.approx([p.probability for p in after], rel=1e-4)


@pytest.mark.parametrize(
    "values",
    [{}, {"format": 2, "contexts": {}}, {"format": 1, "contexts": {"": 3}}, {"format": 1, "contexts": {"": {"a": -1}}}],
)
def test_what_it_cannot_use_changes_nothing(values: dict[str, object]) -> None:
    predictor = Predictor()
    teach(predictor, START, "", "Let me look.")
    with pytest.raises(ValueError, match="predictor"):
        predictor.restore(values)
    assert first(predictor, START) == "Let me look."


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(st.fixed_dictionaries({"contexts": json_values, "words": json_values, "opening": json_values}))
def test_an_observation_of_others_is_checked(values: dict[str, object]) -> None:
    try:
        seen = Observation.restore(values)
    except ValueError:
        return
    predictor = Predictor()
    predictor.observe(seen)
    predictor.predict(START, "hello")
