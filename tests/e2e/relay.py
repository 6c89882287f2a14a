"""A real coturn for the end-to-end tests, run by `rejoinder turn`, and a TURN client that asks for what it is told."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aioice import stun
from aioice.stun import TransactionFailed
from aioice.turn import UDP_TRANSPORT, TurnClientUdpProtocol
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.e2e.support import ROOT
from turn.credentials import Credentials, mint

SECRET = "0123456789abcdef0123456789abcdef"
START_S = 60
LOOPBACK = "127.0.0.1"
RELAY_PORTS = 64
IPV6_FAMILY = 0x02000000
"""REQUESTED-ADDRESS-FAMILY, RFC 8656 section 18.6."""

ENTRY = (0x0017, "REQUESTED-ADDRESS-FAMILY", stun.pack_unsigned, stun.unpack_unsigned)
stun.ATTRIBUTES_BY_NAME[ENTRY[1]] = ENTRY
stun.ATTRIBUTES_BY_TYPE[ENTRY[0]] = ENTRY


@dataclass
class Relay:
    """A running `rejoinder turn`."""

    process: subprocess.Popen[str]
    port: int
    tls_port: int
    folder: Path
    env: dict[str, str]

    @property
    def urls(self) -> dict[str, str]:
        return {
            "UDP": f"turn:{LOOPBACK}:{self.port}?transport=udp",
            "TCP": f"turn:{LOOPBACK}:{self.port}?transport=tcp",
            "TLS": f"turns:{LOOPBACK}:{self.tls_port}?transport=tcp",
        }

    @property
    def coturn_pid(self) -> int:
        """The process that listens, whose parent is ours."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        (pid,) = children
        return int(pid)

    def line(self) -> dict[str, Any]:
        """What it announces next."""
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_S)
        line = self.process.stdout.readline() if readable else ""
        if not line:
            pytest.fail(f"rejoinder turn said nothing: {(self.folder / 'log').read_text()[-3000:]}")
        return dict(json.loads(line))

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


StartRelay = Callable[..., Relay]


def start_relay(folder: Path, *args: str, profile: str = "test", **settings: str) -> Relay:
    """Start one on ports that are free now; another program may be quicker, so it is tried again on others."""
    cert, key = certificate(folder)
    for _ in range(3):
        port, tls_port, low = free_ports()
        values = {
            "SECRET": SECRET,
            "FOLDER": str(folder),
            "LISTEN": LOOPBACK,
            "PORT": str(port),
            "TLS_PORT": str(tls_port),
            "CERT_FILE": str(cert),
            "KEY_FILE": str(key),
            "RELAY_PORT_MIN": str(low),
            "RELAY_PORT_MAX": str(low + RELAY_PORTS - 1),
            "TOTAL_QUOTA": str(RELAY_PORTS),
            **settings,
        }
        env = {**os.environ, "PYTHONPATH": str(ROOT), **{f"REJOINDER_TURN__{k}": v for k, v in values.items()}}
        process = subprocess.Popen(
            [sys.executable, "-m", "agent", "turn", "--profile", profile, "--json", *args],
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=(folder / "log").open("w"),
            text=True,
        )
        relay = Relay(process, port, tls_port, folder, env)
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], START_S)
        if readable and process.stdout.readline():
            return relay
        process.kill()
        process.wait()
    pytest.fail(f"rejoinder turn did not start: {(folder / 'log').read_text()[-3000:]}")


def free_ports() -> tuple[int, int, int]:
    """A port for UDP and TCP, one for TLS, and the first of `RELAY_PORTS` in a row."""
    for _ in range(50):
        with ExitStack() as stack:
            try:
                low = random.randrange(20_000, 32_000, RELAY_PORTS)
                for port in range(low, low + RELAY_PORTS + 2):
                    sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                    sock.bind((LOOPBACK, port))
                for port in (low + RELAY_PORTS, low + RELAY_PORTS + 1):
                    sock = stack.enter_context(socket.socket())
                    sock.bind((LOOPBACK, port))
            except OSError:
                continue
        return low + RELAY_PORTS, low + RELAY_PORTS + 1, low
    raise AssertionError("no free ports on loopback")


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that is its own authority: (certificate, key)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "relay.test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_file, key_file


def credentials(identity: str = "tester", *, secret: str = SECRET, age_s: float = 0.0) -> Credentials:
    """As the server mints them; `age_s` ago, for a minute."""
    return mint(secret, identity, now=time.time() - age_s, ttl_s=60)


class TurnClient:
    """An allocation over UDP, and requests about peers; an answer is its error code, 0 for success."""

    def __init__(self, protocol: TurnClientUdpProtocol) -> None:
        self.protocol = protocol
        self.relayed: tuple[str, int] = ("", 0)

    @classmethod
    async def allocate(cls, port: int, given: Credentials, *, ipv6: bool = False) -> TurnClient | int:
        """An allocation, or the error code of the refusal."""
        server = (LOOPBACK, port)
        _, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: TurnClientUdpProtocol(
                server, username=given.username, password=given.password, lifetime=600, channel_refresh_time=500
            ),
            remote_addr=server,
        )
        client = cls(protocol)
        attributes: dict[str, Any] = {"LIFETIME": 600, "REQUESTED-TRANSPORT": UDP_TRANSPORT}
        if ipv6:
            attributes["REQUESTED-ADDRESS-FAMILY"] = IPV6_FAMILY
        answer = await client.ask(stun.Method.ALLOCATE, **attributes)
        if isinstance(answer, int):
            protocol.transport.close()
            return answer
        client.relayed = answer.attributes["XOR-RELAYED-ADDRESS"]
        return client

    async def ask(self, method: stun.Method, **attributes: Any) -> stun.Message | int:
        request = stun.Message(method, stun.Class.REQUEST, attributes=dict(attributes))
        try:
            async with asyncio.timeout(10):
                answer, _ = await self.protocol.request_with_retry(request)
        except TransactionFailed as exc:
            return int(exc.response.attributes["ERROR-CODE"][0])
        return answer

    async def permission(self, host: str, port: int = 4000) -> int:
        answer = await self.ask(stun.Method.CREATE_PERMISSION, **{"XOR-PEER-ADDRESS": (host, port)})
        return answer if isinstance(answer, int) else 0

    async def channel(self, host: str, port: int = 4000) -> int:
        attributes = {"CHANNEL-NUMBER": 0x4001, "XOR-PEER-ADDRESS": (host, port)}
        answer = await self.ask(stun.Method.CHANNEL_BIND, **attributes)
        return answer if isinstance(answer, int) else 0

    def send(self, data: bytes, host: str, port: int) -> None:
        """A Send indication, which is answered by nothing."""
        message = stun.Message(stun.Method.SEND, stun.Class.INDICATION)
        message.attributes["XOR-PEER-ADDRESS"] = (host, port)
        message.attributes["DATA"] = data
        self.protocol.send_stun(message, self.protocol.server)

    async def refresh(self, lifetime_s: int) -> int:
        answer = await self.ask(stun.Method.REFRESH, LIFETIME=lifetime_s)
        return answer if isinstance(answer, int) else 0

    async def close(self) -> None:
        await self.refresh(0)
        self.protocol.transport.close()
