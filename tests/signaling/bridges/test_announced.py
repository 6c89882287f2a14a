import uuid

import pytest

from agent.errors import CallRefused
from signaling.bridges.announced import MAX_WAITING, TTL_S, Announced, Announcement
from signaling.bridges.parameters import Told
from signaling.tokens import Claims

CALL = Announcement(Claims("alice", 0, ""), Told("+4315550100"))


def test_an_announced_call_is_taken_once() -> None:
    announced = Announced()
    call = announced.announce(CALL, 0.0)
    assert announced.take(uuid.uuid4(), 1.0) is None
    assert announced.take(call, 1.0) is CALL
    assert announced.take(call, 1.0) is None


def test_it_expires() -> None:
    announced = Announced()
    call = announced.announce(CALL, 0.0)
    later = announced.announce(CALL, 1.0)
    assert announced.take(call, TTL_S) is None
    assert announced.take(later, TTL_S) is CALL
    assert len(announced) == 0


def test_no_more_wait_than_there_is_room_for() -> None:
    announced = Announced()
    for _ in range(MAX_WAITING):
        announced.announce(CALL, 0.0)
    with pytest.raises(CallRefused):
        announced.announce(CALL, TTL_S - 1)
    announced.announce(CALL, TTL_S)
    assert len(announced) == 1
