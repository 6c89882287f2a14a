"""The bridges that the settings open, added to the application."""

from __future__ import annotations

from aiohttp import web

from signaling.bridges.twilio import TwilioDoor
from signaling.stream_host import StreamHost
from signaling.tokens import Verifier

__all__ = ["add_bridges"]


def add_bridges(app: web.Application, host: StreamHost, verifier: Verifier) -> None:
    """Add what `bridges` in the settings names; nothing by default."""
    settings = host.agent.settings.bridges
    if settings.twilio_auth_token is not None:
        twilio = TwilioDoor(host, settings.twilio_auth_token.get_secret_value())
        app.router.add_get("/v1/twilio", twilio.handle, allow_head=False)
