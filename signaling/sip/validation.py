"""Whether a request that could be read can be served: what RFC 3261 section 8.2 has a server look at first. Pure."""

from __future__ import annotations

from signaling.sip.errors import SipError
from signaling.sip.message import Request

__all__ = ["ALLOW", "EXTENSIONS", "check_extensions", "check_request"]

ALLOW = ("INVITE", "ACK", "CANCEL", "BYE", "OPTIONS", "INFO", "UPDATE", "PRACK", "REFER", "NOTIFY")
"""Methods we serve, as in the Allow field."""
EXTENSIONS = ("100rel", "timer", "replaces", "norefersub")
"""Option tags we understand, as in the Supported field."""
MANDATORY = ("Via", "From", "To", "Call-ID", "CSeq")
"""Without Max-Forwards: senders of RFC 2543 have none."""
SINGLE = ("From", "To", "Call-ID", "CSeq", "Max-Forwards", "Content-Length", "Content-Type")


def check_request(request: Request) -> None:
    """Raises SipError with the status that refuses it."""
    for name in MANDATORY:
        if name not in request.headers:
            raise SipError(f"{name}: missing", field=name)
    for name in SINGLE:
        if len(request.headers.all(name)) > 1:
            raise SipError(f"{name}: given more than once", field=name)
    if request.method not in ALLOW:
        known = request.method in ("REGISTER", "SUBSCRIBE", "MESSAGE", "PUBLISH")
        # Whoever knows the method and does not allow it says 405; whoever does not know it, 501 (section 8.2.1).
        allow = (("Allow", ", ".join(ALLOW)),)
        raise SipError("method: not served", status=405 if known else 501, headers=allow)
    if request.uri.scheme not in ("sip", "sips", "tel"):
        raise SipError("request URI: sip, sips or tel was expected", status=416)


def check_extensions(request: Request, supported: frozenset[str]) -> None:
    """Raises SipError 420 naming what is required and not supported (RFC 3261 section 8.2.2.3).

    ACK and CANCEL are never refused for it.
    """
    if request.method in ("ACK", "CANCEL"):
        return
    unknown = sorted(request.headers.tokens("Require") - supported)
    if unknown:
        headers = (("Unsupported", ", ".join(unknown)),)
        raise SipError("Require: an extension we lack", status=420, field="Require", headers=headers)
