"""Our candidates: chosen addresses, port ranges, 1:1 NAT, and servers that are dead, refuse or answer."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aioice import stun
from aioice.turn import make_integrity_key

from agent.config import MediaSettings
from agent.errors import CallRefused, ConfigError
from agent.media import gathering
from agent.media.aiortc_seam import CLOSE_S, RELEASE_S, PeerTransport
from agent.media.gathering import Complaints, check_media
from agent.media.webrtc import WebRtcPort

LOOPBACK = ("127.0.0.1",)


class Nobody:
    def on_rtp(self, data: bytes) -> None: ...
    def on_rtcp(self, data: bytes) -> None: ...
    def on_channel(self, channel: Any) -> None: ...
    def on_gone(self, reason: str) -> None: ...


@pytest.fixture(autouse=True)
def _fresh_complaints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "complain", Complaints(gathering.logger.warning))


@asynccontextmanager
async def gathered(**values: Any) -> AsyncIterator[PeerTransport]:
    transport = PeerTransport(MediaSettings(interfaces=LOOPBACK, **values), Nobody(), data=False)
    try:
        await transport.gather()
        yield transport
    finally:
        await transport.close()


def fields(candidate: str) -> tuple[str, int, str]:
    parts = candidate.split()
    return parts[4], int(parts[5]), parts[7]


def free_ports(count: int) -> tuple[int, int]:
    """A range of `count` ports on loopback that nobody uses now."""
    for low in range(42_000, 60_000, count):
        socks = []
        try:
            for port in range(low, low + count):
                sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                socks.append(sock)
                sock.bind(("127.0.0.1", port))
            return low, low + count - 1
        except OSError:
            continue
        finally:
            for sock in socks:
                sock.close()
    raise AssertionError("no free ports on loopback")


class Server(asyncio.DatagramProtocol):
    """A STUN or TURN server on loopback; `respond` makes the answers."""

    def __init__(self, respond: Any) -> None:
        self.respond = respond
        self.requests: list[stun.Message] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        request = stun.parse_message(data)
        self.requests.append(request)
        answer = self.respond(request, addr)
        if answer is not None:
            self.transport.sendto(bytes(answer), addr)


@asynccontextmanager
async def serving(respond: Any) -> AsyncIterator[tuple[Server, int]]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(lambda: Server(respond), local_addr=("127.0.0.1", 0))
    try:
        yield server, transport.get_extra_info("sockname")[1]
    finally:
        transport.close()


def error(request: stun.Message, code: int, reason: str) -> stun.Message:
    answer = stun.Message(request.message_method, stun.Class.ERROR, request.transaction_id)
    answer.attributes["ERROR-CODE"] = (code, reason)
    return answer


def unauthorized(request: stun.Message, _addr: Any) -> stun.Message:
    """What a TURN server says to nobody, and to wrong credentials."""
    answer = error(request, 401, "Unauthorized")
    answer.attributes["REALM"] = "test.local"
    answer.attributes["NONCE"] = b"nonce"
    return answer


def binding(request: stun.Message, addr: Any) -> stun.Message:
    answer = stun.Message(request.message_method, stun.Class.RESPONSE, request.transaction_id)
    answer.attributes["XOR-MAPPED-ADDRESS"] = ("203.0.113.50", addr[1])
    return answer


class Relay:
    """A TURN server that gives an allocation, and can die afterwards."""

    def __init__(self) -> None:
        self.dead = False
        self.goodbyes = 0

    def __call__(self, request: stun.Message, addr: Any) -> stun.Message | None:
        goodbye = request.message_method == stun.Method.REFRESH
        self.goodbyes += goodbye
        if self.dead:
            return None
        if "USERNAME" not in request.attributes:
            return unauthorized(request, addr)
        answer = stun.Message(request.message_method, stun.Class.RESPONSE, request.transaction_id)
        answer.attributes["LIFETIME"] = 0 if goodbye else 600
        if not goodbye:
            answer.attributes["XOR-RELAYED-ADDRESS"] = ("203.0.113.60", 50_000)
            answer.attributes["XOR-MAPPED-ADDRESS"] = ("203.0.113.50", addr[1])
        answer.add_message_integrity(make_integrity_key("me", "test.local", "pw"))
        return answer


def nothing(_request: stun.Message, _addr: Any) -> None:
    return None


async def test_only_chosen_addresses_are_offered() -> None:
    async with gathered() as transport:
        assert [fields(c)[0] for c in transport.candidates] == ["127.0.0.1"]
        assert [fields(c)[2] for c in transport.candidates] == ["host"]


async def test_ports_come_from_the_range_and_a_full_range_refuses_the_call() -> None:
    low, high = free_ports(4)
    ports = {"udp_port_min": low, "udp_port_max": high}
    transports = [PeerTransport(MediaSettings(interfaces=LOOPBACK, **ports), Nobody(), data=False) for _ in range(4)]
    for transport in transports:
        await transport.gather()
    assert sorted(fields(t.candidates[0])[1] for t in transports) == list(range(low, high + 1))
    with pytest.raises(
        CallRefused, match=f"all UDP ports from {low} to {high} are in use.*media.udp_port_max"
    ) as caught:
        async with gathered(**ports):
            raise AssertionError("a fifth call on four ports")
    assert caught.value.retry_after_s > 0
    await transports.pop().close()
    async with gathered(**ports) as again:
        assert low <= fields(again.candidates[0])[1] <= high
    for transport in transports:
        await transport.close()


def test_a_wide_range_is_searched_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    class Taken(socket.socket):
        def bind(self, address: Any) -> None:
            tried.append(address[1])
            raise OSError(gathering.errno.EADDRINUSE, "in use")

    monkeypatch.setattr(gathering.socket, "socket", Taken)
    with pytest.raises(OSError, match="no free port"):
        gathering.bind_udp("127.0.0.1", 1024, 65535)
    assert len(set(tried)) == len(tried) == gathering.MAX_PORT_TRIES
    assert all(1024 <= port <= 65535 for port in tried)


async def test_behind_1_to_1_nat_the_public_address_is_offered_and_ours_nowhere() -> None:
    async with serving(binding) as (_, port):
        settings = {"advertised_addresses": ("203.0.113.7",), "stun_servers": (f"stun:127.0.0.1:{port}",)}
        async with gathered(**settings) as transport:
            host, reflexive = transport.candidates
            assert (fields(host)[0], fields(host)[2]) == ("203.0.113.7", "host")
            assert (fields(reflexive)[0], fields(reflexive)[2]) == ("203.0.113.50", "srflx")
            assert "raddr 203.0.113.7" in reflexive
            assert not any("127.0.0.1" in candidate for candidate in transport.candidates)


async def test_the_answer_names_the_public_address_and_no_mdns_name_and_the_call_works(
    make_client: Any, ticker: Any, sink: Any
) -> None:
    client = make_client()
    port = await WebRtcPort.answer(
        await client.offer(),
        settings=MediaSettings(advertised_addresses=("203.0.113.7",)),
        ticker=ticker,
        on_message=lambda text: None,
    )
    lines = [line for line in port.answer_sdp.splitlines() if line.startswith("a=candidate")]
    assert lines
    assert all(" 203.0.113.7 " in line or ":" in line.split()[4] for line in lines)
    assert ".local" not in port.answer_sdp
    # No router here turns the public address into ours: the caller is met by our own checks to it.
    await client.accept(port.answer_sdp)
    port.attach(sink)
    await sink.until(lambda: len(sink.frames) >= 5)
    await port.close()
    await client.pc.close()


async def test_a_stun_server_is_asked_once_it_is_named() -> None:
    async with serving(binding) as (server, port):
        async with gathered() as transport:
            assert (server.requests, len(transport.candidates)) == ([], 1)
        async with gathered(stun_servers=(f"stun:127.0.0.1:{port}",)) as transport:
            assert [fields(c)[2] for c in transport.candidates] == ["host", "srflx"]
        assert len(server.requests) == 1


@pytest.mark.parametrize("dead", ["stun", "turn", "turn over tcp", "both"])
async def test_dead_servers_cost_at_most_a_second(dead: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(nothing) as (_, port):
        with socket.socket() as backlog:  # takes a connection and says nothing
            backlog.bind(("127.0.0.1", 0))
            backlog.listen()
            settings: dict[str, Any] = {}
            if dead in ("stun", "both"):
                settings["stun_servers"] = (f"stun:127.0.0.1:{port}",)
            if dead in ("turn", "both"):
                settings["turn_server"] = f"turn:127.0.0.1:{port}"
            if dead == "turn over tcp":
                settings["turn_server"] = f"turn:127.0.0.1:{backlog.getsockname()[1]}?transport=tcp"
            if "turn_server" in settings:
                settings |= {"turn_username": "u", "turn_password": "p"}
            before = asyncio.all_tasks()
            # The margin is for a busy machine; without a bound of ours this waits for 5 s.
            async with asyncio.timeout(gathering.GATHER_S + 1.5), gathered(**settings) as transport:
                assert [fields(c)[2] for c in transport.candidates] == ["host"]
                assert [t for t in asyncio.all_tasks() - before if t.get_name().startswith("ice-")] == []
    assert gathering.GATHER_S < 1.0
    assert "did not answer within 0.9 s" in caplog.text
    if dead != "stun":
        assert "check media.turn_server and the firewall" in caplog.text


async def test_a_turn_server_that_refuses_the_credentials_is_reported_with_what_to_check(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(unauthorized) as (server, port):
        settings = {"turn_server": f"turn:127.0.0.1:{port}", "turn_username": "me", "turn_password": "wrong"}
        for _ in range(3):
            async with gathered(**settings) as transport:
                assert [fields(c)[2] for c in transport.candidates] == ["host"]
        assert len(server.requests) == 6
    (record,) = [r for r in caplog.records if r.name == gathering.__name__]
    assert record.levelno == logging.WARNING
    text = record.getMessage()
    assert f"TURN server 127.0.0.1:{port}/udp refused the credentials (401 Unauthorized)" in text
    assert "media.turn_username" in text
    assert "REJOINDER_MEDIA__TURN_PASSWORD" in text
    assert "wrong" not in text


async def test_a_full_turn_server_and_a_closed_port_say_so(caplog: pytest.LogCaptureFixture) -> None:
    credentials = {"turn_username": "me", "turn_password": "pw"}
    async with (
        serving(lambda request, _: error(request, 486, "Allocation Quota Reached")) as (_, port),
        gathered(turn_server=f"turn:127.0.0.1:{port}", **credentials),
    ):
        assert "has no room (486 Allocation Quota Reached)" in caplog.text
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    async with gathered(turn_server=f"turn:127.0.0.1:{port}?transport=tcp", **credentials):
        assert "cannot be reached" in caplog.text


@pytest.mark.parametrize("dead", [False, True])
async def test_a_turn_server_that_died_does_not_hold_up_the_end_of_a_call(dead: bool) -> None:
    relay = Relay()
    before = asyncio.all_tasks()
    async with serving(relay) as (_, port):
        settings = {"turn_server": f"turn:127.0.0.1:{port}", "turn_username": "me", "turn_password": "pw"}
        transport = PeerTransport(MediaSettings(interfaces=LOOPBACK, **settings), Nobody(), data=False)
        await transport.gather()
        assert "relay" in [fields(c)[2] for c in transport.candidates]
        sockets = [protocol.transport for protocol in transport._ice._protocols[:-1]]
        relay.dead = dead
        # The margin is for a busy machine; aioice alone asks a dead server for 32 s.
        async with asyncio.timeout(CLOSE_S + RELEASE_S + 1.5):
            await transport.close()
        assert relay.goodbyes >= 1
        assert all(sock.is_closing() for sock in sockets)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() - before == set()
    assert CLOSE_S + RELEASE_S < 2.0


async def test_giving_up_while_gathering_leaves_no_task_and_no_socket() -> None:
    async with serving(nothing) as (_, port):
        before = asyncio.all_tasks()
        task = asyncio.create_task(_enter(gathered(stun_servers=(f"stun:127.0.0.1:{port}",))))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert asyncio.all_tasks() - before == set()


async def _enter(manager: Any) -> None:
    async with manager:
        raise AssertionError("gathering ended before its deadline")


def test_the_same_complaint_is_made_once_a_minute() -> None:
    said: list[str] = []
    clock = [0.0]
    complain = Complaints(said.append, now=lambda: clock[0])
    for text in ("a", "a", "b"):
        complain(text)
    clock[0] = 61.0
    complain("a")
    assert said == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"interfaces": ("nosuch0",)},
            "media.interfaces: nothing here matches 'nosuch0'; this machine has .*127.0.0.1",
        ),
        ({"interfaces": ("192.0.2.99",)}, "media.interfaces"),
        ({"advertised_addresses": ("192.0.2.99=203.0.113.7",)}, "media.advertised_addresses: 192.0.2.99"),
    ],
)
def test_what_the_machine_does_not_have_is_said_before_the_first_call(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        check_media(MediaSettings(**values), 40)


def test_fewer_ports_than_calls_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    check_media(MediaSettings(udp_port_min=40_000, udp_port_max=40_009), 10)
    assert caplog.text == ""
    check_media(MediaSettings(udp_port_min=40_000, udp_port_max=40_009), 11)
    assert "10 ports, fewer than server.max_calls (11)" in caplog.text


async def test_through_a_relay_only_no_address_of_ours_is_bound_or_offered() -> None:
    relay = Relay()
    async with serving(relay) as (_, port):
        settings = {"turn_server": f"turn:127.0.0.1:{port}", "turn_username": "me", "turn_password": "pw"}
        async with gathered(ice_policy="relay", **settings) as transport:
            assert [fields(c)[2] for c in transport.candidates] == ["relay"]
            assert len(transport._ice._protocols) == 1


async def test_through_a_relay_only_a_dead_relay_refuses_the_call(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(nothing) as (_, port):
        settings = {"turn_server": f"turn:127.0.0.1:{port}", "turn_username": "me", "turn_password": "pw"}
        with pytest.raises(CallRefused, match=r"media\.ice_policy.*gave no address"):
            async with gathered(ice_policy="relay", **settings):
                raise AssertionError("a call without any address")
    assert "check media.turn_server and the firewall" in caplog.text


def test_through_a_relay_only_needs_a_relay() -> None:
    with pytest.raises(ValueError, match="ice_policy relay needs turn_server"):
        MediaSettings(ice_policy="relay")
