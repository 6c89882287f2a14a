"""The telephone door of a running agent: takes SIP calls, gives each a port, and ends them all."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Coroutine
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from agent.config import Settings
from agent.errors import CallRefused, EnvironmentFault, MediaError
from agent.media.port import MediaPort
from agent.media.rtp_sockets import RtpSockets
from agent.media.ticker import Ticker
from agent.nlu.hook import Session
from signaling.admission import CallRegistry
from signaling.calls import new_call_id
from signaling.ports import AgentLike
from signaling.problems import HttpFault
from signaling.sip.errors import WrongState
from signaling.sip.gateway.destinations import Destinations
from signaling.sip.gateway.leg import Conversation, Leg
from signaling.sip.gateway.setup import (
    agent_settings,
    codecs_of,
    door_of,
    listeners,
    local_media,
    registration,
    server_tls,
    session_headers,
)
from signaling.sip.peer import Peer
from signaling.sip.protocol import (
    Answer,
    CallEnded,
    CallEstablished,
    CallOffered,
    Command,
    Dial,
    DigitReceived,
    HangUp,
    MediaAgreed,
    News,
    RegistrationChanged,
    Reject,
    TransferProgressed,
)
from signaling.sip.transport.endpoint import SipEndpoint
from signaling.sip.transport.tls import client_context
from signaling.sip.uri import Uri
from signaling.sip.user_agent import UserAgent
from signaling.tokens import Claims

__all__ = ["SipGateway"]

log = logging.getLogger(__name__)

CLOSE_S = 5.0
"""For the ports of calls that never began, and the conversations that hang up at the end."""


class SipGateway:
    """Use as `async with`; leaving it hangs up.

    Args:
        agent: takes the calls.
        registry: the admission that all doors share.

    Raises ConfigError on settings that cannot be used.
    """

    def __init__(self, agent: AgentLike, registry: CallRegistry) -> None:
        settings = agent.settings.sip
        codecs_of(settings)
        self._destinations = Destinations(settings)
        self._registration = registration(settings)
        self._agent = agent
        self._registry = registry
        self._legs: dict[str, Leg] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        user_agent = UserAgent(agent_settings(settings), door_of(settings))
        self.endpoint = SipEndpoint(
            user_agent,
            listeners(settings),
            self._on_news,
            server_tls=server_tls(settings),
            client_tls=client_context(settings.tls_authorities),
        )

    @property
    def settings(self) -> Settings:
        return self._agent.settings

    @property
    def ticker(self) -> Ticker:
        return self._agent.ticker

    @property
    def calls(self) -> int:
        """SIP calls that are not over."""
        return len(self._legs)

    async def __aenter__(self) -> Self:
        """Raises EnvironmentFault when an address cannot be bound."""
        sip = self.settings.sip
        try:
            await self.endpoint.__aenter__()
        except OSError as exc:
            where = f"{sip.host}:{sip.port}"
            raise EnvironmentFault(f"cannot listen for SIP on {where}: {exc.strerror or type(exc).__name__}") from exc
        if self._registration is not None:
            self.endpoint.register(self._registration)
        log.info("listening for SIP", extra={"addresses": [f"{t}:{h}:{p}" for t, h, p in self.endpoint.addresses]})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drain()
        for leg in tuple(self._legs.values()):
            if leg.conversation is not None:
                leg.conversation.hangup("server stopped")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        await self.endpoint.__aexit__(kind, exc, trace)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def drain(self) -> None:
        """No new calls from here on: 503 with Retry-After. Those that talk go on."""
        self.endpoint.drain()

    # Calls of ours

    @property
    def language(self) -> str:
        """What callees are spoken to in unless somebody says otherwise."""
        return self.settings.asr.language

    def destination(self, to: str, *, near: Peer | None = None) -> Uri:
        """Where a call or transfer goes. Raises ProtocolError, with the code 403 when it is not allowed."""
        return self._destinations.find(to, numbers_at=None if near is None else (near.host, near.port))

    def dial(self, target: Uri, session: Session, claims: Claims) -> Leg:
        """Place a call; `Leg.outcome` says what came of it. Raises CallRefused, HttpFault and WrongState."""
        sip = self.settings.sip
        place, name = ExitStack(), secrets.token_hex(8)
        place.enter_context(self._registry.holding(claims, "sip"))
        try:
            sockets = RtpSockets(sip.host, sip.rtp_port_min, sip.rtp_port_max)
        except BaseException:
            place.close()
            raise
        leg = self._legs[name] = Leg(self, name, session, sockets, None, place, subject=claims.subject)
        try:
            self.command(Dial(name, target, local_media(sip, sockets.port, encrypted=target.transport == "tls")))
        except BaseException:
            place.close()
            sockets.close()
            self._legs.pop(name, None)
            raise
        return leg

    def give_up(self, leg: Leg) -> None:
        """End a call, however far it has come."""
        self.command(HangUp(leg.name))

    # What legs need

    def command(self, command: Command) -> None:
        """Raises WrongState."""
        self.endpoint.handle(command)

    def begin(self, leg: Leg, port: MediaPort, session: Session) -> Conversation:
        """Start the conversation of a leg; its end is waited for in a task of the gateway."""
        call = self._agent.start_call(port=port, session=session, observer=leg.on_event)
        self._registry.add(leg.subject, call, None)
        leg.conversation = call
        self._spawn(leg.run(), f"{call.id} sip")
        return call

    def on_over(self, leg: Leg) -> None:
        """Forget a leg."""
        self._legs.pop(leg.name, None)
        if leg.conversation is None:
            self._spawn(leg.abandon(), "sip abandon")
        else:
            self._registry.forget(leg.conversation.id)

    # News

    def _on_news(self, news: News) -> None:
        if isinstance(news, CallOffered):
            self._offered(news)
            return
        if isinstance(news, RegistrationChanged):
            level = logging.INFO if news.registered or self.endpoint.agent.draining else logging.WARNING
            log.log(level, "registered" if news.registered else "not registered", extra={"status": news.status})
            return
        leg = self._legs.get(news.call)
        if leg is None:
            return
        match news:
            case MediaAgreed(agreement=agreement):
                leg.on_media(agreement)
            case CallEstablished():
                leg.on_established()
            case DigitReceived(digit=digit):
                leg.on_digit(digit)
            case CallEnded():
                leg.on_ended(news)
            case TransferProgressed(status=status, final=final):
                leg.on_transfer(status, final=final)
            case _:
                log.debug("news without a use: %s", type(news).__name__)

    def _offered(self, news: CallOffered) -> None:
        place = ExitStack()
        sip = self.settings.sip
        caller = news.caller.uri.user_text or str(news.caller.uri)
        try:
            place.enter_context(self._registry.holding(_claims(caller), "sip"))
            sockets = RtpSockets(sip.host, sip.rtp_port_min, sip.rtp_port_max)
        except (CallRefused, HttpFault, OSError) as exc:
            place.close()
            log.info("a SIP call was refused: %s", exc)
            self.command(Reject(news.call, 503))
            return
        session = Session(
            id=new_call_id(),
            channel="sip",
            language=self.settings.asr.language,
            caller=caller,
            called=news.called.user_text or None,
            metadata=session_headers(news.request, sip.session_headers),
        )
        self._legs[news.call] = Leg(
            self, news.call, session, sockets, news.peer, place, subject=_claims(caller).subject
        )
        media = local_media(sip, sockets.port, encrypted=news.peer.transport == "tls")
        try:
            self.command(Answer(news.call, media))
        except (WrongState, MediaError) as exc:
            log.warning("a SIP call could not be answered: %s", exc)

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s failed", task.get_name(), exc_info=error)
            self._agent.metrics.error("signaling", error)


def _claims(caller: str) -> Claims:
    """A SIP caller as the admission knows callers: proven at the door, no limit but the server's."""
    return Claims(f"sip:{caller}", int(time.time()) + 86_400, "", channels=frozenset(("sip",)))
