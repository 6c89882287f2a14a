"""Asking a hook that lives behind HTTP: one POST, its answer read line by line within bounds and deadlines.

Not for the meaning of the answer: http.py and openai_chat.py read that.
"""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from agent.errors import ConfigError, HookError, HookTimeout

__all__ = ["RemoteAnswer", "RemoteHook", "SurrogateJoiner", "check_url", "decode_json"]

CONNECT_TIMEOUT_S = 3.0
"""A host that does not accept within this is down; the caller should hear the apology soon."""
MAX_LINE_BYTES = 64 * 1024
"""Longest line of a stream."""
MAX_ANSWER_BYTES = 1024 * 1024
"""Longest answer; about an hour of speech."""
MAX_CONNECTIONS = 256
"""Connections to one hook at once; more calls than this wait for one, within the connect timeout."""
MAX_ERROR_BYTES = 4096


def check_url(url: str, setting: str = "nlu.target") -> str:
    """Return `url` if it can be asked.

    Raises:
        ConfigError: it is not http or https, has no host, or carries a user and password.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:
        usable = False
    if not usable or any(char.isspace() for char in url):
        raise ConfigError(f"{setting}: expected an http:// or https:// address, got {url!r}")
    if parts.username or parts.password:
        raise ConfigError(f"{setting}: put the key in REJOINDER_NLU__API_KEY, not into the address")
    return url


def decode_json(raw: bytes | str, where: str) -> Any:
    """Decode JSON.

    Raises:
        HookError: it is not JSON in UTF-8; NaN and Infinity are not JSON.
    """
    try:
        return json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        reason = exc.msg if isinstance(exc, json.JSONDecodeError) else type(exc).__name__
        raise HookError(f"{where}: not JSON ({reason})") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


class SurrogateJoiner:
    """Joins a character that two JSON strings split between its surrogate halves."""

    def __init__(self) -> None:
        self._high = ""

    def feed(self, text: str) -> str:
        """Return `text`, its last character held back while that is half of one."""
        text = self._high + text
        self._high = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        if self._high:
            text = text[:-1]
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class RemoteAnswer:
    """An answer with status 200, read once by one of `text`, `lines`, `events` or `body`.

    Each raises HookTimeout when nothing comes for the timeout, HookError when bounds are exceeded, the text is not
    UTF-8, or the connection breaks.
    """

    def __init__(self, response: aiohttp.ClientResponse, timeout_s: float) -> None:
        self._response = response
        self._timeout_s = timeout_s
        self.status = response.status
        self.content_type = response.headers.get("Content-Type", "").split(";")[0].strip().lower()
        """Media type without parameters; empty when the header is absent."""

    async def text(self) -> AsyncGenerator[str, None]:
        """Text as it arrives; a character split between two chunks comes whole."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                if piece := _utf8(decoder, chunk, final=False):
                    yield piece
        _utf8(decoder, b"", final=True)

    async def lines(self) -> AsyncGenerator[str, None]:
        """Lines without their ends (LF or CRLF), the unfinished last one included; empty lines too."""
        rest = bytearray()
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                rest += chunk
                *whole, last = rest.split(b"\n")
                rest = bytearray(last)
                for line in whole:
                    yield _line(line)
                if len(rest) > MAX_LINE_BYTES:
                    raise HookError(f"the hook's answer has a line of more than {MAX_LINE_BYTES} bytes")
        if rest:
            yield _line(rest)

    async def events(self) -> AsyncGenerator[tuple[str, str], None]:
        """Server-sent events as (event name, data); comments and other fields are skipped (WHATWG HTML, 9.2.6)."""
        name, size = "message", 0
        data: list[str] = []
        async with aclosing(self.lines()) as lines:
            async for line in lines:
                if not line:
                    if data:
                        yield name, "\n".join(data)
                    name, data, size = "message", [], 0
                    continue
                field, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if field == "data":
                    data.append(value)
                    size += len(value)
                    if size > MAX_LINE_BYTES:
                        raise HookError(f"the hook's answer has an event of more than {MAX_LINE_BYTES} bytes")
                elif field == "event":
                    name = value
        if data:  # an end without the closing empty line is common and unambiguous
            yield name, "\n".join(data)

    async def body(self) -> bytes:
        """All of it."""
        return b"".join([chunk async for chunk in self._chunks()])

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        total = 0
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    chunk = await self._response.content.readany()
            except TimeoutError:
                raise HookTimeout(f"the hook sent nothing for {self._timeout_s:g} s") from None
            except (aiohttp.ClientError, OSError, ValueError) as exc:
                raise HookError(f"the hook's answer broke off: {type(exc).__name__}") from exc
            if not chunk:
                return
            total += len(chunk)
            if total > MAX_ANSWER_BYTES:
                raise HookError(f"the hook's answer is longer than {MAX_ANSWER_BYTES} bytes")
            yield chunk


class RemoteHook:
    """One HTTP client for all calls of an adapter: shared connections, no cookies, no redirects, no proxies."""

    def __init__(self, url: str, *, api_key: str | None, timeout_s: float) -> None:
        self._url = check_url(url)
        self._timeout_s = timeout_s
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    @asynccontextmanager
    async def post(self, body: Mapping[str, Any], accept: str) -> AsyncIterator[RemoteAnswer]:
        """Send `body` as JSON. Leaving the block before the end of the answer aborts the request.

        Raises:
            HookTimeout: no connection in 3 s, or no answer in the timeout.
            HookError: no connection, or a status other than 200 or 204.
        """
        try:
            data = json.dumps(body, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as exc:
            raise HookError(f"the turn cannot be sent: session.state or data is not JSON ({exc})") from None
        headers = {"Accept": accept, "Accept-Encoding": "identity", "Content-Type": "application/json"}
        session = self._open()
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await session.post(self._url, data=data, headers=headers, allow_redirects=False)
        except aiohttp.ConnectionTimeoutError as exc:
            raise HookTimeout(f"the hook at {self._host} did not accept a connection") from exc
        except TimeoutError:
            raise HookTimeout(f"the hook at {self._host} did not answer in {self._timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError, RuntimeError) as exc:
            raise HookError(f"the hook at {self._host} cannot be asked: {type(exc).__name__}") from exc
        try:
            if response.status not in (200, 204):
                raise HookError(await self._refusal(response))
            yield RemoteAnswer(response, self._timeout_s)
        finally:
            if not response.content.at_eof():
                response.close()  # `release` could keep reading what nobody wants
            response.release()

    async def close(self) -> None:
        """Close all connections. Idempotent; later posts raise HookError."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @property
    def _host(self) -> str:
        return urlsplit(self._url).netloc

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise HookError("the hook's adapter is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),  # a cookie would join one caller's session to another's
                timeout=aiohttp.ClientTimeout(total=None, connect=min(CONNECT_TIMEOUT_S, self._timeout_s)),
                headers=self._headers,
            )
        return self._session

    async def _refusal(self, response: aiohttp.ClientResponse) -> str:
        what = f"the hook at {self._host} answered with status {response.status}"
        if 300 <= response.status < 400:
            return f"{what}: redirects are not followed; configure the final address"
        try:
            async with asyncio.timeout(1.0):
                document = json.loads(await response.content.read(MAX_ERROR_BYTES))
            error = document.get("error", document) if isinstance(document, dict) else document
            code = next((error[key] for key in ("code", "type") if isinstance(error.get(key), str)), None)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError, AttributeError, RecursionError):
            return what
        # Only the code: messages of such errors quote keys and callers.
        return f"{what} ({code[:80]})" if code else what


def _utf8(decoder: codecs.IncrementalDecoder, raw: bytes, *, final: bool) -> str:
    try:
        return decoder.decode(raw, final)
    except UnicodeDecodeError:
        raise HookError("the hook's answer is not UTF-8") from None


def _line(raw: bytes | bytearray) -> str:
    if len(raw) > MAX_LINE_BYTES:
        raise HookError(f"the hook's answer has a line of more than {MAX_LINE_BYTES} bytes")
    try:
        return raw.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError:
        raise HookError("the hook's answer is not UTF-8") from None
