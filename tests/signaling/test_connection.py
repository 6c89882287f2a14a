import asyncio
import json
import logging

import pytest
from aiohttp import ClientConnectionResetError, web
from aiohttp.test_utils import make_mocked_request

from agent.observe.metrics import Metrics
from signaling.connection import DoorRunner
from signaling.problems import problems_middleware
from tests.signaling.conftest import Door


async def raw(door: Door, data: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer to bytes that need not be HTTP."""
    reader, writer = await asyncio.open_connection(door.client.host, door.client.port)
    writer.write(data)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


GARBAGE = {
    "no request line": b"hello there\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x7f" * 64 + b"\r\n\r\n",
    "long url": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "version": b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "long header": b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + b"x" * 20_000 + b"\r\n\r\n",
    "markup": b"GET /<script> HTTP/1.1\r\nHost localhost\r\n\r\n",
}


@pytest.mark.parametrize("what", GARBAGE)
async def test_what_is_no_http_gets_a_short_problem_and_one_line_in_the_log(
    door: Door, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    with caplog.at_level(logging.INFO):
        head, body = await raw(door, GARBAGE[what])
    lines = head.decode().lower().split("\r\n")
    assert " 400 " in lines[0]
    assert "content-type: application/problem+json" in lines
    assert not any(line.startswith("server:") for line in lines)
    assert "x-content-type-options: nosniff" in lines
    assert json.loads(body)["code"] == "bad_request"
    assert len(body) < 300
    # `serve` keeps no access log, the test server does.
    (record,) = [record for record in caplog.records if record.name != "aiohttp.access"]
    assert record.levelno == logging.INFO
    assert record.exc_info is None


async def test_a_long_line_is_named_as_one(door: Door) -> None:
    _, body = await raw(door, GARBAGE["long header"])
    assert json.loads(body)["detail"] == "the request line or a header is longer than 8190 bytes"


@pytest.mark.parametrize("path", ["/healthz", "/", "/nothing", "/v1/stream"])
async def test_no_answer_names_the_servers_versions(door: Door, path: str) -> None:
    response = await door.client.get(path)
    assert "Server" not in response.headers


async def test_the_upgrade_names_no_versions_either(door: Door) -> None:
    ws = await door.client.ws_connect("/v1/stream", params={"token": door.token()})
    assert "Server" not in ws._response.headers
    await ws.close()


async def leaves(_request: web.Request) -> web.StreamResponse:
    raise ClientConnectionResetError("Cannot write to closing transport")


async def test_a_client_that_left_is_no_failure_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    request = make_mocked_request("GET", "/v1/stream")
    request.transport.is_closing.return_value = True  # type: ignore[union-attr]
    with caplog.at_level(logging.INFO):
        await problems_middleware(metrics)(request, leaves)
    assert caplog.records == []
    assert metrics.value("voice_errors_total", part="signaling", type="ClientConnectionResetError") == 0


async def test_a_connection_that_breaks_elsewhere_is_one(caplog: pytest.LogCaptureFixture) -> None:
    request = make_mocked_request("GET", "/v1/stream")
    request.transport.is_closing.return_value = False  # type: ignore[union-attr]
    response = await problems_middleware(Metrics())(request, leaves)
    assert response.status == 500
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize("cut", [1, 40, 10_000])
async def test_aborted_handshakes_leave_no_errors_in_the_log(
    door: Door, caplog: pytest.LogCaptureFixture, cut: int
) -> None:
    head = (
        f"GET /v1/stream?rate=16000&token={door.token()} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()
    with caplog.at_level(logging.INFO):
        for _ in range(10):
            _, writer = await asyncio.open_connection(door.client.host, door.client.port)
            writer.write(head[:cut])
            await writer.drain()
            writer.transport.abort()
        assert (await door.client.get("/healthz")).status == 200
        async with asyncio.timeout(10):
            for call in door.agent.started:
                await call.wait_ended()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_body_that_is_not_packed_as_it_says_is_the_clients_fault(
    door: Door, caplog: pytest.LogCaptureFixture, encoding: str
) -> None:
    head = f"Authorization: Bearer {door.token()}\r\nContent-Type: application/json\r\nContent-Encoding: {encoding}\r\n"
    request = f"POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n{head}Connection: close\r\nContent-Length: 5\r\n\r\nhello"
    answer, body = await raw(door, request.encode())
    assert b" 400 " in answer.splitlines()[0]
    assert json.loads(body)["field"] == "body"
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: loc"])
async def test_a_connection_without_a_request_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signaling.connection.IDLE_S", 0.1)
    runner = DoorRunner(web.Application())
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        reader, writer = await asyncio.open_connection(*runner.addresses[0][:2])
        writer.write(sent)
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
    finally:
        await runner.cleanup()
