"""Which voices the next calls will want."""

from __future__ import annotations

import pytest

from agent.tts.protocol import Voice
from agent.voicecache import voices as module
from agent.voicecache.voices import VoicePredictor

HEART, OTHER = Voice("heart"), Voice("other")


def test_nothing_is_known_at_first() -> None:
    assert VoicePredictor().rank(hour=9) == []


def test_hour_caller_and_queue_each_tell() -> None:
    voices = VoicePredictor()
    for _ in range(10):
        voices.observe(HEART, hour=9, caller="+1", queue="sales")
        voices.observe(OTHER, hour=22, caller="+2", queue="night")
    assert voices.rank(hour=9)[0][0] == HEART
    assert voices.rank(hour=22)[0][0] == OTHER
    assert voices.rank(hour=3, caller="+2")[0][0] == OTHER
    assert voices.rank(hour=3, queue="sales")[0][0] == HEART
    assert sum(share for _, share in voices.rank(hour=9)) == pytest.approx(1.0)


def test_callers_are_kept_as_hashes_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CALLERS", 20)
    monkeypatch.setattr(module, "MAX_QUEUES", 5)
    voices = VoicePredictor()
    for number in range(100):
        voices.observe(Voice(f"v{number}"), hour=9, caller=f"+49{number}")
    kept = voices.dump()
    assert len(kept) <= 25
    assert not any("+49" in place for place in kept)
    assert all(len(counts) <= module.MAX_VOICES for counts in kept.values())


def test_it_goes_on_after_a_restart() -> None:
    one, two = VoicePredictor(), VoicePredictor()
    for _ in range(3):
        one.observe(HEART, hour=9)
    two.restore(one.dump())
    assert two.rank(hour=9) == one.rank(hour=9)
    with pytest.raises(ValueError, match="voices"):
        two.restore({"all": [["x"]]})
    assert two.rank(hour=9) == one.rank(hour=9)


def test_old_habits_fade() -> None:
    voices = VoicePredictor(half_life_calls=5)
    for _ in range(20):
        voices.observe(HEART, hour=9)
    for _ in range(10):
        voices.observe(OTHER, hour=9)
    assert voices.rank(hour=9)[0][0] == OTHER


def test_callers_are_written_nowhere() -> None:
    """A hash of a telephone number is found by trying all of them."""
    voices = VoicePredictor()
    voices.observe(HEART, hour=9, caller="+4930123", queue="sales")
    assert voices.rank(hour=3, caller="+4930123")
    assert set(voices.dump()) == {"all", "hour 9", "queue sales"}
