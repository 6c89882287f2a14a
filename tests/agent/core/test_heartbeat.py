"""A silent peer is asked, then given up; our own stall is not its silence."""

from __future__ import annotations

from agent.core.heartbeat import BEAT_S, Beat, Heartbeat


def test_a_peer_that_talks_is_not_asked() -> None:
    heart = Heartbeat(2.0, 0.0)
    for beat in range(1, 40):
        heart.heard(beat * BEAT_S - 0.1)
        assert heart.beat(beat * BEAT_S) is Beat.NOTHING


def test_a_silent_peer_is_asked_at_each_beat_and_then_given_up() -> None:
    heart = Heartbeat(1.0, 0.0)
    assert [heart.beat(beat * BEAT_S) for beat in range(1, 5)] == [Beat.PING, Beat.PING, Beat.PING, Beat.LOST]


def test_an_answer_is_a_sign() -> None:
    heart = Heartbeat(1.0, 0.0)
    for beat in range(1, 40):
        assert heart.beat(beat * BEAT_S) is not Beat.LOST
        if beat % 2:
            heart.heard(beat * BEAT_S + 0.01)


def test_a_stall_of_our_own_is_not_the_peers_silence() -> None:
    heart = Heartbeat(1.0, 0.0)
    assert heart.beat(BEAT_S) is Beat.PING
    assert heart.beat(10.0) is not Beat.LOST
    assert Beat.LOST in [heart.beat(10.0 + beat * BEAT_S) for beat in range(1, 5)]
