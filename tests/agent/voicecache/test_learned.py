"""What was learned, as a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.tts.protocol import Voice
from agent.voicecache.learned import read_learned, restore_learned, write_learned
from agent.voicecache.predictor import Predictor
from agent.voicecache.situation import Situation
from agent.voicecache.voices import VoicePredictor

START = Situation("start", "Hi.")


def test_it_is_taken_up_again(tmp_path: Path) -> None:
    predictor, voices = Predictor(), VoicePredictor()
    predictor.observe(predictor.observation(START, "parcel", "Let me look."))
    voices.observe(Voice("heart"), hour=9)
    path = tmp_path / "x" / "learned.json"
    write_learned(path, {"predictor": predictor.dump(), "voices": voices.dump(), "learned_until": "12-3"})
    assert [file.name for file in path.parent.iterdir()] == ["learned.json"]
    later, later_voices = Predictor(), VoicePredictor()
    assert restore_learned(read_learned(path), later, later_voices) == "12-3"
    assert later.predict(START)[0].text == "Let me look."
    assert later_voices.rank(hour=9)[0][0] == Voice("heart")


@pytest.mark.parametrize("content", ["", "{", "[1]", "\x00", '{"predictor": {"format": 9}}', '{"voices": 3}'])
def test_a_damaged_file_begins_anew(tmp_path: Path, content: str) -> None:
    path = tmp_path / "learned.json"
    path.write_text(content)
    predictor = Predictor()
    assert restore_learned(read_learned(path), predictor, VoicePredictor()) == "0-0"
    assert len(predictor) == 0


def test_no_file_and_an_odd_position_begin_anew(tmp_path: Path) -> None:
    assert read_learned(tmp_path / "none") == {}
    assert restore_learned({"learned_until": "x; DROP"}, Predictor(), VoicePredictor()) == "0-0"
