"""Who may call us from a web page: Origin (RFC 6454) and Host checks. Pure decisions; the middleware is in `guards`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from agent.errors import ConfigError

__all__ = ["OriginPolicy", "is_loopback"]

_HOST = re.compile(r"[a-z0-9._:-]+", re.IGNORECASE)

_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    """True for `localhost` and the addresses that never leave the machine (127/8, ::1)."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _parse_origin(origin: str) -> tuple[str, str, int] | None:
    """(scheme, host, port) of a serialised origin, or None: opaque (`null`), malformed, or not http(s)."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _DEFAULT_PORTS or not _HOST.fullmatch(parts.hostname or ""):
        return None
    if parts.path or parts.query or parts.fragment or parts.username is not None or parts.password is not None:
        return None
    return parts.scheme, str(parts.hostname).lower(), port if port is not None else _DEFAULT_PORTS[parts.scheme]


def _parse_host(host: str, scheme: str) -> tuple[str, int] | None:
    parsed = _parse_origin(f"{scheme}://{host}")
    return None if parsed is None else parsed[1:]


class OriginPolicy:
    """Our own page, and the origins named in `server.origins`.

    Args:
        origins: `https://shop.example` forms.
        bind_host: what the server listens on; on a loopback address the Host header is checked as well.

    Raises:
        ConfigError: an entry is `*` or no origin.
    """

    def __init__(self, origins: Iterable[str], *, bind_host: str) -> None:
        self._allowed: set[tuple[str, str, int]] = set()
        for origin in origins:
            parsed = _parse_origin(origin.rstrip("/"))
            if parsed is None:
                raise ConfigError(
                    f"server.origins: expected origins such as https://shop.example, got {origin!r}"
                    + ("; name each origin instead of *" if "*" in origin else "")
                )
            self._allowed.add(parsed)
        self._checks_host = is_loopback(bind_host)
        self._bind_host = bind_host.strip("[]").lower()

    def knows_host(self, host: str | None) -> bool:
        """False for a Host header that a loopback server cannot have: the mark of DNS rebinding.

        A page of the attacker whose name was made to resolve to 127.0.0.1 still sends its own name as Host.
        """
        if not self._checks_host:
            return True
        parsed = _parse_host(host or "", "http")
        if parsed is None:
            return False
        name = parsed[0]
        return is_loopback(name) or name == self._bind_host or any(name == entry[1] for entry in self._allowed)

    def allows(self, origin: str, host: str | None) -> bool:
        """True for our own origin (the one that `host` names) and for those configured. `null` never passes."""
        parsed = _parse_origin(origin)
        if parsed is None:
            return False
        if parsed in self._allowed:
            return True
        # The scheme is left out: behind a TLS-terminating proxy we cannot tell it, and the host decides.
        return host is not None and _parse_host(host, parsed[0]) == parsed[1:]
