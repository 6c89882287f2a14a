"""The floor under the caller's own level: it follows them, and shuts out neither them nor lets the room in."""

from __future__ import annotations

import numpy as np
import pytest

from agent.config import ListeningSettings
from agent.listening.level import BELOW_CALLER_DB, KEPT_FRAMES, LevelFloor
from agent.listening.silero import VadEngine
from agent.media.frames import Pcm
from tests.agent.listening.hearing import Clip, hear, segments, silence

LOWEST_DBFS = ListeningSettings().floor_dbfs


def voice(dbfs: float) -> Pcm:
    """A frame of a 200 Hz tone at this RMS level."""
    tone = np.sqrt(2) * 32_768 * 10 ** (dbfs / 20) * np.sin(2 * np.pi * 200 * np.arange(320) / 16_000)
    return np.clip(np.round(tone), -32_768, 32_767).astype(np.int16)


def speak(level: LevelFloor, dbfs: float, ms: int = 1000, *, click: bool = False) -> int:
    """A stretch at this level after a pause, judged as in the listener; returns how many frames reached the floor."""
    for _ in range(8):
        level.push(np.zeros(320, np.int16))
    reached = 0
    for at in range(ms // 20):
        frame = voice(dbfs)
        if click and at == 20:
            frame[300:] = 32_767
        elif click and at == 21:
            frame[:60] = -32_768
        level.push(frame)
        if level.reached(0, speaking=True):
            reached += 1
        else:
            level.missed(20)
    if reached:
        level.stretch_ended(ms)
    return reached


def taught(*levels_dbfs: float) -> LevelFloor:
    level = LevelFloor(LOWEST_DBFS)
    for dbfs in levels_dbfs:
        speak(level, dbfs)
    return level


def test_before_anybody_spoke_only_the_lowest_level_counts() -> None:
    assert speak(LevelFloor(LOWEST_DBFS), LOWEST_DBFS + 2) >= 43
    assert speak(LevelFloor(LOWEST_DBFS), LOWEST_DBFS - 2) == 0


def test_nothing_reaches_a_floor_before_there_is_sound() -> None:
    assert not LevelFloor(-96).reached(0, speaking=False)


def test_the_floor_lies_under_the_caller() -> None:
    level = taught(-20)
    assert level.floor_dbfs == pytest.approx(-20 - BELOW_CALLER_DB, abs=0.5)
    assert speak(level, -48) == 0
    # The pause before is part of the first levels.
    assert speak(level, -38) >= 45


@pytest.mark.parametrize("dbfs", [-20.0, -50.0, -65.0])
def test_a_soft_caller_is_heard_as_a_loud_one_is(dbfs: float) -> None:
    level = taught(dbfs)
    assert speak(level, max(dbfs - 15, LOWEST_DBFS + 2)) >= 43
    assert level.floor_dbfs >= LOWEST_DBFS


@pytest.mark.parametrize("again_dbfs", [-35.0, -15.0])
def test_the_floor_follows_the_caller(again_dbfs: float) -> None:
    level = taught(-25, *[again_dbfs] * 20)
    assert level.floor_dbfs == pytest.approx(again_dbfs - BELOW_CALLER_DB, abs=1.0)


def test_a_television_heard_first_does_not_lock_the_caller_out_and_is_shut_out_soon() -> None:
    level = taught(-50, -50, -50)
    assert speak(level, -20) == 50
    speak(level, -20)
    assert speak(level, -50) == 0


def test_a_caller_who_shouted_first_is_heard_again_after_a_few_sentences() -> None:
    level = taught(-8)
    sentences = 0
    while not speak(level, -33, 3000):
        sentences += 1
        assert sentences < 10
    assert sentences >= 1


def test_a_television_does_not_talk_itself_in_between_the_callers_turns() -> None:
    level = taught(-20, -20)
    for _ in range(20):
        assert speak(level, -50, 10_000) == 0
        speak(level, -20)


def test_a_click_or_a_cough_teaches_nothing() -> None:
    level = taught(-30)
    before = level.floor_dbfs
    speak(level, -5, 200)
    assert level.floor_dbfs == before
    speak(level, -30, click=True)
    assert level.floor_dbfs == pytest.approx(before, abs=0.1)


def test_silence_of_a_stretch_that_never_was_teaches_nothing() -> None:
    level = LevelFloor(LOWEST_DBFS)
    level.stretch_ended(5000)
    assert level.floor_dbfs == LOWEST_DBFS


def test_a_late_verdict_is_about_the_sound_of_its_own_time() -> None:
    level = taught(-20)
    for dbfs in (-20, -60):
        for _ in range(20):
            level.push(voice(dbfs))
    assert level.reached(20, speaking=False)
    assert not level.reached(0, speaking=False)


def test_what_it_keeps_is_bounded_and_holds_the_detectors_lag() -> None:
    level = taught(-20)
    for _ in range(10):
        level.push(voice(-20))
    for _ in range(KEPT_FRAMES - 8):
        level.push(voice(-60))
    # 640 ms behind, and 200 ms more where the gate has just opened.
    assert KEPT_FRAMES - 8 >= 42
    assert level.reached(KEPT_FRAMES - 8, speaking=False)
    assert not level.reached(KEPT_FRAMES, speaking=False)


async def test_a_voice_across_the_room_opens_nothing_once_the_caller_is_known(
    vad: VadEngine, clips: dict[str, Clip]
) -> None:
    caller, room = at_level(clips["newhome"].pcm, -20), at_level(clips["goforward"].pcm, -50)
    pause = silence(1)
    alone = segments(await hear(vad, np.concatenate([pause, room, pause])))
    assert alone
    heard = segments(await hear(vad, np.concatenate([pause, caller, pause, room, pause, caller, pause])))
    spans = [(segment.start_ms, segment.end_ms) for segment in heard]
    begin, end = (1000 + len(caller) // 16, 2000 + (len(caller) + len(room)) // 16)
    assert not [span for span in spans if begin + 300 < span[0] < end - 300], spans
    assert spans[-1][0] >= end - 300


async def test_a_caller_who_has_put_the_telephone_on_the_table_is_heard_again(
    vad: VadEngine, clips: dict[str, Clip]
) -> None:
    near, far = at_level(clips["newhome"].pcm, -10), at_level(clips["newhome"].pcm, -35)
    begin = 2000 + len(near) // 16
    heard = segments(await hear(vad, np.concatenate([silence(1), near, silence(1), *[far, silence(1)] * 10])))
    starts = [segment.start_ms for segment in heard if segment.start_ms > begin - 300]
    assert starts
    assert starts[0] > begin + len(far) // 16


def at_level(pcm: Pcm, rms_dbfs: float) -> Pcm:
    rms = np.sqrt(np.mean(pcm.astype(np.float64) ** 2))
    return np.clip(pcm * (32_768 * 10 ** (rms_dbfs / 20) / rms), -32_768, 32_767).astype(np.int16)
