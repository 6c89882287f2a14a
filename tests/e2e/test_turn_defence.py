"""What a relay in production refuses, proved by asking a real one for it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.config import MediaSettings
from agent.media.addresses import choose, parse_server
from agent.media.gathering import interfaces
from tests.e2e.relay import LOOPBACK, Relay, TurnClient, credentials, start_relay
from turn import probe as probe_module
from turn.probe import Peer, probe

FORBIDDEN = 403
UNAUTHORIZED = 401
QUOTA_REACHED = 486
FAMILY_MISMATCH = 443
MEDIA_SERVER = "10.20.30.40"
QUOTA = 4

DENIED_V4 = {
    "loopback": ("127.0.0.1", "127.255.255.254"),
    "private": ("10.0.0.1", "10.20.30.41", "172.16.0.1", "172.31.255.254", "192.168.1.1"),
    "link-local and metadata": ("169.254.0.1", "169.254.169.254"),
    "carrier-grade NAT": ("100.64.0.1", "100.127.255.254"),
    "multicast": ("224.0.0.1", "239.255.255.255"),
    "this network, reserved, broadcast": ("0.0.0.0", "0.0.0.1", "240.0.0.1", "255.255.255.255"),
    "tests and documentation": ("192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
    "named in the settings": ("93.184.216.34",),
}
DENIED_V6 = {
    "loopback": ("::1", "::"),
    "v4-mapped": ("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:8.8.8.8"),
    "v4-compatible and translated": ("::7f00:1", "::ffff:0:10.0.0.1"),
    "NAT64": ("64:ff9b::7f00:1", "64:ff9b:1::a00:1"),
    "6to4 and Teredo": ("2002:7f00:1::1", "2001:0:7f00:1::1"),
    "unique local": ("fd00::1", "fc00::1"),
    "link-local": ("fe80::1", "febf::1"),
    "site-local, multicast": ("fec0::1", "ff02::1", "ff0e::1"),
    "documentation": ("2001:db8::1", "3fff::1"),
}
PUBLIC_V4 = ("8.8.8.8", "1.1.1.1", "193.0.0.1", "11.0.0.1", "172.32.0.1", "223.255.255.254")
PUBLIC_V6 = ("2606:4700:4700::1111", "2a00:1450::1", "2001:4860:4860::8888")


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    """As in production, on loopback since the tests have nothing else; it relays from both families."""
    running = start_relay(
        tmp_path_factory.mktemp("relay"),
        profile="production",
        RELAY_ADDRESSES=f"{LOOPBACK},::1",
        ALLOWED_PEERS=MEDIA_SERVER,
        DENIED_PEERS="93.184.216.0/24",
        USER_QUOTA=str(QUOTA),
    )
    yield running
    assert running.stop() == 0


async def allocated(relay: Relay, identity: str, *, ipv6: bool = False) -> TurnClient:
    client = await TurnClient.allocate(relay.port, credentials(identity), ipv6=ipv6)
    assert isinstance(client, TurnClient), f"no allocation: {client}"
    return client


async def test_no_address_inside_is_reached_over_ipv4(relay: Relay) -> None:
    client = await allocated(relay, "four")
    for kind, hosts in DENIED_V4.items():
        for host in hosts:
            assert await client.permission(host) == FORBIDDEN, f"{kind}: {host}"
            assert await client.channel(host) == FORBIDDEN, f"{kind}: {host}"
    # The other spelling of the same addresses is of another family, which this allocation does not have.
    for host in DENIED_V6["v4-mapped"]:
        assert await client.permission(host) in (FORBIDDEN, FAMILY_MISMATCH), host
    await client.close()


async def test_no_address_inside_is_reached_over_ipv6(relay: Relay) -> None:
    client = await allocated(relay, "six", ipv6=True)
    assert client.relayed[0] == "::1"
    for kind, hosts in DENIED_V6.items():
        for host in hosts:
            assert await client.permission(host) == FORBIDDEN, f"{kind}: {host}"
            assert await client.channel(host) == FORBIDDEN, f"{kind}: {host}"
    await client.close()


async def test_public_addresses_and_the_media_server_are_reached(relay: Relay) -> None:
    four, six = await allocated(relay, "four"), await allocated(relay, "six", ipv6=True)
    for host in (*PUBLIC_V4, MEDIA_SERVER):
        assert await four.permission(host) == 0, host
    for host in PUBLIC_V6:
        assert await six.permission(host) == 0, host
    await four.close()
    await six.close()


@pytest.mark.parametrize(("host", "ipv6"), [("127.0.0.1", False), ("::1", True)])
async def test_what_is_sent_unasked_to_a_service_on_loopback_does_not_arrive(
    relay: Relay, host: str, ipv6: bool
) -> None:
    client = await allocated(relay, "sender", ipv6=ipv6)
    with socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET, socket.SOCK_DGRAM) as service:
        service.bind((host, 0))
        service.setblocking(False)
        for _ in range(3):
            client.send(b"inside", host, service.getsockname()[1])
        # The relay takes a socket's packets in order: when this is answered, those are dealt with.
        assert await client.permission(host) == FORBIDDEN
        await asyncio.sleep(0.1)
        with pytest.raises(BlockingIOError):
            service.recv(100)
    await client.close()


async def test_behind_nat_the_relays_own_address_stays_closed(tmp_path: Path) -> None:
    own = next(address for address in choose(interfaces(), ()) if ":" not in address)
    relay = start_relay(tmp_path, profile="production", RELAY_ADDRESSES=own, EXTERNAL_ADDRESS="8.8.4.4")
    client = await allocated(relay, "outside")
    assert client.relayed[0] == "8.8.4.4"
    assert await client.permission("8.8.4.4") == FORBIDDEN
    assert await client.permission(own) == FORBIDDEN
    assert await client.permission("8.8.8.8") == 0
    await client.close()
    assert relay.stop() == 0


async def test_the_doctor_says_when_the_relay_may_not_reach_this_machine(relay: Relay) -> None:
    server = parse_server(relay.urls["UDP"], turn=True)
    found = await probe(server, credentials("doctor"), [Peer(LOOPBACK, "10.20.30.41")], MediaSettings())
    assert not found.works
    assert "it may not send to this machine's address 10.20.30.41 (403 Forbidden IP)" in found.found
    assert 'add "10.20.30.41" to turn.allowed_peers' in found.fix
    assert f'("{LOOPBACK}" where the relay runs on this machine)' in found.fix


async def test_the_doctor_says_when_nothing_arrives(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "PASS_S", 1.0)
    server = parse_server(relay.urls["TCP"], turn=True)
    # Allowed, but nobody has that address.
    found = await probe(server, credentials("doctor"), [Peer(LOOPBACK, MEDIA_SERVER)], MediaSettings())
    assert not found.works
    assert f"nothing arrives at {MEDIA_SERVER}, UDP port " in found.found
    assert "media.advertised_addresses" in found.fix


async def test_expired_and_foreign_credentials_open_nothing(relay: Relay) -> None:
    assert await TurnClient.allocate(relay.port, credentials(age_s=600)) == UNAUTHORIZED
    assert await TurnClient.allocate(relay.port, credentials(secret="f" * 32)) == UNAUTHORIZED
    good = credentials("honest")
    later = f"{good.expires_at + 86_400}:honest"
    forged = type(good)(later, good.password, good.expires_at + 86_400)
    assert await TurnClient.allocate(relay.port, forged) == UNAUTHORIZED
    other = type(good)(f"{good.expires_at}:somebody-else", good.password, good.expires_at)
    assert await TurnClient.allocate(relay.port, other) == UNAUTHORIZED


async def test_one_session_gets_its_quota_and_no_more_however_fresh_its_credentials(relay: Relay) -> None:
    held = []
    for age_s in range(QUOTA):
        client = await TurnClient.allocate(relay.port, credentials("greedy", age_s=age_s))
        assert isinstance(client, TurnClient)
        held.append(client)
    assert await TurnClient.allocate(relay.port, credentials("greedy", age_s=QUOTA)) == QUOTA_REACHED
    another = await allocated(relay, "modest")
    await another.close()
    await held.pop().close()
    # coturn lets go of it within a second or so.
    async with asyncio.timeout(20):
        while isinstance(again := await TurnClient.allocate(relay.port, credentials("greedy")), int):
            assert again == QUOTA_REACHED
            await asyncio.sleep(0.2)
    for client in (*held, again):
        await client.close()
