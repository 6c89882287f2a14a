"""The shell over real sockets: UDP, TCP and TLS, both address families, and peers that misbehave."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from agent.errors import ConfigError
from signaling.sip.defence import Door, DoorSettings
from signaling.sip.negotiation import LocalMedia
from signaling.sip.protocol import Answer, CallEnded, CallEstablished, CallOffered, Dial, EndCause, HangUp, News
from signaling.sip.stack import AgentSettings
from signaling.sip.transport.endpoint import Listen, SipEndpoint
from signaling.sip.transport.tls import client_context, server_context
from signaling.sip.uri import Uri
from signaling.sip.user_agent import UserAgent
from tests.signaling.sip import corpus

OPTIONS = (
    b"OPTIONS sip:a@h SIP/2.0\r\nVia: SIP/2.0/TCP 127.0.0.1;branch=z9hG4bK%d\r\nFrom: <sip:b@h>;tag=1\r\n"
    b"To: <sip:a@h>\r\nCall-ID: x\r\nCSeq: %d OPTIONS\r\nContent-Length: 0\r\n\r\n"
)


class Station:
    """An endpoint that answers every call, and what it was told."""

    def __init__(self, transport: str, host: str, **tls: ssl.SSLContext) -> None:
        settings = AgentSettings(contacts={transport: (host, free_port(host))})
        self.port = settings.contacts[transport][1]
        agent = UserAgent(settings, Door(DoorSettings(open_to_all=True, requests_per_minute=10_000)))
        self.media = LocalMedia(host, 40_000)
        self.news: list[News] = []
        self._changed = asyncio.Event()
        self.endpoint = SipEndpoint(agent, [Listen(transport, host, self.port)], self._told, **tls)

    def _told(self, news: News) -> None:
        self.news.append(news)
        self._changed.set()
        if isinstance(news, CallOffered):
            self.endpoint.handle(Answer(news.call, self.media))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def heard(self, kind: type) -> list:
        return [news for news in self.news if isinstance(news, kind)]


def free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate of 127.0.0.1 with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "both.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


async def call(caller: Station, callee: Station, target: Uri) -> None:
    async with caller.endpoint, callee.endpoint:
        caller.endpoint.handle(Dial("out", target, caller.media))
        await caller.until(lambda: bool(caller.heard(CallEstablished) or caller.heard(CallEnded)))
        assert caller.heard(CallEstablished)
        await callee.until(lambda: bool(callee.heard(CallEstablished)))
        caller.endpoint.handle(HangUp("out"))
        await callee.until(lambda: bool(callee.heard(CallEnded)))
    assert callee.heard(CallEnded)[0].cause is EndCause.PEER_HUNG_UP


@pytest.mark.parametrize("transport", ["udp", "tcp"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_call_over_each_family(transport: str, host: str) -> None:
    caller, callee = Station(transport, host), Station(transport, host)
    await call(caller, callee, Uri.sip("1", host, callee.port, (("transport", transport),)))


@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_a_name_is_resolved(transport: str) -> None:
    caller, callee = Station(transport, "127.0.0.1"), Station(transport, "127.0.0.1")
    await call(caller, callee, Uri.sip("1", "localhost", callee.port, (("transport", transport),)))


async def test_a_call_over_verified_tls(certificate: Path) -> None:
    caller = Station("tls", "127.0.0.1", server_tls=server_context(certificate), client_tls=client_context(certificate))
    callee = Station("tls", "127.0.0.1", server_tls=server_context(certificate), client_tls=client_context(certificate))
    await call(caller, callee, Uri("sips", "127.0.0.1", "1", None, callee.port))


async def test_a_certificate_that_nobody_vouches_for_is_refused(certificate: Path) -> None:
    caller = Station("tls", "127.0.0.1", server_tls=server_context(certificate), client_tls=client_context())
    callee = Station("tls", "127.0.0.1", server_tls=server_context(certificate))
    async with caller.endpoint, callee.endpoint:
        caller.endpoint.handle(Dial("out", Uri("sips", "127.0.0.1", "1", None, callee.port), caller.media))
        await caller.until(lambda: bool(caller.heard(CallEnded)))
    assert caller.heard(CallEnded)[0].status == 503
    assert not callee.heard(CallOffered)


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("no")
    with pytest.raises(ConfigError, match="tls_certificate"):
        server_context(bad)
    with pytest.raises(ConfigError, match="tls_authorities"):
        client_context(bad)
    assert client_context().minimum_version is ssl.TLSVersion.TLSv1_2


async def test_a_refused_connection_ends_the_call_at_once() -> None:
    caller = Station("tcp", "127.0.0.1")
    target = Uri.sip("1", "127.0.0.1", free_port("127.0.0.1"), (("transport", "tcp"),))
    async with caller.endpoint:
        caller.endpoint.handle(Dial("out", target, caller.media))
        await caller.until(lambda: bool(caller.heard(CallEnded)))
    assert caller.heard(CallEnded)[0].status == 503


async def test_a_stream_is_answered_message_by_message_and_keep_alives_too() -> None:
    station = Station("tcp", "127.0.0.1")
    async with station.endpoint, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", station.port)
        data = OPTIONS % (1, 1) + b"\r\n\r\n" + OPTIONS % (2, 2)
        for at in range(0, len(data), 50):
            writer.write(data[at : at + 50])
            await writer.drain()
        got = b""
        while got.count(b"\r\n\r\n") < 2 or b"CSeq: 2" not in got:
            got += await reader.read(4096)
        assert got.count(b"SIP/2.0 200 OK") == 2
        assert b"Content-Length: 0\r\n\r\n\r\nSIP/2.0" in got
        writer.close()


async def test_a_stream_without_a_length_is_refused_and_closed() -> None:
    station = Station("tcp", "127.0.0.1")
    async with station.endpoint, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", station.port)
        writer.write(corpus.message("mcl01"))
        assert (await reader.read()).startswith(b"SIP/2.0 400 ")
        writer.close()


async def test_a_peer_that_half_closes_does_not_delay_the_end() -> None:
    station = Station("tcp", "127.0.0.1")
    async with asyncio.timeout(10):
        async with station.endpoint:
            open_ones = [await asyncio.open_connection("127.0.0.1", station.port) for _ in range(3)]
            half, deaf, idle = open_ones
            half[1].write(OPTIONS % (1, 1))
            half[1].write_eof()
            assert (await half[0].read()).startswith(b"SIP/2.0 200")
            deaf[1].write(OPTIONS[:40])
            await deaf[1].drain()
            begun = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - begun < 5.0
        assert await idle[0].read() == b""
        for _, writer in open_ones:
            writer.close()


async def test_one_address_may_hold_only_so_many_connections() -> None:
    station = Station("tcp", "127.0.0.1")
    async with station.endpoint, asyncio.timeout(10):
        pairs = [await asyncio.open_connection("127.0.0.1", station.port) for _ in range(60)]
        pairs[0][1].write(OPTIONS % (1, 1))
        assert (await pairs[0][0].read(100)).startswith(b"SIP/2.0 200")
        assert await pairs[-1][0].read() == b""
        assert station.endpoint.connections <= 50
        for _, writer in pairs:
            writer.close()


@pytest.mark.parametrize("name", [*corpus.SERVED, *corpus.REFUSED])
async def test_a_torture_message_is_met_at_the_socket(name: str) -> None:
    station = Station("udp", "127.0.0.1")
    loop = asyncio.get_running_loop()
    async with station.endpoint, asyncio.timeout(10):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            client.bind(("127.0.0.1", 0))
            mine = client.getsockname()
            # The response goes to the port that Via names; with rport it comes back here.
            data = corpus.message(name).replace(b"192.0.2.", b"127.0.2.")
            await loop.sock_sendto(client, data, ("127.0.0.1", station.port))
            alive = (OPTIONS % (9, 9)).replace(b"TCP 127.0.0.1;", b"UDP 127.0.0.1:%d;" % mine[1])
            await loop.sock_sendto(client, alive, ("127.0.0.1", station.port))
            got = b""
            while b"CSeq: 9 OPTIONS" not in got:
                got = await loop.sock_recv(client, 65536)
            assert got.startswith(b"SIP/2.0 200 OK")
