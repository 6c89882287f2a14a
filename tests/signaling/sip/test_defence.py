"""What strangers, scanners and guessers get."""

from __future__ import annotations

import ipaddress

import pytest

from signaling.sip.defence import Door, DoorSettings, Stance
from signaling.sip.digest import Account, DigestServer
from signaling.sip.message import Request, Response
from signaling.sip.peer import Peer
from signaling.sip.protocol import CallEnded, CallEstablished, CallOffered, Dial, HangUp, Reject
from signaling.sip.uri import parse_uri
from tests.signaling.sip.network import Host, Network, auto_answer, dial

NET = (ipaddress.ip_network("10.0.0.0/24"),)
SCANNER = Peer("udp", "198.51.100.7", 5060)


def digest() -> DigestServer:
    return DigestServer("example.org", {"1000": "secret"}.get)


def probe(network: Network, host: Host, method: str, user: str, number: int = 1) -> list[bytes]:
    """What a scanner hears, without what differs by chance."""
    before = len(host.sent)
    network.put(
        host,
        f"{method} sip:{user}@10.0.0.2 SIP/2.0\r\nVia: SIP/2.0/UDP 198.51.100.7;branch=z9hG4bK{user}{number}\r\n"
        f"From: <sip:s@h>;tag=1\r\nTo: <sip:s@10.0.0.2>\r\nCall-ID: x\r\nCSeq: {number} {method}\r\n"
        f"Contact: <sip:s@198.51.100.7>\r\n\r\n".encode(),
        SCANNER,
    )
    return [message.start_line.encode() for message in host.sent[before:]]


@pytest.mark.parametrize("method", ["OPTIONS", "INVITE", "REGISTER", "BYE", "SUBSCRIBE", "FOO"])
def test_a_stranger_hears_nothing(method: str) -> None:
    network = Network()
    host = network.add("10.0.0.2", door=DoorSettings(trusted=NET))
    assert probe(network, host, method, "1000") == []
    assert host.agent.transactions == 0
    assert not host.told(CallOffered)


@pytest.mark.parametrize("stance", list(Stance))
def test_known_and_unknown_extensions_look_the_same(stance: Stance) -> None:
    network = Network()
    host = network.add("10.0.0.2", door=DoorSettings(trusted=NET, stance=stance), digest=digest())
    for method in ("INVITE", "REGISTER", "OPTIONS"):
        assert probe(network, host, method, "1000", 1) == probe(network, host, method, "9999", 2)


def test_a_trusted_address_may_call_and_is_not_limited() -> None:
    network = Network()
    caller = network.add("10.0.0.1")
    host = network.add("10.0.0.2", door=DoorSettings(trusted=NET, requests_per_minute=1))
    for number in range(5):
        network.do(caller, Dial(f"c{number}", parse_uri("sip:1@10.0.0.2"), caller.media))
    network.run(0.5)
    assert len(host.told(CallOffered)) == 5


@pytest.mark.parametrize(("password", "works"), [("secret", True), ("guess", False)])
def test_a_caller_proves_its_password(password: str, works: bool) -> None:
    network = Network()
    caller = network.add("10.0.0.1", account=Account("1000", password))
    host = network.add("10.0.0.2", door=DoorSettings(), digest=digest())
    auto_answer(host)
    dial(network, caller, host)
    network.run(1.0)
    assert bool(caller.told(CallEstablished)) is works
    assert caller.methods()[:3] == ["INVITE", "ACK", "INVITE"]
    assert host.statuses() == ([401, 100, 200] if works else [401, 403])
    if works:
        assert host.told(CallOffered)[0].user == "1000"


def test_wrong_passwords_earn_a_ban_that_ends() -> None:
    network = Network()
    guesser = network.add("10.0.0.1", account=Account("1000", "guess"))
    host = network.add("10.0.0.2", door=DoorSettings(failures=3, ban_s=60.0), digest=digest())
    for number in range(5):
        network.do(guesser, Dial(f"c{number}", parse_uri("sip:1@10.0.0.2"), guesser.media))
        network.run(0.5)
    assert host.statuses().count(403) == 3
    heard = len(host.sent)
    network.run(20.0)
    assert len(host.sent) == heard
    network.run(60.0)
    network.do(guesser, Dial("late", parse_uri("sip:1@10.0.0.2"), guesser.media))
    network.run(0.5)
    assert host.statuses()[-1] == 403


def test_a_flood_is_dropped_by_address() -> None:
    door = Door(DoorSettings(requests_per_minute=60, open_to_all=True))
    assert sum(door.hears(SCANNER, 0.0) for _ in range(500)) == 60
    assert door.hears(Peer("udp", "198.51.100.8", 5060), 0.0)
    assert door.hears(SCANNER, 1.1)
    assert door.dropped == 440


def test_the_addresses_of_one_ipv6_customer_count_as_one() -> None:
    door = Door(DoorSettings(requests_per_minute=10, open_to_all=True))
    assert sum(door.hears(Peer("udp", f"2001:db8::{n:x}", 5060), 0.0) for n in range(1, 100)) == 10


def test_a_mapped_address_is_the_ipv4_address() -> None:
    door = Door(DoorSettings(trusted=NET))
    assert door.trusts(Peer("udp", "::ffff:10.0.0.9", 5060))
    assert not door.trusts(Peer("udp", "::ffff:10.0.1.9", 5060))


def test_a_full_transaction_table_answers_503_and_keeps_nothing() -> None:
    network = Network()
    caller, host = network.add("10.0.0.1"), network.add("10.0.0.2", max_transactions=2)
    for number in range(4):
        network.do(caller, Dial(f"c{number}", parse_uri("sip:1@10.0.0.2"), caller.media))
    network.run(0.1)
    assert sorted(host.statuses()) == [100, 100, 503, 503]
    refusal = next(m for m in host.sent if isinstance(m, Response) and m.status == 503)
    assert refusal.headers.get("Retry-After") == "5"
    assert host.agent.transactions == 2


def test_a_response_to_nothing_of_ours_is_dropped() -> None:
    network = Network()
    caller, host = network.add("10.0.0.1"), network.add("10.0.0.2")
    dial(network, caller, host)
    sent = caller.sent[0]
    assert isinstance(sent, Request)
    forged = Response.to_request(sent, 200, tag="x").to_bytes().replace(sent.via.branch.encode(), b"z9hG4bKguess")
    network.put(caller, forged, host.peer)
    assert not caller.told(CallEstablished)


def challenged(network: Network, caller: Host, asker: Host, method: str) -> list[Request]:
    """Ask the last request of that method for a password; returns what was sent for it, all tries."""

    def tries() -> list[Request]:
        return [m for m in caller.sent if isinstance(m, Request) and m.method == method]

    response = Response.to_request(tries()[-1], 401, tag="" if method == "BYE" else "x")
    response.headers.add("WWW-Authenticate", 'Digest realm="r", nonce="n", qop="auth"')
    network.put(caller, response.to_bytes(), asker.peer)
    network.run(0.1)
    return tries()


def test_a_caller_that_asks_our_bye_for_a_password_gets_no_answer_to_guess_it_by() -> None:
    network = Network()
    caller = network.add("10.0.0.1")
    host = network.add("10.0.0.2", account=Account("1000", "secret"), proxy=Peer("udp", "10.0.0.9", 5060))
    auto_answer(host)
    dial(network, caller, host)
    network.run(1.0)
    network.drop = lambda message, sender: True
    network.do(host, HangUp(host.told(CallOffered)[0].call))
    (only,) = challenged(network, host, caller, "BYE")
    assert "Authorization" not in only.headers
    assert host.agent.calls == 0


@pytest.mark.parametrize("redirected", [False, True])
def test_only_who_was_dialled_learns_that_we_know_a_password(redirected: bool) -> None:
    network = Network()
    caller = network.add("10.0.0.1", account=Account("1000", "secret"))
    host, elsewhere = network.add("10.0.0.2"), network.add("10.0.0.3")
    if redirected:
        onward = parse_uri("sip:x@10.0.0.3")
        host.on_news = lambda news: [Reject(news.call, 302, onward)] if isinstance(news, CallOffered) else []
    dial(network, caller, host)
    network.run(1.0)
    tries = challenged(network, caller, elsewhere if redirected else host, "INVITE")
    assert [("Authorization" in request.headers) for request in tries] == [False, not redirected]
    assert not redirected or [news.status for news in caller.told(CallEnded)] == [401]


@pytest.mark.parametrize(
    ("method", "more", "status"),
    [
        ("INVITE", "Require: wonders\r\n", 420),
        ("INVITE", "Replaces: a;to-tag=1;from-tag=2\r\n", 481),
        ("INVITE", "Content-Type: text/plain\r\nContent-Length: 1\r\n\r\nx", 415),
        ("OPTIONS", "", 200),
        ("BYE", "", 481),
        ("REFER", "", 603),
    ],
)
def test_what_makes_no_call_is_answered_once_and_kept_nowhere(method: str, more: str, status: int) -> None:
    network = Network()
    host = network.add("10.0.0.2")
    head = (
        f"{method} sip:1@10.0.0.2 SIP/2.0\r\nVia: SIP/2.0/UDP 198.51.100.7;branch=z9hG4bK1\r\nFrom: <sip:s@h>;tag=1\r\n"
        f"To: <sip:s@10.0.0.2>\r\nCall-ID: x\r\nCSeq: 1 {method}\r\nContact: <sip:s@198.51.100.7>\r\n{more}"
    )
    network.put(host, (head if "\r\n\r\n" in head else head + "\r\n").encode(), SCANNER)
    network.run(40.0)
    assert host.statuses() == [status]
    assert host.agent.next_at is None
    network.put(host, (head if "\r\n\r\n" in head else head + "\r\n").encode(), SCANNER)
    assert host.statuses() == [status, status]
