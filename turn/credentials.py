"""Short-lived credentials for a TURN server that knows a shared secret (draft-uberti-behave-turn-rest-00). Pure.

The user name is `expiry:identity`, expiry in Unix seconds; the password is the HMAC-SHA1 of it in base64. The server
needs no list of users: it makes the same HMAC. Identity is what its quotas count by.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field

__all__ = ["Credentials", "identity_of", "mint"]

IDENTITY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""No colon, which is the separator; nothing that a log or coturn's parser could misread."""

IDENTITY_HEX = 20
"""80 bits: no two sessions share a quota by chance."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client gives to its TURN client: user name, password (never logged), and when new allocations end."""

    username: str
    password: str = field(repr=False)
    expires_at: int
    """Unix time in seconds."""


def mint(secret: str, identity: str, *, now: float, ttl_s: int) -> Credentials:
    """Credentials for `identity`, good for new allocations until `ttl_s` seconds after `now` (Unix time).

    Raises ValueError: an empty secret, an identity that is not 1 to 64 letters, digits or `_.-`, no time to live.
    """
    if not secret:
        raise ValueError("secret: expected the one that the TURN server knows")
    if not IDENTITY.fullmatch(identity):
        raise ValueError(f"identity: expected 1 to 64 letters, digits or _.-, got {identity!r}")
    if ttl_s <= 0:
        raise ValueError(f"ttl_s: expected more than 0 seconds, got {ttl_s}")
    expires_at = int(now) + ttl_s
    username = f"{expires_at}:{identity}"
    # SHA-1 is the draft's; as a MAC over a name that the server reads back it is not weakened by collisions.
    digest = hmac.digest(secret.encode(), username.encode(), hashlib.sha1)
    return Credentials(username, base64.b64encode(digest).decode(), expires_at)


def identity_of(secret: str, session: str) -> str:
    """The one identity of a session, the same each time, that tells nothing about it.

    TURN sends user names in clear text, so a token's id or a caller's name must not be one.
    """
    return hmac.digest(secret.encode(), session.encode(), hashlib.sha256).hex()[:IDENTITY_HEX]
