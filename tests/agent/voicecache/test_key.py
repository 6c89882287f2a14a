"""What makes two clauses the same sound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.asr.protocol import EngineInfo
from agent.tts.protocol import Style, Voice
from agent.voicecache.key import KEY_BYTES, normalised, speech_key
from tests.agent.voicecache.support import ENGINE, STYLE, VOICE

BASE = speech_key("Hello there.", VOICE, STYLE, ENGINE)


def test_blanks_and_composed_letters_make_no_difference() -> None:
    assert speech_key("  Hello \n there. ", VOICE, STYLE, ENGINE) == BASE
    assert normalised("cafe\u0301") == normalised("caf\u00e9")


@pytest.mark.parametrize("text", ["hello there.", "Hello there", "Hello there!"])
def test_case_and_marks_are_heard_and_so_count(text: str) -> None:
    assert speech_key(text, VOICE, STYLE, ENGINE) != BASE


@pytest.mark.parametrize(
    ("voice", "style", "engine"),
    [
        (Voice("other"), STYLE, ENGINE),
        (Voice("heart", "en-GB"), STYLE, ENGINE),
        (VOICE, Style(1.1), ENGINE),
        (VOICE, Style(1.0, "calm"), ENGINE),
        (VOICE, STYLE, replace(ENGINE, version="2")),
        (VOICE, STYLE, replace(ENGINE, name="crow")),
        (VOICE, STYLE, replace(ENGINE, sample_rate_hz=16_000)),
    ],
)
def test_all_that_changes_the_sound_changes_the_key(voice: Voice, style: Style, engine: EngineInfo) -> None:
    assert speech_key("Hello there.", voice, style, engine) != BASE


def test_parts_do_not_run_into_each_other() -> None:
    assert speech_key("ab", Voice("c"), STYLE, ENGINE) != speech_key("a", Voice("bc"), STYLE, ENGINE)
    assert len(BASE.digest) == KEY_BYTES
    assert len(BASE.hex) == 40
