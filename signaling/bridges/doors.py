"""The bridges that the settings open, added to the application."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web

from signaling.bridges.asterisk import AsteriskDoor
from signaling.bridges.audiosocket import AudioSocketDoor
from signaling.bridges.twilio import TwilioDoor
from signaling.stream_host import StreamHost
from signaling.tokens import Verifier

__all__ = ["AUDIOSOCKET", "add_bridges"]

AUDIOSOCKET = web.AppKey("audiosocket", AudioSocketDoor)
"""The door of an application that has one."""


def add_bridges(app: web.Application, host: StreamHost, verifier: Verifier) -> None:
    """Add what `bridges` in the settings names; nothing by default."""
    settings = host.agent.settings.bridges
    if settings.twilio_auth_token is not None:
        twilio = TwilioDoor(host, settings.twilio_auth_token.get_secret_value())
        app.router.add_get("/v1/twilio", twilio.handle, allow_head=False)
    if settings.asterisk:
        app.router.add_get("/v1/asterisk", AsteriskDoor(host, verifier).handle, allow_head=False)
    if settings.audiosocket_port is not None:
        app[AUDIOSOCKET] = audiosocket = AudioSocketDoor(host, verifier)
        app.router.add_post("/v1/audiosocket", audiosocket.announce)

        async def listening(_app: web.Application) -> AsyncIterator[None]:
            async with audiosocket.listening():
                yield

        app.cleanup_ctx.append(listening)
