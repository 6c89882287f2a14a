from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import numpy as np
import pytest

from agent.asr.protocol import Word
from agent.media.playout import Playout
from agent.speech.speaker import AHEAD_S, Speaker, cut_at_word
from agent.tts.protocol import Speech

RATE = 24_000


async def spoken(*words: str, seconds: float = 0.2) -> AsyncGenerator[Speech]:
    at = 0.0
    for word in words:
        yield Speech(np.full(round(seconds * RATE), 1000, np.int16), (Word(word, at, at + seconds),))
        at += seconds


def play(playout: Playout, speaker: Speaker, seconds: float) -> None:
    for _ in range(round(seconds / 0.02)):
        playout.read()
        speaker.tick()


async def test_what_has_left_is_heard_and_the_rest_is_not() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    await speaker.say("We open at nine. ", spoken("We", "open", "at", "nine."))
    await speaker.say("We close at six.", spoken("We", "close", "at", "six."))
    assert speaker.heard() == ("", "We open at nine. We close at six.")
    play(playout, speaker, 0.8 + 0.4)
    assert speaker.heard() == ("We open at nine. We close", "at six.")
    play(playout, speaker, 0.5)
    assert speaker.heard() == ("We open at nine. We close at six.", "")


async def test_a_cut_reply_forgets_nothing_of_what_was_heard() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    await speaker.say("one two three four", spoken("one", "two", "three", "four"))
    play(playout, speaker, 0.4)
    speaker.stop()
    speaker.stop()
    assert speaker.heard() == ("one two", "three four")
    assert playout.read() is not None  # the fade
    assert playout.read() is None


async def test_spoken_numbers_map_back_to_the_written_words() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    words = ("It", "costs", "three", "dollars", "and", "fifty", "cents", "today.")
    await speaker.say("It costs $3.50 today.", spoken(*words))
    play(playout, speaker, 0.4)
    assert speaker.heard()[0] == "It"
    play(playout, speaker, 1.0)
    assert speaker.heard() == ("It costs $3.50", "today.")


async def test_an_action_waits_for_the_words_before_it() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    done: list[str] = []
    await speaker.say("one two", spoken("one", "two"))
    speaker.when_reached(lambda: done.append("between"))
    await speaker.say(" three", spoken("three"))
    play(playout, speaker, 0.36)
    assert done == []
    play(playout, speaker, 0.1)
    assert done == ["between"]


async def test_an_action_with_nothing_before_it_is_immediate() -> None:
    speaker = Speaker(Playout(RATE), RATE)
    done: list[int] = []
    speaker.when_reached(lambda: done.append(1))
    assert done == [1]


async def test_a_long_reply_is_not_made_far_ahead_of_the_ear() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    made = 0

    async def endless() -> AsyncGenerator[Speech]:
        nonlocal made
        while True:
            made += 1
            yield Speech(np.full(RATE, 100, np.int16))

    task = asyncio.create_task(speaker.say("endless", endless()))
    for _ in range(50):
        await asyncio.sleep(0)
    assert made <= AHEAD_S + 3
    play(playout, speaker, 3.0)
    for _ in range(50):
        await asyncio.sleep(0)
    assert AHEAD_S + 2 <= made <= AHEAD_S + 6
    speaker.stop()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_stopping_frees_who_waits() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    await speaker.say("word", spoken("word", seconds=20.0))
    waiting = [asyncio.create_task(speaker.below()), asyncio.create_task(speaker.drained())]
    await asyncio.sleep(0)
    speaker.stop()
    await asyncio.wait_for(asyncio.gather(*waiting), 1)


async def test_speech_is_resampled_to_the_ports_rate() -> None:
    playout = Playout(8000)
    speaker = Speaker(playout, RATE)
    seconds = await speaker.say("a tone", spoken("a", "tone", seconds=0.5))
    assert seconds == pytest.approx(1.0, abs=0.01)
    assert playout.queued_samples == pytest.approx(8000, abs=80)


async def test_giving_up_in_mid_clause_closes_the_engines_stream() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    closed = asyncio.Event()

    async def pieces() -> AsyncGenerator[Speech]:
        try:
            while True:
                yield Speech(np.full(RATE, 100, np.int16))
        finally:
            closed.set()

    task = asyncio.create_task(speaker.say("long", pieces()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert closed.is_set()


@pytest.mark.parametrize("timed", [True, False])
async def test_of_a_clause_still_being_made_only_what_was_heard_counts(timed: bool) -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    never = asyncio.Event()
    tone = np.full(round(0.4 * RATE), 1000, np.int16)

    async def slow() -> AsyncGenerator[Speech]:
        yield Speech(tone, (Word("We", 0.0, 0.2), Word("open", 0.2, 0.4)) if timed else ())
        await never.wait()

    task = asyncio.create_task(speaker.say("We open at nine in the morning.", slow()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    play(playout, speaker, 0.4)
    speaker.stop()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    heard, unheard = speaker.heard()
    assert heard in ("We open", "We")
    assert f"{heard} {unheard}" == "We open at nine in the morning."


@pytest.mark.parametrize(
    ("text", "fraction", "head"),
    [
        ("one two three four", 0.5, "one two "),
        ("one two three four", 0.0, ""),
        ("one two three four", 1.0, "one two three four"),
        ("word", 0.4, ""),
        ("word", 0.6, "word"),
        ("你好今天天气", 0.5, "你好今"),
        ("", 0.5, ""),
    ],
)
def test_text_is_cut_at_a_word(text: str, fraction: float, head: str) -> None:
    assert text[: cut_at_word(text, fraction)] == head


async def test_a_held_reply_goes_back_to_the_word_that_was_cut_and_reaches_nothing() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    await speaker.say("We open at nine. ", spoken("We", "open", "at", "nine."))
    play(playout, speaker, 0.52)
    speaker.hold()
    assert playout.position == round(0.4 * RATE)
    assert speaker.heard() == ("We open", "at nine.")
    reached: list[str] = []
    speaker.when_reached(lambda: reached.append("end"))
    waiting = asyncio.create_task(speaker.drained())
    await asyncio.sleep(0)
    assert not waiting.done()
    speaker.release()
    play(playout, speaker, 0.6)
    await asyncio.wait_for(waiting, 1)
    assert reached == ["end"]
    assert speaker.heard() == ("We open at nine.", "")


async def test_a_held_reply_without_word_times_goes_back_by_its_share() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    await speaker.play(np.full(RATE, 1000, np.int16), "one two three four")
    play(playout, speaker, 0.6)
    speaker.hold()
    assert playout.position == RATE // 2
    assert speaker.heard()[0] == "one two"


async def test_what_nobody_heard_is_taken_back_but_never_from_before_the_reply() -> None:
    playout = Playout(RATE)
    await (first := Speaker(playout, RATE)).say("Hello. ", spoken("Hello."))
    play(playout, first, 0.2)
    speaker = Speaker(playout, RATE)
    await speaker.say("We open at nine.", spoken("We", "open", "at", "nine."))
    play(playout, speaker, 0.7)
    speaker.hold(unheard_s=0.35)
    assert speaker.heard()[0] == "We"
    speaker.hold(unheard_s=9.0)
    assert playout.position == round(0.2 * RATE)
    assert first.heard()[0] == "Hello."


async def test_an_action_of_a_held_reply_with_nothing_before_it_waits_for_the_caller() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    speaker.hold()
    reached: list[str] = []
    speaker.when_reached(lambda: reached.append("sent"))
    assert reached == []
    speaker.release()
    play(playout, speaker, 0.02)
    assert reached == ["sent"]


async def test_after_a_pause_the_word_that_was_cut_is_said_again() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    await speaker.say("one two three.", spoken("one", "two", "three.", seconds=0.3))
    play(playout, speaker, 0.5)
    playout.pause()
    play(playout, speaker, 0.4)
    assert playout.position == round(0.5 * RATE)
    speaker.resume()
    assert playout.position == round(0.3 * RATE)
    play(playout, speaker, 0.6)
    assert speaker.heard() == ("one two three.", "")


async def test_a_long_clause_without_times_goes_on_where_it_stopped() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    await speaker.play(np.full(RATE * 4, 1000, np.int16), "Loooooong")
    play(playout, speaker, 3.0)
    playout.pause()
    play(playout, speaker, 0.1)
    speaker.resume()
    assert playout.position == 3 * RATE


async def test_a_pause_that_nobody_heard_repeats_nothing() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    await speaker.say("one two", spoken("one", "two"))
    play(playout, speaker, 0.1)
    playout.pause()
    speaker.resume()
    assert playout.position == round(0.1 * RATE)


async def test_a_clause_is_withdrawn_until_some_of_it_has_left() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    audible: list[str] = []
    speaker.when_audible(lambda: audible.append("one"))
    await speaker.say("one moment ", spoken("one", "moment"))
    assert speaker.withdraw()
    assert (playout.queued_samples, speaker.started_at_position) == (0, None)
    assert speaker.heard() == ("", "")
    speaker.when_audible(lambda: audible.append("two"))
    await speaker.say("two", spoken("two"))
    assert audible == []
    play(playout, speaker, 0.02)
    assert audible == ["two"]
    assert not speaker.withdraw()
    play(playout, speaker, 0.2)
    assert speaker.heard() == ("two", "")


async def test_a_reply_made_aside_joins_the_call_with_its_places_intact() -> None:
    playout, aside = Playout(RATE), Playout(RATE)
    await (first := Speaker(playout, RATE)).say("Hello.", spoken("Hello."))
    play(playout, first, 0.1)
    speaker = Speaker(aside, RATE)
    speaker.hold()
    reached: list[str] = []
    speaker.when_reached(lambda: reached.append("before"))
    await speaker.say("one two ", spoken("one", "two"))
    speaker.when_reached(lambda: reached.append("between"))
    assert (reached, playout.queued_samples) == ([], round(0.1 * RATE))
    speaker.join(playout)
    speaker.release()
    assert speaker.started_at_position == round(0.2 * RATE)
    await speaker.say("three", spoken("three"))
    play(playout, speaker, 0.1)
    assert reached == ["before"]
    play(playout, speaker, 0.2)
    assert speaker.heard() == ("one", "two three")
    play(playout, speaker, 0.22)
    assert reached == ["before", "between"]
    play(playout, speaker, 0.2)
    assert speaker.heard() == ("one two three", "")


async def test_actions_stay_in_order_when_one_of_them_still_waits() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    speaker.hold()
    reached: list[int] = []
    speaker.when_reached(lambda: reached.append(1))
    speaker.release()
    speaker.when_reached(lambda: reached.append(2))
    speaker.tick()
    assert reached == [1, 2]
