"""X-Twilio-Signature of a WebSocket handshake: HMAC-SHA1 of the address that Twilio was told, in base64. Pure.

The scheme is Twilio's (webhooks security, for a request without a body). It has no time in it, so an intercepted one
could be used again: it is only as good as the TLS in front of us.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

__all__ = ["sign", "signed"]


def sign(auth_token: str, url: str) -> str:
    """The header's value for `url`, such as `wss://agent.example/v1/twilio`."""
    digest = hmac.new(auth_token.encode(), url.encode(), hashlib.sha1).digest()
    return base64.b64encode(digest).decode()


def signed(auth_token: str, url: str, signature: str) -> bool:
    """Whether `signature` is this token's for `url`, with or without a slash at the end of its path."""
    path, mark, query = url.partition("?")
    other = path[:-1] if path.endswith("/") else path + "/"
    given = signature.encode("utf-8", "replace")
    # Both are always computed, so that the time taken tells nothing.
    fits = [hmac.compare_digest(sign(auth_token, p + mark + query).encode(), given) for p in (path, other)]
    return any(fits)
