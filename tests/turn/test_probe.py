"""What the doctor finds where no relay works; tests/e2e/test_turn_calls.py shows it a real one."""

from __future__ import annotations

import socket

import pytest

from agent.config import MediaSettings, Settings
from agent.media.addresses import ServerUrl
from turn import probe as module
from turn.credentials import Credentials
from turn.doctor import check_relays
from turn.probe import Peer, peers_of, probe

HERE = [Peer("127.0.0.1", "127.0.0.1")]
SOMEBODY = Credentials("1:x", "y", 1)


async def test_a_closed_port_is_unreachable_over_tcp() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        server = ServerUrl("127.0.0.1", closed.getsockname()[1], "tcp")
        found = await probe(server, SOMEBODY, HERE, MediaSettings())
    assert (found.transport, found.works) == ("TCP", False)
    assert "the relay cannot be reached" in found.found
    assert "firewall" in found.fix


@pytest.mark.parametrize("tls", [False, True])
async def test_one_that_says_nothing_is_given_up(tls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALLOCATE_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        server = ServerUrl("127.0.0.1", silent.getsockname()[1], "tcp", tls)
        found = await probe(server, SOMEBODY, HERE, MediaSettings())
    assert found.transport == ("TLS" if tls else "TCP")
    assert "did not answer within 0.2 s" in found.found


def test_the_addresses_of_calls_are_tried_as_callers_see_them() -> None:
    media = MediaSettings(interfaces=("127.0.0.1", "::1"), advertised_addresses=("127.0.0.1=203.0.113.7",))
    assert peers_of(media) == [Peer("127.0.0.1", "203.0.113.7")]


def test_each_url_is_tried_once_and_stun_is_not() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"turn:127.0.0.1:{closed.getsockname()[1]}?transport=tcp"
        settings = Settings(
            turn={"urls": ("stun:127.0.0.1:1", url, url), "secret": "0123456789abcdef0123456789abcdef"},
            media={"turn_server": url},
        )
        found = check_relays(settings)
    assert [tried for tried, _ in found] == [url]


def test_no_relay_at_all_is_nothing_to_try() -> None:
    assert check_relays(Settings()) == []
