"""Keeping an address registered: digest, refresh, fail-over, back-off, unregister."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from signaling.sip.defence import Door, DoorSettings
from signaling.sip.digest import Account, DigestServer, Proof
from signaling.sip.message import Request, Response
from signaling.sip.peer import Peer
from signaling.sip.protocol import Received, RegistrationChanged, Send, SendFailed, Tick
from signaling.sip.registration import RegistrationSettings
from signaling.sip.stack import AgentSettings
from signaling.sip.uri import parse_uri
from signaling.sip.user_agent import UserAgent

FIRST = parse_uri("sip:192.0.2.1", "x")
SECOND = parse_uri("sip:192.0.2.2;transport=tcp", "x")


class Scene:
    """A user agent, the REGISTERs it sends, and time."""

    def __init__(self, *registrars: object, expires_s: int = 600) -> None:
        settings = AgentSettings(
            {"udp": ("198.51.100.5", 5060), "tcp": ("198.51.100.5", 5060)},
            user="agent",
            account=Account("agent", "secret"),
        )
        numbers: Iterator[int] = iter(range(10**6))
        self.agent = UserAgent(
            settings, Door(DoorSettings()), new_token=lambda: f"t{next(numbers):020}", uniform=lambda: 0.5
        )
        self.now = 0.0
        self.sent: list[Send] = []
        self.news: list[RegistrationChanged] = []
        wanted = RegistrationSettings("agent", registrars or (FIRST,), expires_s=expires_s)
        self._take(self.agent.register(wanted, self.now))

    def _take(self, outputs: list) -> None:
        self.sent += [output for output in outputs if isinstance(output, Send)]
        self.news += [output for output in outputs if isinstance(output, RegistrationChanged)]

    @property
    def last(self) -> Request:
        message = self.sent[-1].message
        assert isinstance(message, Request)
        return message

    def answer(self, status: int, *headers: tuple[str, str], contact_s: int | None = None) -> None:
        response = Response.to_request(self.last, status, tag="r")
        for name, value in headers:
            response.headers.add(name, value)
        if contact_s is not None:
            response.headers.add(
                "Contact", f"<sip:other@203.0.113.9>;expires=9999, {self.last.need('Contact')};expires={contact_s}"
            )
        self._take(self.agent.handle(Received(response, self.sent[-1].peer), self.now))

    def fail(self) -> None:
        self._take(self.agent.handle(SendFailed(self.sent[-1]), self.now))

    def pass_until(self, when: float) -> None:
        while self.agent.next_at is not None and self.agent.next_at <= when:
            self.now = self.agent.next_at
            self._take(self.agent.handle(Tick(), self.now))
        self.now = when

    def drain(self) -> None:
        self._take(self.agent.drain(self.now))


def test_the_register_names_address_contact_and_time() -> None:
    scene = Scene(expires_s=300)
    request = scene.last
    assert request.start_line == "REGISTER sip:192.0.2.1 SIP/2.0"
    assert request.need("To") == "<sip:agent@192.0.2.1>"
    assert request.need("Contact") == "<sip:agent@198.51.100.5:5060>"
    assert request.need("Expires") == "300"
    assert scene.sent[-1].peer == Peer("udp", "192.0.2.1", 5060)


def test_a_challenge_is_met_and_the_book_is_told_of_once() -> None:
    scene = Scene()
    server = DigestServer("provider", {"agent": "secret"}.get)
    scene.answer(401, *(("WWW-Authenticate", value) for value in server.challenges(0.0)))
    again = scene.last
    proof, user = server.check(again.headers.all("Authorization"), "REGISTER", str(again.uri), b"", 0.0)
    assert (proof, user, again.cseq.number) == (Proof.GOOD, "agent", 2)
    scene.answer(200, contact_s=600)
    scene.pass_until(460)
    scene.answer(200, contact_s=600)
    assert scene.news == [RegistrationChanged(True, 200)]


@pytest.mark.parametrize(("granted", "refresh"), [(60, 45), (600, 450), (3600, 2700), (1, 7.5)])
def test_it_is_refreshed_at_three_quarters_of_what_was_granted(granted: int, refresh: float) -> None:
    scene = Scene()
    scene.answer(200, contact_s=granted)
    count = len(scene.sent)
    scene.pass_until(refresh - 0.01)
    assert len(scene.sent) == count
    scene.pass_until(refresh)
    assert len(scene.sent) == count + 1
    assert scene.last.cseq.number == 2


def test_without_a_contact_the_expires_field_counts_and_else_what_was_asked() -> None:
    scene = Scene()
    scene.answer(200, ("Expires", "100"))
    scene.pass_until(74.9)
    assert len(scene.sent) == 1
    scene.pass_until(75)
    assert len(scene.sent) == 2
    other = Scene(expires_s=200)
    other.answer(200, ("Contact", "<sip:broken"))
    other.pass_until(149.9)
    assert len(other.sent) == 1
    other.pass_until(150)
    assert len(other.sent) == 2


def test_a_dead_registrar_is_replaced_by_the_next_at_once() -> None:
    scene = Scene(FIRST, SECOND)
    scene.fail()
    assert scene.sent[-1].peer == Peer("tcp", "192.0.2.2", 5060)
    scene.answer(200, contact_s=100)
    scene.pass_until(75)
    assert scene.sent[-1].peer.host == "192.0.2.2"
    assert scene.news == [RegistrationChanged(True, 200)]


def test_a_silent_registrar_is_replaced_after_the_transactions_time() -> None:
    scene = Scene(FIRST, SECOND)
    scene.pass_until(32.1)
    assert scene.sent[-1].peer.host == "192.0.2.2"


def test_when_all_have_failed_the_rounds_grow_longer_up_to_a_limit() -> None:
    scene = Scene(FIRST, SECOND)
    waits = []
    for _ in range(9):
        scene.fail()
        scene.fail()
        assert scene.agent.next_at is not None
        began = scene.now
        count = len(scene.sent)
        while len(scene.sent) == count:
            scene.pass_until(scene.agent.next_at)
        waits.append(scene.now - began)
    assert waits[:3] == [22.5, 45.0, 90.0]
    assert waits[-1] == 1350.0
    assert scene.news == [RegistrationChanged(False, 503)]


def test_a_wrong_password_is_not_tried_again_for_minutes() -> None:
    scene = Scene()
    scene.answer(403)
    assert scene.agent.next_at is not None
    count = len(scene.sent)
    scene.pass_until(400)
    assert len(scene.sent) == count
    assert scene.news == [RegistrationChanged(False, 403)]


def test_a_registrar_that_asks_for_time_gets_it() -> None:
    scene = Scene()
    scene.answer(503, ("Retry-After", "120 (maintenance)"))
    count = len(scene.sent)
    scene.pass_until(119)
    assert len(scene.sent) == count
    scene.pass_until(120)
    assert len(scene.sent) == count + 1


def test_a_longer_interval_is_taken_once_and_no_endless_one() -> None:
    scene = Scene(expires_s=60)
    scene.answer(423, ("Min-Expires", "1800"))
    assert scene.last.need("Expires") == "1800"
    scene.answer(423, ("Min-Expires", "1800"))
    assert scene.news == [RegistrationChanged(False, 423)]
    endless = Scene(expires_s=60)
    endless.answer(423, ("Min-Expires", "4000000000"))
    assert endless.news == [RegistrationChanged(False, 423)]


def test_a_registration_whose_refresh_stays_unanswered_is_told_as_lost_at_its_end() -> None:
    scene = Scene()
    scene.answer(200, contact_s=40)
    scene.pass_until(40)
    assert scene.news[-1] == RegistrationChanged(False, 408)


def test_a_drain_unregisters_and_is_over_with_the_answer() -> None:
    scene = Scene()
    scene.answer(200, contact_s=600)
    scene.drain()
    assert scene.last.need("Expires") == "0"
    assert scene.agent.busy
    scene.answer(200)
    assert not scene.agent.busy
    scene.pass_until(5000)
    assert scene.news == [RegistrationChanged(True, 200), RegistrationChanged(False, 200)]


def test_a_drain_waits_for_a_dead_registrar_two_seconds_and_for_none_that_never_had_us() -> None:
    scene = Scene()
    scene.answer(200, contact_s=600)
    scene.drain()
    scene.pass_until(1.9)
    assert scene.agent.busy
    scene.pass_until(2.0)
    assert not scene.agent.busy
    refused = Scene()
    refused.answer(403)
    count = len(refused.sent)
    refused.drain()
    assert len(refused.sent) == count
    assert not refused.agent.busy
