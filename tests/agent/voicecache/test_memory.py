"""The tier in memory: its bound, and what it lets in."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.voicecache.key import SpeechKey
from agent.voicecache.memory import MemoryTier
from tests.agent.voicecache.support import entry, key_of

ONE = entry("x").size_bytes


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8), st.booleans()), max_size=120))
def test_the_bound_holds_whatever_comes(steps: list[tuple[int, int, bool]]) -> None:
    gone: list[SpeechKey] = []
    tier = MemoryTier(12 * ONE, gone.append)
    for number, size, ask in steps:
        if ask:
            tier.get(key_of(str(number)))
        tier.put(entry(str(number), 0.05 * size))
        assert tier.size_bytes <= tier.max_bytes
        assert tier.size_bytes == sum(speech.size_bytes for key in tier if (speech := tier.peek(key)) is not None)
    assert len(list(tier)) == len(tier)


def test_text_said_once_does_not_push_out_what_is_asked_for() -> None:
    tier = MemoryTier(20 * ONE)
    known = [f"known {i}" for i in range(10)]
    for text in known:
        tier.put(entry(text))
    for _ in range(5):
        for text in known:
            assert tier.get(key_of(text)) is not None
    for i in range(500):
        tier.get(key_of(f"once {i}"))
        tier.put(entry(f"once {i}"))
    assert sum(key_of(text) in tier for text in known) >= 9


def test_what_becomes_popular_gets_in() -> None:
    tier = MemoryTier(10 * ONE)
    for i in range(30):
        tier.put(entry(f"old {i}"))
    for _ in range(8):
        tier.get(key_of("new"))
    tier.put(entry("new"))
    for i in range(30):
        tier.put(entry(f"later {i}"))
    assert key_of("new") in tier


def test_an_entry_larger_than_the_tier_is_refused_and_its_old_one_gone() -> None:
    tier = MemoryTier(2 * ONE)
    tier.put(entry("x"))
    assert not tier.put(entry("x", 10.0))
    assert key_of("x") not in tier
    assert tier.size_bytes == 0


def test_the_evicted_are_told_and_the_removed_are_not() -> None:
    gone: list[SpeechKey] = []
    tier = MemoryTier(3 * ONE, gone.append)
    tier.put(entry("a"))
    tier.remove(key_of("a"))
    assert not gone
    for text in "bcdef":
        tier.put(entry(text))
    assert set(gone) | set(tier) == {key_of(text) for text in "bcdef"}
    tier.clear()
    assert not len(tier)
    assert tier.size_bytes == 0
