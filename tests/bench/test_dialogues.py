"""The scripted dialogues, and the line that plays them."""

from __future__ import annotations

from agent.config import CacheSettings
from bench._dialogues import dialogues
from bench._linesim import EngineTimes, play

TIMES = EngineTimes(0.01, 0.0003)


def test_the_same_seed_gives_the_same_calls_and_another_one_others() -> None:
    assert dialogues(30, 1) == dialogues(30, 1)
    assert dialogues(30, 1) != dialogues(30, 2)


def test_all_domains_come_and_all_places_are_filled() -> None:
    calls = dialogues(100, 1)
    assert len({call.domain for call in calls}) == 5
    for call in calls:
        for exchange in (call.greeting, *call.exchanges):
            assert exchange.reply
            assert not set("{}") & set(exchange.heard + exchange.reply + "".join(exchange.expected))


def test_every_call_is_played_to_its_end_by_every_system() -> None:
    calls = dialogues(30, 1)
    ready = {}
    for system in ("none", "lru", "learned", "ours", "oracle"):
        result = play(calls, TIMES, system, CacheSettings(), seed=1)
        assert [len(call) for call in result.ready] == [len(call.exchanges) for call in calls]
        ready[system] = sum(map(sum, result.ready))
        assert (result.ahead > 0) == (system in ("learned", "ours", "oracle"))
        assert result.wasted <= result.ahead
    assert ready["none"] == 0
    assert ready["lru"] < ready["ours"] < ready["oracle"] == sum(len(call.exchanges) for call in calls)
