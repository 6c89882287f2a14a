"""Dialogues of calls become work ahead and lessons."""

from __future__ import annotations

from collections.abc import Sequence

from agent.config import CacheSettings
from agent.voicecache.foresight import MAX_CALLS, Foresight, first_clause
from agent.voicecache.journal import TurnRecord
from agent.voicecache.prefetcher import Job
from agent.voicecache.privacy import Privacy
from agent.voicecache.situation import Situation
from tests.agent.voicecache.support import STYLE, VOICE


class Watch:
    """A foresight and what it asked for."""

    def __init__(self) -> None:
        self.wanted: dict[str, list[str]] = {}
        self.ready: set[str] = set()
        self.notes: list[TurnRecord] = []
        self.foresight = Foresight(
            CacheSettings(),
            Privacy("names"),
            want=self._want,
            ready=lambda job: job.text in self.ready,
            note=lambda _call, record: self.notes.append(record),
        )

    def _want(self, call: str, jobs: Sequence[tuple[Job, float]]) -> None:
        self.wanted[call] = [job.text for job, _ in jobs]

    def turn(self, call: str, situation: Situation, heard: str, opening: str) -> None:
        self.foresight.on_call(call, VOICE, STYLE, hour=9)
        self.foresight.on_turn(call, situation)
        self.foresight.on_partial(call, heard)
        self.foresight.on_reply(call, opening, heard=heard)


START = Situation("start", "How can I help?")


def test_what_was_said_is_wanted_next_time_and_what_is_ready_is_not() -> None:
    watch = Watch()
    watch.turn("1", START, "my parcel", "Let me look.")
    watch.turn("2", START, "my parcel", "Let me look.")
    assert watch.wanted["2"] == ["Let me look."]
    watch.ready.add("Let me look.")
    watch.turn("3", START, "my parcel", "Let me look.")
    assert watch.wanted["3"] == []
    assert [note.used for note in watch.notes] == [False, False, True]
    assert watch.notes[2].partials == 1


def test_expected_texts_are_cut_to_their_first_clause_and_normalised() -> None:
    watch = Watch()
    watch.foresight.on_call("1", VOICE, STYLE, hour=9)
    watch.foresight.on_turn("1", Situation("start", "Hi.", expected=("**Sure!** It takes 3 days.", "Sure! Other.")))
    assert watch.wanted["1"] == ["Sure!"]


def test_private_openings_are_neither_learned_nor_shared_nor_written_down() -> None:
    watch = Watch()
    watch.turn("1", START, "hello", "Hello, Anna Kowalski.")
    watch.turn("2", Situation("x", "Your code is 4711."), "what", "Of course.")
    assert watch.foresight.predictor.openings == 1
    [lesson] = watch.foresight.untaught()
    assert lesson.opening == "Of course."
    assert not any("4711" in context for context in lesson.contexts)
    assert watch.foresight.untaught() == []
    assert watch.notes[0].opening.startswith("#")
    assert "Kowalski" not in repr(watch.notes)


def test_what_others_saw_is_learned() -> None:
    one, two = Watch(), Watch()
    one.turn("1", START, "my parcel", "Let me look.")
    two.foresight.learn(one.foresight.untaught())
    two.turn("2", START, "my parcel", "Let me look.")
    assert two.wanted["2"] == ["Let me look."]
    assert two.foresight.changed


def test_calls_are_bounded_and_unknown_ones_ignored() -> None:
    watch = Watch()
    for number in range(MAX_CALLS + 10):
        watch.foresight.on_call(str(number), VOICE, STYLE, hour=9)
    watch.foresight.on_turn("0", START)
    watch.foresight.on_partial("0", "hello")
    watch.foresight.on_reply("0", "Hello.")
    assert not watch.wanted
    watch.foresight.on_end("20")
    watch.foresight.on_turn("20", START)
    assert not watch.wanted


def test_a_reply_of_which_nothing_is_spoken_has_no_first_clause() -> None:
    assert first_clause("```", "en") is None
    clause = first_clause("Well, it costs $3.50. Thanks.", "en")
    assert clause is not None
    assert "Thanks" not in clause.spoken
