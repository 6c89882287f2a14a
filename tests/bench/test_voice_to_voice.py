"""What the voice-to-voice bench takes for warm, cold, decided and cut, without a call."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.nlu.hook import HistoryItem, Session, Turn
from bench._callers import Wait
from bench._openings import COLD, OPENINGS, WARM, reply
from bench._speech import clips
from bench._turns import longest_pause_ms, speech_end
from bench.voice_to_voice import SENTENCES, Measured


async def said(turn: Turn) -> str:
    return "".join([piece async for piece in reply.reply(turn) if isinstance(piece, str)])


def call(turns: int, session: Session) -> list[Turn]:
    """The caller's turns of one call, each with those before it in its history."""
    items = tuple(HistoryItem("user", str(number)) for number in range(turns))
    return [Turn(session, "speech", "anything", history=items[:number]) for number in range(turns)]


async def test_a_warm_call_hears_all_openings_by_turns_and_the_typed_ones_are_the_same() -> None:
    session = Session("c", "browser")
    assert [await said(replace(turn, text=WARM)) for turn in call(len(OPENINGS), session)] == list(OPENINGS)
    assert {await said(turn) for turn in call(3 * len(OPENINGS), session)} == set(OPENINGS)


async def test_a_cold_call_hears_nothing_twice_and_a_turn_asked_again_the_same() -> None:
    session = Session("c", "browser")
    first, *rest = call(40, session)
    await said(replace(first, text=COLD))
    answers = [await said(turn) for turn in rest]
    assert len(set(answers)) == len(answers)
    assert not set(answers) & set(OPENINGS)
    assert [await said(turn) for turn in rest] == answers


def test_what_is_decided_before_the_last_speech_is_cut_and_counts_as_no_answer() -> None:
    measured = Measured([Wait(10.0, 10.5, 10.25), Wait(20.0, 20.5, 19.9), Wait(30.0, 30.25, None), None], [])
    assert measured.response_ms == [500]
    assert measured.after_decision_ms == [250]
    assert measured.cut == 2


def test_the_servers_time_after_the_decision_is_what_is_left_of_its_response() -> None:
    timings: list[dict[str, float | None]] = [
        {"response_ms": 400.0, "endpoint_ms": 380.0, "tts_first_ms": 1.0},
        {"response_ms": None, "endpoint_ms": 300.0, "tts_first_ms": None},
    ]
    measured = Measured([], timings)
    assert measured.server_after_decision_ms(0.5) == pytest.approx(20)
    assert measured.part("tts_first_ms", 0.5) == 1.0


def test_the_sentences_are_recorded_whole_and_without_a_pause_that_ends_a_turn() -> None:
    by_name = {clip.name: clip for clip in clips()}
    for name in SENTENCES:
        pcm = by_name[name].pcm()
        assert longest_pause_ms(pcm, 16_000) <= 300
        assert 1.5 <= speech_end(pcm, 16_000) / 16_000 <= 6
