"""Transfers both ways: nothing is a success before it is known."""

from __future__ import annotations

import pytest

from signaling.sip.errors import WrongState
from signaling.sip.message import Request
from signaling.sip.protocol import (
    AcceptTransfer,
    CallEnded,
    CallEstablished,
    CallOffered,
    Dial,
    EndCause,
    HangUp,
    RefuseTransfer,
    ReportTransfer,
    Transfer,
    TransferAsked,
    TransferProgressed,
)
from signaling.sip.uri import parse_uri
from tests.signaling.sip.network import Host, Network, auto_answer, established

DESK = parse_uri("sip:desk@10.0.0.3")


def reports(host: Host) -> list[tuple[int, bool]]:
    return [(news.status, news.final) for news in host.told(TransferProgressed)]


def test_an_incoming_refer_is_declined_by_default() -> None:
    network = Network()
    caller, callee, name, _ = established(network)
    network.do(caller, Transfer(name, DESK))
    network.run(1.0)
    assert callee.statuses()[-1] == 603
    assert reports(caller) == [(603, True)]
    assert not callee.told(TransferAsked)


@pytest.mark.parametrize("outcome", [200, 486, 603, 408])
def test_a_blind_transfer_reports_what_became_of_it(outcome: int) -> None:
    network = Network()
    caller, callee, name, there = established(network, allow_refer=True)
    network.do(caller, Transfer(name, DESK))
    network.run(0.5)
    (asked,) = callee.told(TransferAsked)
    assert (str(asked.target), asked.replaces) == (str(DESK), None)
    network.do(callee, AcceptTransfer(there))
    network.run(0.5)
    network.do(callee, ReportTransfer(there, 180))
    network.run(0.5)
    assert reports(caller) == [(100, False), (180, False)]
    network.do(callee, ReportTransfer(there, outcome))
    network.run(0.5)
    assert reports(caller)[-1] == (outcome, True)
    with pytest.raises(WrongState):
        network.do(callee, ReportTransfer(there, 200))
    assert not caller.told(CallEnded)


def test_a_transfer_that_is_refused_can_be_tried_again() -> None:
    network = Network()
    caller, callee, name, there = established(network, allow_refer=True)
    network.do(caller, Transfer(name, DESK))
    with pytest.raises(WrongState):
        network.do(caller, Transfer(name, DESK))
    network.run(0.5)
    network.do(callee, RefuseTransfer(there, 488))
    network.run(0.5)
    assert reports(caller) == [(488, True)]
    network.do(caller, Transfer(name, DESK))
    network.run(0.5)
    assert len(callee.told(TransferAsked)) == 2


def test_a_transfer_without_a_final_report_has_failed() -> None:
    network = Network()
    caller, callee, name, there = established(network, allow_refer=True)
    network.do(caller, Transfer(name, DESK))
    network.run(0.5)
    network.do(callee, AcceptTransfer(there))
    network.run(61.0)
    assert reports(caller) == [(100, False), (408, True)]


def test_a_call_that_ends_takes_its_transfer_with_it() -> None:
    network = Network()
    caller, callee, name, there = established(network, allow_refer=True)
    network.do(caller, Transfer(name, DESK))
    network.run(0.5)
    network.do(callee, HangUp(there))
    network.run(70.0)
    assert reports(caller) == [(487, True)]
    assert (caller.agent.calls, callee.agent.calls) == (0, 0)
    assert callee.agent.next_at is None


def test_an_attended_transfer_replaces_the_consultation() -> None:
    """We talk to the caller and to the desk; the caller is sent to the desk in our place."""
    network = Network()
    agent, caller, name, there = established(network, allow_refer=True)
    desk = network.add("10.0.0.3")
    auto_answer(desk)
    network.do(agent, Dial("consult", DESK, agent.media))
    network.run(1.0)
    network.do(agent, Transfer(name, to_call="consult"))
    network.run(0.5)
    (asked,) = caller.told(TransferAsked)
    assert asked.replaces is not None
    network.do(caller, AcceptTransfer(there))
    network.do(caller, Dial("new", asked.target, caller.media, replaces=asked.replaces))
    network.run(1.0)
    assert [news.call for news in caller.told(CallEstablished)] == [there, "new"]
    offers = desk.told(CallOffered)
    assert offers[1].replaces == offers[0].call
    assert [(news.call, news.cause) for news in desk.told(CallEnded)] == [(offers[0].call, EndCause.REPLACED)]
    assert [news.call for news in agent.told(CallEnded)] == ["consult"]
    network.do(caller, ReportTransfer(there, 200))
    network.run(0.5)
    assert reports(agent)[-1] == (200, True)


@pytest.mark.parametrize("replaces", ["nobody;to-tag=1;from-tag=2", "malformed"])
def test_a_call_that_replaces_nothing_is_refused(replaces: str) -> None:
    network = Network()
    caller, callee = network.add("10.0.0.1"), network.add("10.0.0.2")
    network.do(caller, Dial("out", parse_uri("sip:1@10.0.0.2"), caller.media, replaces=replaces))
    network.run(0.5)
    assert callee.statuses() == [400 if replaces == "malformed" else 481]
    assert not callee.told(CallOffered)


def test_a_report_of_no_transfer_is_refused() -> None:
    network = Network()
    caller, callee, name, there = established(network, allow_refer=True)
    network.do(caller, Transfer(name, DESK))
    network.run(0.5)
    network.do(callee, AcceptTransfer(there))
    network.run(0.5)
    notify = next(m for m in callee.sent if isinstance(m, Request) and m.method == "NOTIFY")
    for number, new, status in ((70, b"presence;id=", 489), (71, b"refer;id=9", 481)):
        data = notify.to_bytes().replace(b"refer;id=", new).replace(notify.via.branch.encode(), b"z9hG4bK%d" % status)
        data = data.replace(b"CSeq: %d " % notify.cseq.number, b"CSeq: %d " % number)
        network.put(caller, data, callee.peer)
        assert caller.statuses()[-1] == status
