"""gRPC: certificates, a host that is dead without a word, health."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agent.core.grpclink import GrpcServer, connect_grpc
from agent.core.health import Serving, decode_request, decode_response
from agent.core.link import Link
from agent.core.messages import Hello
from agent.core.tls import TlsFiles
from agent.errors import ConfigError, CoreLost

DEADLINE_S = 20.0


class Authority:
    """Makes certificates in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(self._sign(self._name, self._key, ca=True).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        paths = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        paths[0].write_bytes(self._sign(subject, key, ca=False).public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return paths

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("core.test")]
                ),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "theirs")


class Accepting:
    """Greets whoever comes."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.lost: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def __call__(self, link: Link) -> None:
        self.links.append(link)
        self.tasks.append(asyncio.create_task(self._welcome(link)))

    async def _welcome(self, link: Link) -> None:
        with suppress(CoreLost):
            await link.welcome(Hello("core"), DEADLINE_S)
            link.start(lambda batch: [link.send(message) for message in batch] and None, self.lost.append)


async def greeted(server: GrpcServer, tls: TlsFiles | None) -> str:
    link = await connect_grpc(f"127.0.0.1:{server.port}", tls=tls)
    try:
        return (await link.greet(Hello("edge"), DEADLINE_S)).name
    finally:
        await link.close()


async def test_an_edge_knows_its_core_by_certificate(ours: Authority, theirs: Authority) -> None:
    certificate, key = ours.issue("core")
    tls = TlsFiles(certificate=certificate, key=key)
    async with GrpcServer("127.0.0.1:0", Accepting(), lambda _: True, tls=tls) as server:
        assert await greeted(server, TlsFiles(ca=ours.ca)) == "core"
        assert await greeted(server, TlsFiles(ca=ours.ca, server_name="core.test")) == "core"
        for wrong in (TlsFiles(ca=theirs.ca), TlsFiles(ca=ours.ca, server_name="other.test"), None):
            with pytest.raises(CoreLost):
                await greeted(server, wrong)


async def test_a_core_with_a_ca_takes_only_edges_that_it_signed(ours: Authority, theirs: Authority) -> None:
    certificate, key = ours.issue("core")
    edge, edge_key = ours.issue("edge")
    other, other_key = theirs.issue("other")
    tls = TlsFiles(ours.ca, certificate, key)
    async with GrpcServer("127.0.0.1:0", Accepting(), lambda _: True, tls=tls) as server:
        assert await greeted(server, TlsFiles(ours.ca, edge, edge_key)) == "core"
        for wrong in (TlsFiles(ca=ours.ca), TlsFiles(ours.ca, other, other_key)):
            with pytest.raises(CoreLost):
                await greeted(server, wrong)


@pytest.mark.parametrize(
    ("make", "core", "says"),
    [
        (lambda a: TlsFiles(ca=a.ca), True, "core.tls_certificate: a core"),
        (lambda a: TlsFiles(certificate=a.issue("x")[0]), True, "set together"),
        (lambda a: TlsFiles(certificate=a.issue("x")[0], key=a.issue("y")[1]), True, "does not fit"),
        (lambda a: TlsFiles(certificate=a.issue("x")[0], key=a.folder / "no"), True, "core.tls_key: cannot read"),
        (lambda a: TlsFiles(a.issue("x")[1], *a.issue("x")), True, "core.tls_ca: holds no certificate"),
        (lambda a: TlsFiles(None, *a.issue("x")), False, "core.tls_ca: needed"),
    ],
)
def test_unusable_certificates_are_one_line(
    make: Callable[[Authority], TlsFiles], core: bool, says: str, ours: Authority
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        make(ours).read(core=core)
    assert "\n" not in str(caught.value)


async def test_a_host_that_is_dead_without_a_word_is_noticed_by_both() -> None:
    """A wire that is cut: nothing is closed, nothing comes. Heartbeats of our own would take a minute here."""
    accepting = Accepting()
    cut = asyncio.Event()
    pumps: list[asyncio.Task[None]] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not cut.is_set():
                writer.write(data)

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", server.port)
        pumps.append(asyncio.create_task(pump(reader, up_writer)))
        pumps.append(asyncio.create_task(pump(up_reader, writer)))

    async with GrpcServer("127.0.0.1:0", accepting, lambda _: True, silence_s=60) as server:
        wire = await asyncio.start_server(join, "127.0.0.1", 0)
        link = await connect_grpc(f"127.0.0.1:{wire.sockets[0].getsockname()[1]}", silence_s=60)
        await link.greet(Hello("edge"), DEADLINE_S)
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        link.start(lambda _: None, lost.set_result)
        cut.set()
        reason = await asyncio.wait_for(lost, DEADLINE_S)
        assert "UNAVAILABLE" in reason
        await link.close()
        await noticed(accepting)
        await accepting.links[0].close()
        wire.close()
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def noticed(accepting: Accepting) -> None:
    for _ in range(400):
        if accepting.lost:
            return
        await asyncio.sleep(0.05)
    pytest.fail("the core did not notice")


async def test_a_batch_beyond_the_limit_is_not_taken() -> None:
    async with (
        GrpcServer("127.0.0.1:0", Accepting(), lambda _: True) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        call = channel.stream_stream("/rejoinder.core.v1.Core/Link")(timeout=DEADLINE_S)
        await call.write(bytes(2 * 1024 * 1024))
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_health_is_told_as_grpc_asks_for_it() -> None:
    known = {"": True, "asr:en": True, "tts:heart": False}
    async with (
        GrpcServer("127.0.0.1:0", Accepting(), known.get) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert decode_response(await check(b"", timeout=DEADLINE_S)) is Serving.SERVING
        assert decode_response(await check(b"\x0a\x06asr:en", timeout=DEADLINE_S)) is Serving.SERVING
        assert decode_response(await check(b"\x0a\x09tts:heart", timeout=DEADLINE_S)) is Serving.NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await check(b"\x0a\x06asr:de", timeout=DEADLINE_S)
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.aio.AioRpcError) as wrong:
            await check(b"\xff\xff", timeout=DEADLINE_S)
        assert wrong.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_health_request_of_another_shape_is_an_error() -> None:
    assert decode_request(b"") == ""
    for data in (b"\x0a", b"\x0a\x05abc", b"\x12\x01a", b"\x0a\xff\x01"):
        with pytest.raises(ValueError, match="HealthCheckRequest"):
            decode_request(data)
