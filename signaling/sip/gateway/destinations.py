"""Where calls and transfers may go: numbers, SIP URIs and names, against the allow-list. Pure.

A premium number that a tricked hook dials costs money, so nothing is allowed that is not named.
"""

from __future__ import annotations

import fnmatch
import re

from agent.config import SipSettings
from agent.errors import ConfigError, ProtocolError
from signaling.sip.errors import SipError
from signaling.sip.peer import DEFAULT_PORTS, Peer, TransportName
from signaling.sip.uri import Uri, parse_uri

__all__ = ["Destinations", "parsed_uri", "proxy_of"]

MAX_CHARS = 256
SPACING = re.compile(r"[\s().\-/]")
NUMBER = re.compile(r"\+?[0-9*#]{1,32}")
"""After spacing is taken out; ITU-T E.164 has 15 digits, star codes and extensions come on top."""
EXPECTED = "expected a number, a SIP URI such as sip:200@pbx.example, or a name of sip.destinations"


class Destinations:
    """What may be called.

    Raises ConfigError when a name of `sip.destinations` means nothing, or `sip.proxy` or `sip.number_domain` is wrong.
    """

    def __init__(self, settings: SipSettings) -> None:
        self._patterns = settings.dial
        self._numbers_at = _host_port(settings.number_domain)
        if self._numbers_at is None and settings.proxy is not None:
            self._numbers_at = _host_port(parsed_uri(settings.proxy, "sip.proxy").host_port)
        try:
            self._named = {name: self._uri(text, None) for name, text in settings.destinations.items()}
        except ProtocolError as exc:
            raise ConfigError(f"sip.destinations: {exc}") from exc

    def find(self, text: str, *, numbers_at: tuple[str, int | None] | None = None) -> Uri:
        """The URI to call.

        Args:
            text: a number as people write it, a SIP URI or a name.
            numbers_at: host and port for numbers when the settings say none: of a transfer, the peer's.

        Raises ProtocolError: 403 in `code` when it is not allowed, else it cannot be read.
        """
        if text in self._named:
            return self._named[text]
        uri = self._uri(text, numbers_at)
        written = SPACING.sub("", text) if not text.lower().startswith("sip") else f"{uri.scheme}:{text_of(uri)}"
        if not any(fnmatch.fnmatchcase(written, pattern) for pattern in self._patterns):
            raise ProtocolError("to: sip.dial does not allow this destination", field="to", code="403")
        return uri

    def _uri(self, text: str, numbers_at: tuple[str, int | None] | None) -> Uri:
        if not 0 < len(text) <= MAX_CHARS:
            raise ProtocolError(f"to: {EXPECTED}", field="to")
        if text.lower().startswith(("sip:", "sips:")):
            try:
                uri = parse_uri(text, "to")
            except SipError as exc:
                raise ProtocolError(f"to: {EXPECTED}", field="to") from exc
            if uri.headers or uri.password is not None or not uri.host:
                raise ProtocolError("to: a SIP URI without password and headers was expected", field="to")
            return uri
        number = SPACING.sub("", text)
        if not NUMBER.fullmatch(number):
            raise ProtocolError(f"to: {EXPECTED}", field="to")
        host = self._numbers_at or numbers_at
        if host is None:
            raise ProtocolError("to: numbers need sip.number_domain or sip.proxy", field="to")
        return Uri.sip(number, *host)


def text_of(uri: Uri) -> str:
    """User and host as patterns see them."""
    return f"{uri.user_text}@{uri.host.lower()}"


def proxy_of(settings: SipSettings) -> Peer | None:
    """The first hop, if one is set. Raises ConfigError."""
    if settings.proxy is None:
        return None
    uri = parsed_uri(settings.proxy, "sip.proxy")
    transport: TransportName = "tls" if uri.transport == "tls" else "tcp" if uri.transport == "tcp" else "udp"
    return Peer(transport, uri.host, uri.port or DEFAULT_PORTS[transport])


def _host_port(text: str | None) -> tuple[str, int | None] | None:
    if text is None:
        return None
    uri = parsed_uri(f"sip:{text}", "sip.number_domain")
    return uri.host, uri.port


def parsed_uri(text: str, setting: str) -> Uri:
    """A SIP URI of the settings. Raises ConfigError, naming the setting."""
    try:
        uri = parse_uri(text, setting)
    except SipError as exc:
        raise ConfigError(f"{setting}: expected a SIP URI such as sip:proxy.example:5060;transport=tcp") from exc
    if not uri.is_sip or not uri.host:
        raise ConfigError(f"{setting}: expected a SIP URI such as sip:proxy.example:5060;transport=tcp")
    return uri
