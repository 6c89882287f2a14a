"""Every relay that callers or this server use, tried one after another: what `rejoinder doctor --turn` prints."""

from __future__ import annotations

import asyncio
import time

from agent.config import Settings
from agent.media.addresses import parse_server
from turn.credentials import Credentials, identity_of, mint
from turn.probe import Finding, peers_of, probe

__all__ = ["check_relays"]

TTL_S = 60
"""Longer than any check takes."""


def check_relays(settings: Settings) -> list[tuple[str, Finding]]:
    """(URL, what became of it) of each TURN URL in `turn.urls`, then of `media.turn_server`."""
    return asyncio.run(_check(settings))


async def _check(settings: Settings) -> list[tuple[str, Finding]]:
    peers = peers_of(settings.media)
    found = []
    for url in dict.fromkeys(url for url in settings.turn.urls if not url.startswith("stun:")):
        credentials = _minted(settings)
        found.append((url, await probe(parse_server(url, turn=True), credentials, peers, settings.media)))
    own = settings.media.turn_server
    if own is not None and own not in settings.turn.urls:
        credentials = _own(settings)
        found.append((own, await probe(parse_server(own, turn=True), credentials, peers, settings.media)))
    return found


def _minted(settings: Settings) -> Credentials:
    assert settings.turn.secret is not None  # the settings tree refuses relays without one
    secret = settings.turn.secret.get_secret_value()
    return mint(secret, identity_of(secret, "doctor"), now=time.time(), ttl_s=TTL_S)


def _own(settings: Settings) -> Credentials:
    media = settings.media
    if media.turn_username is not None and media.turn_password is not None:
        return Credentials(media.turn_username, media.turn_password.get_secret_value(), 0)
    if settings.turn.secret is not None:
        return _minted(settings)
    return Credentials("", "", 0)
