"""Addresses of cores."""

from __future__ import annotations

import pytest

from agent.core.address import Transport, parse_core_address


@pytest.mark.parametrize(
    ("text", "transport", "target", "again", "leaves"),
    [
        ("shm:/run/r.sock", Transport.SHM, "unix:/run/r.sock", "shm:/run/r.sock", False),
        ("unix:/run/r.sock", Transport.GRPC_UNIX, "unix:/run/r.sock", "unix:/run/r.sock", False),
        ("grpc+unix:///run/r.sock", Transport.GRPC_UNIX, "unix:/run/r.sock", "unix:/run/r.sock", False),
        ("tcp://10.0.0.5:8090", Transport.GRPC_TCP, "10.0.0.5:8090", "tcp://10.0.0.5:8090", True),
        ("grpc+tcp://core.example:1", Transport.GRPC_TCP, "core.example:1", "tcp://core.example:1", True),
        ("tcp://[::1]:9", Transport.GRPC_TCP, "[::1]:9", "tcp://[::1]:9", False),
        ("tcp://127.0.0.9:9", Transport.GRPC_TCP, "127.0.0.9:9", "tcp://127.0.0.9:9", False),
        ("tcp://localhost:9", Transport.GRPC_TCP, "localhost:9", "tcp://localhost:9", False),
    ],
)
def test_an_address_is_understood(text: str, transport: Transport, target: str, again: str, leaves: bool) -> None:
    address = parse_core_address(text)
    assert (address.transport, address.target, str(address)) == (transport, target, again)
    assert address.leaves_machine is leaves


@pytest.mark.parametrize(
    "text",
    "|core|http://x:1|shm:|shm:r.sock|unix:./r|tcp://host|tcp://host:99999|tcp://:1|tcp:|inproc:x|tcp://u@h:1|tcp://h:1/p".split(
        "|"
    ),
)
def test_what_is_no_address_is_told_with_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match=r"shm:/PATH, unix:/PATH .* tcp://HOST:PORT"):
        parse_core_address(text)
