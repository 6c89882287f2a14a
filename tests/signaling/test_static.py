import asyncio

import pytest

from signaling.static import find_web_root
from tests.signaling.conftest import Door


async def test_the_page_and_its_modules_are_served_with_their_types(door: Door) -> None:
    page = await door.client.get("/")
    assert page.status == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<title>call</title>" in await page.text()
    module = await door.client.get("/web/js/app.js")
    assert module.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert (await door.client.get("/web/index.html")).status == 200


async def test_pages_carry_the_security_headers(door: Door) -> None:
    for path in ("/", "/web/js/app.js", "/healthz", "/nothing"):
        response = await door.client.get(path)
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "connect-src 'self'" in policy
        assert "unsafe" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Referrer-Policy"] == "no-referrer"
        assert "microphone=(self)" in response.headers["Permissions-Policy"]


async def test_a_known_file_is_not_sent_again(door: Door) -> None:
    first = await door.client.get("/web/js/app.js")
    assert first.headers["Cache-Control"] == "no-cache"
    again = await door.client.get("/web/js/app.js", headers={"If-None-Match": first.headers["ETag"]})
    assert again.status == 304


@pytest.mark.parametrize(
    "path",
    [
        "/web/../outside.html",
        "/web/%2e%2e/outside.html",
        "/web/..%2foutside.html",
        "/web/js/../../outside.html",
        "/web/js/%2e%2e/%2e%2e/outside.html",
        "/web/..%5coutside.html",
        "/web//etc/passwd",
        "/web/%2fetc%2fpasswd",
        "/web/link.html",
        "/web/.env",
        "/web/__init__.py",
        "/web/js",
        "/web/js/",
        "/web/",
        "/web/index.html%00.js",
        "/web/" + "a" * 5000 + ".js",
        "/web/none.html",
    ],
)
async def test_nothing_outside_the_folder_or_hidden_is_served(door: Door, path: str) -> None:
    """Over a bare socket, since clients tidy such paths up before they send them."""
    reader, writer = await asyncio.open_connection(door.client.host, door.client.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    assert answer.split(b" ", 2)[1] == b"404"
    assert b"outside" not in answer.partition(b"\r\n\r\n")[2]


def test_the_call_page_is_found_in_a_checkout() -> None:
    assert (find_web_root() / "index.html").is_file()
