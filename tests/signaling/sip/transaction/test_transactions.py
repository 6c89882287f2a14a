"""The four machines and their timers, in virtual time (RFC 3261 section 17, RFC 6026)."""

from __future__ import annotations

from signaling.sip.message import Request, Response
from signaling.sip.parser import parse_message
from signaling.sip.peer import Peer
from signaling.sip.timers import Schedule, Timings
from signaling.sip.transaction.base import State, Transaction
from signaling.sip.transaction.server import InviteServer
from signaling.sip.transaction.table import TransactionTable

UDP = Peer("udp", "192.0.2.1", 5060)
TCP = Peer("tcp", "192.0.2.1", 5060, 7)


def request(method: str, branch: str = "z9hG4bKa", cseq: str = "") -> Request:
    text = (
        f"{method} sip:a@h SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch={branch}\r\nFrom: <sip:b@h>;tag=1\r\n"
        f"To: <sip:a@h>\r\nCall-ID: x\r\nCSeq: 1 {cseq or method}\r\n\r\n"
    )
    message = parse_message(text.encode())
    assert isinstance(message, Request)
    return message


class Bench:
    """A table, its wire and its users."""

    def __init__(self, limit: int = 100) -> None:
        self.schedule = Schedule()
        self.table = TransactionTable(self, self.schedule, Timings(), limit=limit)
        self.sent: list[tuple[float, str]] = []
        self.heard: list[str] = []
        self.now = 0.0

    def transmit(self, message: Request | Response, peer: Peer, owner: Transaction | None = None) -> None:
        what = message.method if isinstance(message, Request) else str(message.status)
        self.sent.append((round(self.now, 3), what))

    def on_response(self, transaction: Transaction, response: Response, now: float) -> None:
        self.heard.append(str(response.status))

    def on_timeout(self, transaction: Transaction, now: float) -> None:
        self.heard.append(f"timeout {now}")

    def on_unreachable(self, transaction: Transaction, now: float) -> None:
        self.heard.append("unreachable")

    def on_lost(self, transaction: Transaction, now: float) -> None:
        self.heard.append(f"lost {now}")

    def until(self, end: float) -> None:
        while (at := self.schedule.next_at) is not None and at <= end:
            self.now = at
            self.schedule.run(at)
        self.now = end

    def times(self, what: str) -> list[float]:
        return [when for when, sent in self.sent if sent == what]


def respond(status: int, to: Request) -> Response:
    return Response.to_request(to, status, tag="t")


def test_an_invite_is_sent_again_at_doubling_intervals_until_timer_b() -> None:
    bench = Bench()
    bench.table.begin_client(request("INVITE"), UDP, bench, 0.0)
    bench.until(40.0)
    assert bench.times("INVITE") == [0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5]
    assert bench.heard == ["timeout 32.0"]
    assert bench.schedule.next_at is None


def test_a_provisional_response_ends_retransmission_and_timer_b() -> None:
    bench = Bench()
    invite = request("INVITE")
    client = bench.table.begin_client(invite, UDP, bench, 0.0)
    bench.until(1.0)
    client.receive(respond(180, invite), 1.0)
    bench.until(100.0)
    assert bench.times("INVITE") == [0.0, 0.5]
    assert (bench.heard, client.state) == (["180"], State.PROCEEDING)


def test_a_refusal_is_acknowledged_each_time_for_32_seconds() -> None:
    bench = Bench()
    invite = request("INVITE")
    client = bench.table.begin_client(invite, UDP, bench, 0.0)
    for _ in range(3):
        client.receive(respond(486, invite), 0.0)
    bench.until(31.9)
    assert (bench.heard, len(bench.times("ACK")), client.state) == (["486"], 3, State.COMPLETED)
    bench.until(32.0)
    assert client.terminated


def test_every_2xx_reaches_the_user_for_32_seconds() -> None:
    bench = Bench()
    invite = request("INVITE")
    client = bench.table.begin_client(invite, UDP, bench, 0.0)
    client.receive(respond(200, invite), 0.0)
    client.receive(respond(200, invite), 1.0)
    client.receive(respond(486, invite), 1.0)
    assert (bench.heard, client.state) == (["200", "200"], State.ACCEPTED)
    bench.until(32.0)
    assert client.terminated


def test_another_request_is_sent_again_up_to_every_4_seconds_until_timer_f() -> None:
    bench = Bench()
    bench.table.begin_client(request("BYE"), UDP, bench, 0.0)
    bench.until(40.0)
    assert bench.times("BYE") == [0.0, 0.5, 1.5, 3.5, 7.5, 11.5, 15.5, 19.5, 23.5, 27.5, 31.5]
    assert bench.heard == ["timeout 32.0"]


def test_another_request_in_progress_is_sent_again_every_4_seconds() -> None:
    bench = Bench()
    bye = request("BYE")
    client = bench.table.begin_client(bye, UDP, bench, 0.0)
    client.receive(respond(100, bye), 0.1)
    bench.until(13.0)
    assert bench.times("BYE") == [0.0, 0.5, 4.5, 8.5, 12.5]
    client.receive(respond(200, bye), 13.0)
    client.receive(respond(200, bye), 13.0)
    bench.until(17.9)
    assert client.state is State.COMPLETED
    bench.until(18.0)
    assert client.terminated
    assert bench.heard == ["100", "200"]


def test_over_tcp_nothing_is_sent_again_and_nothing_lingers() -> None:
    bench = Bench()
    invite, bye = request("INVITE"), request("BYE", "z9hG4bKb")
    call = bench.table.begin_client(invite, TCP, bench, 0.0)
    end = bench.table.begin_client(bye, TCP, bench, 0.0)
    bench.until(31.0)
    assert bench.sent == [(0.0, "INVITE"), (0.0, "BYE")]
    call.receive(respond(404, invite), 31.0)
    end.receive(respond(200, bye), 31.0)
    assert call.terminated
    assert end.terminated


def test_a_broken_transport_is_told_once() -> None:
    bench = Bench()
    client = bench.table.begin_client(request("INVITE"), UDP, bench, 0.0)
    client.unreachable(0.1)
    client.unreachable(0.2)
    assert bench.heard == ["unreachable"]


def test_a_refusal_of_ours_is_sent_again_until_the_ack() -> None:
    bench = Bench()
    invite = request("INVITE")
    server = bench.table.begin_server(invite, UDP)
    assert isinstance(server, InviteServer)
    server.respond(respond(486, invite), 0.0)
    bench.until(8.0)
    assert bench.times("486") == [0.0, 0.5, 1.5, 3.5, 7.5]
    assert bench.table.server_of(request("ACK")) is server
    server.acknowledged(8.0)
    bench.until(12.9)
    assert server.state is State.CONFIRMED
    bench.until(13.0)
    assert server.terminated


def test_a_refusal_that_nobody_acknowledges_is_lost_at_timer_h() -> None:
    bench = Bench()
    invite = request("INVITE")
    server = bench.table.begin_server(invite, UDP)
    server.user = bench
    server.respond(respond(486, invite), 0.0)
    bench.until(50.0)
    assert bench.heard == ["lost 32.0"]
    assert bench.times("486") == [0.0, 0.5, 1.5, 3.5, 7.5, 11.5, 15.5, 19.5, 23.5, 27.5, 31.5]


def test_a_2xx_is_not_sent_again_by_the_transaction_which_absorbs_the_invite() -> None:
    bench = Bench()
    invite = request("INVITE")
    server = bench.table.begin_server(invite, UDP)
    server.respond(respond(180, invite), 0.0)
    server.retransmitted()
    server.respond(respond(200, invite), 1.0)
    server.retransmitted()
    server.respond(respond(486, invite), 1.0)
    assert [what for _, what in bench.sent] == ["180", "180", "200"]
    bench.until(33.0)
    assert server.terminated


def test_another_response_is_repeated_on_demand_for_32_seconds() -> None:
    bench = Bench()
    bye = request("BYE")
    server = bench.table.begin_server(bye, UDP)
    server.retransmitted()
    server.respond(respond(200, bye), 0.0)
    server.retransmitted()
    assert [what for _, what in bench.sent] == ["200", "200"]
    bench.until(31.9)
    assert bench.table.server_of(request("BYE")) is server
    bench.until(32.0)
    assert bench.table.server_of(request("BYE")) is None


def test_messages_find_their_transaction() -> None:
    bench = Bench()
    invite = request("INVITE")
    server = bench.table.begin_server(invite, UDP)
    assert bench.table.server_of(request("INVITE")) is server
    assert bench.table.invite_of(request("CANCEL")) is server
    assert bench.table.server_of(request("CANCEL")) is None
    assert bench.table.server_of(request("INVITE", "z9hG4bKother")) is None
    client = bench.table.begin_client(request("OPTIONS", "z9hG4bKc"), UDP, bench, 0.0)
    assert bench.table.client_of(respond(200, request("OPTIONS", "z9hG4bKc"))) is client
    assert bench.table.client_of(respond(200, request("BYE", "z9hG4bKc"))) is None


def test_a_peer_of_rfc_2543_is_matched_by_its_fields() -> None:
    bench = Bench()
    server = bench.table.begin_server(request("INVITE", "1"), UDP)
    assert bench.table.server_of(request("INVITE", "1")) is server
    ack = request("ACK", "1")
    ack.headers.replace("To", "<sip:a@h>;tag=ours")
    assert bench.table.server_of(ack) is server
    other = request("INVITE", "1")
    other.headers.replace("Call-ID", "y")
    assert bench.table.server_of(other) is None


def test_the_table_is_bounded_and_forgets_what_has_ended() -> None:
    bench = Bench(limit=10)
    for number in range(10):
        bench.table.begin_client(request("OPTIONS", f"z9hG4bK{number}"), UDP, bench, 0.0)
    assert bench.table.full
    bench.until(40.0)
    assert not bench.table.full
    assert len(bench.table) == 0
