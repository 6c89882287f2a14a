"""Two user agents and what happens between them, in virtual time."""

from __future__ import annotations

import pytest

from signaling.sip.errors import WrongState
from signaling.sip.message import Request, Response
from signaling.sip.parser import UnreadableMessage, parse_message
from signaling.sip.peer import Peer
from signaling.sip.protocol import (
    Answer,
    CallEnded,
    CallEstablished,
    CallOffered,
    CallProgressed,
    ChangeDirection,
    ChangeRefused,
    Dial,
    DigitReceived,
    EndCause,
    HangUp,
    MediaAgreed,
    Reject,
    Ring,
    SendDigit,
    Unreadable,
)
from signaling.sip.stack import AgentSettings
from signaling.sip.uri import parse_uri
from tests.signaling.sip import corpus
from tests.signaling.sip.network import Host, Network, auto_answer, dial, established

STRANGER = Peer("udp", "127.0.2.9", 5060)


def idle(network: Network, *hosts: Host) -> None:
    """After the longest timers nothing is left."""
    network.run(70.0)
    for host in hosts:
        assert host.agent.calls == 0
        assert host.agent.next_at is None


def ends(host: Host) -> list[tuple[EndCause, int]]:
    return [(news.cause, news.status) for news in host.told(CallEnded)]


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_call_is_answered_and_ended(transport: str) -> None:
    network = Network(transport=transport)
    caller, callee, name, _ = established(network)
    network.do(caller, HangUp(name))
    network.run(1.0)
    assert (caller.methods(), callee.statuses()) == (["INVITE", "ACK", "BYE"], [100, 200, 200])
    assert (ends(caller), ends(callee)) == ([(EndCause.HUNG_UP, 0)], [(EndCause.PEER_HUNG_UP, 0)])
    assert caller.told(MediaAgreed)[0].agreement.remote_address == "10.0.0.2"
    idle(network, caller, callee)


def test_the_whole_flow_survives_a_fifth_of_datagrams_lost() -> None:
    assert sum(lossy_flow(seed) for seed in range(25)) > 50


def lossy_flow(seed: int) -> int:
    """Ring, answer, hold, digit, hang up; returns the number of datagrams that were lost."""
    network = Network(loss=0.2, seed=seed)
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    dial(network, caller, callee)
    network.run(8.0)
    (offer,) = callee.told(CallOffered)
    network.do(callee, Ring(offer.call, callee.media))
    network.run(6.0)
    network.do(callee, Answer(offer.call, callee.media))
    network.run(20.0)
    assert caller.told(CallEstablished)
    assert callee.told(CallEstablished)
    network.do(caller, ChangeDirection("out", "sendonly"))
    network.run(20.0)
    assert callee.told(MediaAgreed)[-1].agreement.direction == "recvonly"
    network.do(callee, SendDigit(offer.call, "5"))
    network.run(10.0)
    assert [news.digit for news in caller.told(DigitReceived)] == ["5"]
    network.do(callee, HangUp(offer.call))
    idle(network, caller, callee)
    assert (ends(caller), ends(callee)) == ([(EndCause.PEER_HUNG_UP, 0)], [(EndCause.HUNG_UP, 0)])
    return network.lost


def test_ringing_is_reliable_where_both_can() -> None:
    network = Network()
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    dial(network, caller, callee)
    network.run(0.2)
    call = callee.told(CallOffered)[0].call
    network.do(callee, Ring(call))
    network.do(callee, Answer(call, callee.media))
    assert callee.statuses() == [100, 180]
    network.run(0.5)
    assert caller.methods() == ["INVITE", "PRACK", "ACK"]
    assert callee.statuses() == [100, 180, 200, 200]
    assert [news.status for news in caller.told(CallProgressed)] == [180]


def test_an_unacknowledged_reliable_response_is_repeated_and_then_given_up() -> None:
    network = Network()
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    network.drop = lambda message, host: isinstance(message, Request) and message.method == "PRACK"
    dial(network, caller, callee)
    network.run(0.2)
    network.do(callee, Ring(callee.told(CallOffered)[0].call))
    network.run(40.0)
    assert callee.statuses().count(180) == 7
    assert ends(callee) == [(EndCause.LOST, 504)]
    assert ends(caller) == [(EndCause.REFUSED, 504)]
    assert [news.status for news in caller.told(CallProgressed)] == [180]


def test_early_media_is_agreed_before_the_answer() -> None:
    network = Network()
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    dial(network, caller, callee)
    network.run(0.2)
    call = callee.told(CallOffered)[0].call
    network.do(callee, Ring(call, callee.media))
    network.run(0.5)
    assert caller.told(MediaAgreed)
    assert not caller.told(CallEstablished)
    network.do(callee, Answer(call, callee.media))
    network.run(0.5)
    assert caller.told(CallEstablished)
    assert len(caller.told(MediaAgreed)) == 1


@pytest.mark.parametrize("ring", [False, True])
def test_a_caller_may_give_up(ring: bool) -> None:
    network = Network()
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    dial(network, caller, callee)
    network.run(0.2)
    call = callee.told(CallOffered)[0].call
    if ring:
        network.do(callee, Ring(call))
        network.run(0.2)
    network.do(caller, HangUp("out"))
    network.run(1.0)
    assert caller.methods()[-2:] == ["CANCEL", "ACK"]
    assert callee.statuses()[-2:] == [200, 487]
    assert ends(callee) == [(EndCause.CANCELLED, 487)]
    idle(network, caller, callee)
    assert ends(caller) == [(EndCause.HUNG_UP, 0)]


def test_a_cancel_waits_for_the_first_response() -> None:
    network = Network()
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    dial(network, caller, callee)
    network.do(caller, HangUp("out"))
    assert caller.methods() == ["INVITE"]
    network.run(1.0)
    assert caller.methods() == ["INVITE", "CANCEL", "ACK"]
    idle(network, caller, callee)


def test_an_answer_that_crosses_the_cancel_is_hung_up() -> None:
    network = Network()
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    dial(network, caller, callee)
    network.run(0.2)
    network.do(callee, Answer(callee.told(CallOffered)[0].call, callee.media))
    network.do(caller, HangUp("out"))
    network.run(1.0)
    assert caller.methods() == ["INVITE", "CANCEL", "ACK", "BYE"]
    assert ends(callee) == [(EndCause.PEER_HUNG_UP, 0)]
    assert not caller.told(CallEstablished)
    idle(network, caller, callee)


def test_an_answer_that_nobody_acknowledges_is_hung_up() -> None:
    network = Network()
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    auto_answer(callee)
    network.drop = lambda message, host: isinstance(message, Request) and message.method == "ACK"
    dial(network, caller, callee)
    network.run(31.9)
    assert callee.statuses().count(200) == 11
    network.run(2.0)
    assert ends(callee) == [(EndCause.NO_ACK, 0)]
    assert callee.methods() == ["BYE"]
    idle(network, caller, callee)


def test_we_do_not_hang_up_before_the_ack() -> None:
    network = Network()
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    dial(network, caller, callee)
    network.run(0.2)
    call = callee.told(CallOffered)[0].call
    network.do(callee, Answer(call, callee.media))
    network.do(callee, HangUp(call))
    assert callee.methods() == []
    network.run(1.0)
    assert callee.methods() == ["BYE"]
    assert ends(callee) == [(EndCause.HUNG_UP, 0)]
    idle(network, caller, callee)


@pytest.mark.parametrize("status", [404, 486, 503, 603])
def test_a_refusal_is_told_with_its_status(status: int) -> None:
    network = Network()
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    dial(network, caller, callee)
    network.run(0.2)
    network.do(callee, Reject(callee.told(CallOffered)[0].call, status))
    network.run(1.0)
    assert ends(caller) == [(EndCause.REFUSED, status)]
    assert ends(callee) == [(EndCause.REJECTED, status)]
    idle(network, caller, callee)


def test_a_redirect_is_followed_as_often_as_allowed() -> None:
    network = Network()
    caller = network.add("10.0.0.1", redirects=2)
    hosts = [network.add(f"10.0.0.{number}") for number in (2, 3, 4, 5)]
    for host, onward in zip(hosts, (3, 4, 5, 2), strict=True):
        contact = parse_uri(f"sip:x@10.0.0.{onward}")
        host.on_news = lambda news, to=contact: [Reject(news.call, 302, to)] if isinstance(news, CallOffered) else []
    dial(network, caller, hosts[0])
    network.run(2.0)
    assert [len(host.told(CallOffered)) for host in hosts] == [1, 1, 1, 0]
    assert ends(caller) == [(EndCause.REFUSED, 302)]


def test_nobody_there_is_no_answer_and_no_route_is_told_at_once() -> None:
    network = Network()
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    network.drop = lambda message, host: True
    dial(network, caller, callee)
    network.run(40.0)
    assert ends(caller) == [(EndCause.NO_ANSWER, 408)]
    network.unreachable.add(("10.0.0.2", 5060))
    dial(network, caller, callee)
    network.run(0.5)
    assert ends(caller)[1:] == [(EndCause.REFUSED, 503)]


def test_ringing_has_a_limit_on_both_sides() -> None:
    network = Network()
    caller, callee = network.add("10.0.0.1", ringing_limit_s=20.0), network.add("10.0.0.2")
    dial(network, caller, callee)
    network.run(25.0)
    assert ends(caller) == [(EndCause.NO_ANSWER, 0)]
    assert ends(callee) == [(EndCause.CANCELLED, 487)]
    other = network.add("10.0.0.3", ringing_limit_s=20.0)
    dial(network, callee, other)
    network.run(20.5)
    assert ends(other) == [(EndCause.NO_ANSWER, 480)]


def test_hold_on_both_sides_at_once_is_settled_after_491() -> None:
    network = Network()
    caller, callee, name, there = established(network)
    network.do(caller, ChangeDirection(name, "sendonly"))
    network.do(callee, ChangeDirection(there, "sendonly"))
    network.run(10.0)
    assert 491 in caller.statuses()
    assert 491 in callee.statuses()
    assert caller.told(MediaAgreed)[-1].agreement.direction == "inactive"
    assert callee.told(MediaAgreed)[-1].agreement.direction == "inactive"
    assert not caller.told(ChangeRefused)
    network.do(caller, HangUp(name))
    idle(network, caller, callee)


def test_the_session_is_refreshed_with_update_and_a_lost_peer_is_noticed() -> None:
    network = Network()
    caller, callee, _, _ = established(network, session_interval_s=120)
    network.run(300.0)
    assert caller.methods().count("UPDATE") == 5
    assert not ends(caller)
    network.drop = lambda message, host: True
    network.run(130.0)
    assert ends(caller) == [(EndCause.LOST, 408)]
    assert ends(callee) == [(EndCause.EXPIRED, 0)]
    idle(network, caller, callee)


def test_a_peer_without_session_timers_is_refreshed_and_keeps_its_call() -> None:
    network = Network()
    callee = network.add("10.0.0.2", session_interval_s=120)
    auto_answer(callee)
    peer = Peer("udp", "10.0.0.9", 5060)
    invite = (
        "INVITE sip:1@10.0.0.2 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.9;branch=z9hG4bK1\r\nFrom: <sip:b@h>;tag=1\r\n"
        "To: <sip:a@h>\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\nContact: <sip:b@10.0.0.9>\r\n"
        "Content-Type: application/sdp\r\n\r\nv=0\r\no=- 1 1 IN IP4 10.0.0.9\r\ns=-\r\nc=IN IP4 10.0.0.9\r\nt=0 0\r\n"
        "m=audio 7000 RTP/AVP 0\r\n"
    )
    network.put(callee, invite.encode(), peer)
    accepted = callee.sent[-1]
    assert isinstance(accepted, Response)
    assert "Require" not in accepted.headers
    assert accepted.headers.get("Session-Expires") == "120;refresher=uas"
    ack = invite.replace("INVITE", "ACK").replace("<sip:a@h>", accepted.need("To")).partition("Content-Type")[0]
    network.put(callee, (ack.replace("bK1", "bK2") + "\r\n").encode(), peer)
    for _ in range(5):
        network.run(61.0)
        refresh = next(m for m in reversed(callee.sent) if isinstance(m, Request) and m.method == "INVITE")
        response = Response.to_request(refresh, 200)
        response.headers.add("Contact", "<sip:b@10.0.0.9>")
        response.headers.add("Content-Type", "application/sdp")
        response.body = invite.partition("\r\n\r\n")[2].encode()
        network.put(callee, response.to_bytes(), peer)
    assert callee.methods().count("ACK") == 5
    assert not ends(callee)


def test_an_interval_that_is_too_small_is_refused_and_raised() -> None:
    network = Network()
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    network.drop = lambda message, host: True
    dial(network, caller, callee)
    small = caller.sent[0].to_bytes().replace(b"Session-Expires: 1800", b"Session-Expires: 30")
    network.put(callee, small.replace(b"Min-SE: 90\r\n", b""), caller.peer)
    refusal = callee.sent[-1]
    assert isinstance(refusal, Response)
    assert (refusal.status, refusal.headers.get("Min-SE")) == (422, "90")
    network.put(caller, refusal.to_bytes().replace(b"Min-SE: 90", b"Min-SE: 3600"), callee.peer)
    assert caller.methods() == ["INVITE", "ACK", "INVITE"]
    again = caller.sent[-1]
    assert (again.headers.get("Session-Expires"), again.headers.get("Min-SE")) == ("3600", "3600")
    assert again.cseq.number == 2


def refuse_with_ever_larger_intervals(network: Network, host: Host, other: Host, method: str) -> int:
    """As fast as the network allows, for 2 s; returns how many requests that has cost."""
    interval = 100

    def refuse(message: Request | Response, sender: Host) -> bool:
        nonlocal interval
        if sender is host and isinstance(message, Request) and message.method == method:
            interval += 100
            response = Response.to_request(message, 422, tag="x")
            response.headers.add("Min-SE", str(interval))
            network.later(host, response.to_bytes(), other.peer)
            return True
        return False

    network.drop = refuse
    before = host.methods().count(method)
    network.run(2.0)
    return host.methods().count(method) - before


def test_a_callee_that_wants_ever_larger_intervals_is_not_followed_for_ever() -> None:
    network = Network(delay_s=0.001)
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    network.drop = lambda message, host: True
    dial(network, caller, callee)
    network.run(0.4)
    assert refuse_with_ever_larger_intervals(network, caller, callee, "INVITE") <= 4
    assert ends(caller) == [(EndCause.REFUSED, 422)]


def test_a_refresh_is_not_driven_by_a_peer_that_wants_ever_larger_intervals() -> None:
    network = Network(delay_s=0.001)
    caller, callee, _, _ = established(network, session_interval_s=120)
    network.run(58.5)
    assert 1 <= refuse_with_ever_larger_intervals(network, caller, callee, "UPDATE") <= 4
    assert not ends(caller)


def test_an_offer_may_come_with_the_answer() -> None:
    network = Network()
    callee = network.add("10.0.0.2")
    auto_answer(callee)
    peer = Peer("udp", "10.0.0.9", 5060)
    head = (
        "INVITE sip:1@10.0.0.2 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.9;branch=z9hG4bK1\r\nFrom: <sip:b@h>;tag=1\r\n"
        "To: <sip:a@h>\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\nContact: <sip:b@10.0.0.9>\r\n"
    )
    network.put(callee, (head + "\r\n").encode(), peer)
    assert b"m=audio 20000 RTP/AVP 0 8 9" in callee.sent[-1].body
    assert not callee.told(MediaAgreed)
    answer = (
        "Content-Type: application/sdp\r\n\r\nv=0\r\no=- 1 1 IN IP4 10.0.0.9\r\ns=-\r\nc=IN IP4 10.0.0.9\r\nt=0 0\r\n"
        "m=audio 7000 RTP/AVP 8\r\n"
    )
    ack = head.replace("INVITE", "ACK").replace("<sip:a@h>", callee.sent[-1].need("To")).replace("bK1", "bK2")
    network.put(callee, (ack + answer).encode(), peer)
    assert callee.told(MediaAgreed)[0].agreement.codec.name == "PCMA"
    assert callee.told(CallEstablished)


def test_a_second_branch_of_a_fork_that_answers_is_hung_up() -> None:
    network = Network()
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    auto_answer(callee)
    dial(network, caller, callee)
    network.run(0.5)
    accepted = next(m for m in callee.sent if isinstance(m, Response) and m.status == 200)
    twin = parse_message(accepted.to_bytes().replace(accepted.recipient.tag.encode(), b"another"))
    network.put(caller, twin.to_bytes(), callee.peer)
    network.put(caller, twin.to_bytes(), callee.peer)
    assert caller.methods() == ["INVITE", "ACK", "ACK", "BYE", "ACK"]
    assert not ends(caller)


def forked(network: Network) -> tuple[Host, Host, bytes]:
    """A call that is up, and the 200 of a second branch, not yet delivered."""
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    auto_answer(callee)
    dial(network, caller, callee)
    network.run(0.5)
    accepted = next(m for m in callee.sent if isinstance(m, Response) and m.status == 200)
    return caller, callee, accepted.to_bytes().replace((accepted.recipient.tag or "").encode(), b"another")


@pytest.mark.parametrize(("method", "status"), [("BYE", 200), ("INFO", 481), ("INVITE", 481)])
def test_a_branch_that_lost_cannot_touch_the_call(method: str, status: int) -> None:
    network = Network()
    caller, callee, twin = forked(network)
    network.put(caller, twin, callee.peer)
    left = caller.sent[-1]
    request = (
        f"{method} sip:x@10.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.2;branch=z9hG4bKl\r\nFrom: {left.need('To')}\r\n"
        f"To: {left.need('From')}\r\nCall-ID: {left.call_id}\r\nCSeq: 7 {method}\r\nContact: <sip:x@10.0.0.2>\r\n\r\n"
    )
    network.put(caller, request.encode(), callee.peer)
    assert caller.statuses()[-1] == status
    assert not ends(caller)
    network.do(caller, SendDigit("out", "5"))
    network.run(0.5)
    assert callee.told(DigitReceived)


def test_a_branch_that_answers_after_the_end_leaves_nothing_behind() -> None:
    network = Network()
    caller, callee, twin = forked(network)
    network.do(caller, HangUp("out"))
    network.run(1.0)
    assert caller.agent.calls == 0
    network.put(caller, twin, callee.peer)
    assert caller.methods()[-2:] == ["ACK", "BYE"]
    assert not caller.agent._dialogs
    idle(network, caller, callee)


def test_requests_out_of_order_or_of_no_call_are_refused() -> None:
    network = Network()
    caller, callee, _, _ = established(network)
    old = (
        f"INFO sip:x@10.0.0.2 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.1;branch=z9hG4bKq\r\n"
        f"From: {caller.sent[-1].need('From')}\r\nTo: {caller.sent[-1].need('To')}\r\n"
        f"Call-ID: {caller.sent[-1].call_id}\r\nCSeq: 1 INFO\r\n\r\n"
    )
    network.put(callee, old.encode(), caller.peer)
    assert callee.statuses()[-1] == 500
    network.put(callee, old.replace("tag=", "tag=z").replace("bKq", "bKr").encode(), caller.peer)
    assert callee.statuses()[-1] == 481


def test_the_peer_of_one_call_cannot_fill_the_table_of_all() -> None:
    network = Network()
    caller, callee, _, _ = established(network)
    sent = caller.sent[-1]

    def ask(method: str, number: int) -> int:
        request = (
            f"{method} sip:x@10.0.0.2 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.1;branch=z9hG4bKf{number}\r\n"
            f"From: {sent.need('From')}\r\nTo: {sent.need('To')}\r\nCall-ID: {sent.call_id}\r\n"
            f"CSeq: {number} {method}\r\n\r\n"
        )
        network.put(callee, request.encode(), caller.peer)
        return callee.statuses()[-1]

    answers = [ask("INFO", number) for number in range(100, 400)]
    assert (answers[:100], answers[100:]) == ([200] * 100, [503] * 200)
    assert callee.agent.transactions < 150
    network.run(10.0)
    assert ask("INFO", 500) == 200
    assert ask("BYE", 501) == 200
    assert ends(callee) == [(EndCause.PEER_HUNG_UP, 0)]


def test_one_invite_on_two_ways_is_a_loop() -> None:
    network = Network()
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    dial(network, caller, callee)
    network.run(0.2)
    branch = caller.sent[0].via.branch.encode()
    network.put(callee, caller.sent[0].to_bytes().replace(branch, b"z9hG4bKother"), caller.peer)
    assert callee.statuses() == [100, 482]
    assert len(callee.told(CallOffered)) == 1


@pytest.mark.parametrize(("name", "status"), (corpus.SERVED | corpus.REFUSED).items())
def test_a_torture_message_is_met_with_its_code_and_harms_nothing(name: str, status: int) -> None:
    network = Network()
    host = network.add("10.0.0.2")
    try:
        network.put(host, corpus.message(name), STRANGER)
    except UnreadableMessage as fault:
        network.do(host, Unreadable(fault, STRANGER))
    assert host.statuses()[:1] == ([] if name in corpus.UNANSWERED else [status])
    caller = network.add("10.0.0.1")
    auto_answer(host)
    dial(network, caller, host)
    network.run(1.0)
    assert caller.told(CallEstablished)


def test_overload_is_503_with_a_time_to_come_back() -> None:
    network = Network()
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2", max_calls=0)
    dial(network, caller, callee)
    network.run(0.5)
    assert ends(caller) == [(EndCause.REFUSED, 503)]
    assert callee.sent[0].headers.get("Retry-After") == "5"
    assert callee.agent.transactions == 0


def test_a_drain_takes_no_new_calls_and_keeps_the_old() -> None:
    network = Network()
    caller, callee, _, _ = established(network)
    network._outputs(callee, callee.agent.drain(network.now))
    network.do(caller, Dial("second", parse_uri("sip:1@10.0.0.2"), caller.media))
    network.run(0.5)
    assert ends(caller) == [(EndCause.REFUSED, 503)]
    assert not ends(callee)
    with pytest.raises(WrongState):
        network.do(callee, Dial("x", parse_uri("sip:1@10.0.0.1"), callee.media))


def test_commands_that_do_not_fit_are_told_and_late_ones_ignored() -> None:
    network = Network()
    caller, callee, name, there = established(network)
    with pytest.raises(WrongState):
        network.do(callee, Answer(there, callee.media))
    with pytest.raises(WrongState):
        network.do(caller, Answer(name, caller.media))
    network.do(caller, HangUp(name))
    idle(network, caller, callee)
    network.do(callee, HangUp(there))
    network.do(callee, ChangeDirection(there, "inactive"))
    assert callee.statuses()[-1] == 200


def test_settings_have_defaults_that_a_trunk_can_live_with() -> None:
    settings = AgentSettings(contacts={"udp": ("10.0.0.1", 5060)})
    assert (settings.allow_refer, settings.session_interval_s, settings.max_calls) == (False, 1800, 500)
