"""What the supervisor tells a worker about a caller it has checked: claims and the call's id, in request headers.

The worker believes them: its socket lies in a folder that only this user can enter, and the supervisor builds each
request anew, so that nothing a client writes gets here.
"""

from __future__ import annotations

import base64
import json

from aiohttp import hdrs, web

from signaling.tokens import Claims, Unauthorized

__all__ = ["CALL_HEADER", "PassportVerifier", "call_id_of", "passport_headers"]

CALL_HEADER = "X-Rejoinder-Call"


def passport_headers(claims: Claims, call_id: str) -> dict[str, str]:
    """The headers of a request to a worker."""
    # None opens all channels and an empty set none: the two stay apart.
    channels = None if claims.channels is None else sorted(claims.channels)
    text = json.dumps({"sub": claims.subject, "channels": channels, "jti": claims.token_id, "exp": claims.expires_at})
    return {
        hdrs.AUTHORIZATION: f"Bearer {base64.urlsafe_b64encode(text.encode()).decode()}",
        CALL_HEADER: call_id,
    }


def call_id_of(request: web.Request) -> str:
    """The id that the supervisor gave this call."""
    return request.headers[CALL_HEADER]


class PassportVerifier:
    """Stands in for the token verifier in a worker."""

    def verify(self, token: str) -> Claims:
        """The claims that the supervisor passed on. How many calls a subject may have is counted there.

        Raises Unauthorized when it is none.
        """
        try:
            fields = json.loads(base64.urlsafe_b64decode(token))
            channels: list[str] | None = fields["channels"]
            subject: str = fields["sub"]
            token_id: str = fields["jti"]
            expires_at: int = fields["exp"]
        except (ValueError, KeyError, TypeError) as exc:
            raise Unauthorized("this socket is the supervisor's") from exc
        return Claims(
            subject=subject,
            expires_at=expires_at,
            token_id=token_id,
            max_calls=None,
            channels=None if channels is None else frozenset(channels),
        )
