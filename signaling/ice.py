"""ICE servers: what a client is told about relays, and what this server uses itself.

Credentials are made for whoever shows a token, and end soon (`turn.ttl_s`, or with the token). Quotas at the relay
count by token: however often it is asked with, it stays one user.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import hdrs, web
from pydantic import SecretStr

from agent.config import MediaSettings, TurnSettings
from signaling.guards import bearer_token
from signaling.problems import HttpFault
from signaling.tokens import Claims, Verifier
from turn.credentials import identity_of, mint

__all__ = ["IceServers"]

MIN_TTL_S = 30
"""A token that is about to end still sets a call up."""


class IceServers:
    """The servers of `[turn]`, as `RTCIceServer` dictionaries.

    Args:
        clock: Unix time in seconds: a relay reads the expiry by its own calendar clock.
    """

    def __init__(self, settings: TurnSettings, *, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._secret = settings.secret.get_secret_value() if settings.secret is not None else None
        self._clock = clock

    def grant(self, claims: Claims) -> dict[str, Any]:
        """`ice_servers` (W3C WebRTC, section 4.2.4) for one token, and `expires_in_s`: when to ask again."""
        now = self._clock()
        ttl_s = max(MIN_TTL_S, min(self._settings.ttl_s, claims.expires_at - int(now)))
        servers: list[dict[str, Any]] = []
        plain = [url for url in self._settings.urls if url.startswith("stun:")]
        relays = [url for url in self._settings.urls if not url.startswith("stun:")]
        if plain:
            servers.append({"urls": plain})
        if relays:
            assert self._secret is not None  # the settings tree refuses relays without one
            identity = identity_of(self._secret, f"token:{claims.subject}:{claims.token_id}")
            credentials = mint(self._secret, identity, now=now, ttl_s=ttl_s)
            servers.append({"urls": relays, "username": credentials.username, "credential": credentials.password})
        return {"ice_servers": servers, "expires_in_s": ttl_s}

    def for_answer(self, claims: Claims) -> dict[str, Any]:
        """What the answer to an offer says of them; nothing where there are none."""
        if not self._settings.urls:
            return {}
        granted = self.grant(claims)
        return {"ice_servers": granted["ice_servers"], "ice_expires_in_s": granted["expires_in_s"]}

    def own(self, media: MediaSettings, call_id: str) -> MediaSettings:
        """The media settings of one call, with credentials of its own for `media.turn_server` where none are set."""
        if media.turn_server is None or media.turn_username is not None or self._secret is None:
            return media
        # A call's own, since a quota that all calls shared would end at a handful of them.
        identity = identity_of(self._secret, f"call:{call_id}")
        credentials = mint(self._secret, identity, now=self._clock(), ttl_s=self._settings.ttl_s)
        return media.model_copy(
            update={"turn_username": credentials.username, "turn_password": SecretStr(credentials.password)}
        )

    def handler(self, verifier: Verifier) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """GET /v1/ice: the servers, before there is a call."""

        async def handle(request: web.Request) -> web.StreamResponse:
            claims = verifier.verify(bearer_token(request))
            if not (claims.allows("browser") or claims.allows("widget")):
                raise HttpFault(403, "channel_not_allowed", "the token opens no channel over WebRTC", field="channel")
            return web.json_response(self.grant(claims), headers={hdrs.CACHE_CONTROL: "no-store"})

        return handle
