"""Joins one call to one data channel: events out, commands in. Thin; what is said is decided in `realtime`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from agent.errors import NotInterruptible, ProtocolError, RejoinderError
from agent.events import CallEvent, CallResumed, FloorChanged
from agent.observe.logs import CallLogger, call_logger
from signaling.commands import (
    CancelReply,
    ClientCommand,
    ClientError,
    HangUp,
    PressKey,
    Respond,
    TypeText,
    UpdateSession,
    parse_client_message,
)
from signaling.limits import TokenBucket
from signaling.ports import CALLER_HUNG_UP, CallLike
from signaling.realtime import Message, RealtimeTranslator, encode
from signaling.transcript import Transcript

__all__ = ["RealtimeSession", "perform"]

MESSAGES_PER_S = 20.0
MESSAGE_BURST = 60.0
"""Nobody types or presses keys faster; above it messages are dropped, and the first dropped one is told."""

MAX_EARLY_EVENTS = 64
"""Events between the start of the call and `bind_call`, which happen within one step of the event loop."""


_PARAMS = {
    "voice": "session.voice",
    "language": "session.language",
    "silence_ms": "session.turn_detection.silence_duration_ms",
}
"""Where the client wrote what `Call.configure` takes by these names."""


def _param(field: str | None) -> str | None:
    return None if field is None else _PARAMS.get(field, field)


def perform(command: ClientCommand, call: CallLike) -> bool:
    """Do what the client asked. True when the session's settings changed. Raises what the call does."""
    match command:
        case UpdateSession(voice, language, silence_ms):
            call.configure(voice=voice, language=language, silence_ms=silence_ms)
            return True
        case CancelReply():
            call.cancel_reply()
        case Respond():
            call.respond()
        case TypeText(text):
            call.type_text(text)
        case PressKey(digit):
            call.press(digit)
        case HangUp():
            call.hangup(CALLER_HUNG_UP)
    return False


class RealtimeSession:
    """One caller's data channel.

    Made before its port and its call, since both take its methods: `bind_port`, then `bind_call`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._translator = RealtimeTranslator()
        self._bucket = TokenBucket(MESSAGES_PER_S, MESSAGE_BURST)
        self._flooding = False
        self._early: list[CallEvent] = []
        self._transcript = Transcript()
        self._floor: FloorChanged | None = None
        self.on_resumed: Callable[[], None] | None = None
        """Called when the first frame has come over a new connection."""
        self._send: Callable[[str], None] | None = None
        self._call: CallLike | None = None
        self._log: CallLogger | logging.Logger = logging.getLogger(__name__)

    def bind_port(self, send: Callable[[str], None]) -> None:
        """Messages go out through `send` from here on; it must not block."""
        self._send = send

    def bind_call(self, call: CallLike) -> None:
        """Say `session.created`, then whatever has happened since the call began."""
        self._call = call
        self._log = call_logger(call.id, __name__)
        self._say_session("session.created", call)
        early, self._early = self._early, []
        for event in early:
            self.on_event(event)

    def resume(self, send: Callable[[str], None]) -> None:
        """Messages go out through `send` from here on: first what the session is and what was said, then what comes."""
        assert self._call is not None
        self._send = send
        self._say_session("session.created", self._call, resumed=True)
        self._say(self._translator.history(*self._transcript.newest()))
        if self._floor is not None:
            for message in self._translator.translate(self._floor):
                self._say(message)

    def on_event(self, event: CallEvent) -> None:
        """The call's observer."""
        if self._call is None:
            if len(self._early) < MAX_EARLY_EVENTS:
                self._early.append(event)
            return
        self._transcript.on_event(event)
        if isinstance(event, FloorChanged):
            self._floor = event
        elif isinstance(event, CallResumed) and self.on_resumed is not None:
            self.on_resumed()
        for message in self._translator.translate(event):
            self._say(message)

    def on_message(self, text: str) -> None:
        """One text message of the client. Never raises: what is wrong with it is said on the channel."""
        call = self._call
        if call is None:
            return
        if self._bucket.take(self._clock()) > 0:
            if not self._flooding:
                self._flooding = True
                self._refuse(ClientError("rate_limited", f"more than {MESSAGES_PER_S:.0f} messages a second"), None)
            return
        self._flooding = False
        parsed, event_id = parse_client_message(text)
        if isinstance(parsed, ClientError):
            self._refuse(parsed, event_id)
            return
        try:
            changed = perform(parsed, call)
        except ProtocolError as error:
            self._refuse(ClientError(error.code, str(error), _param(error.field)), event_id)
        except NotInterruptible as error:
            self._refuse(ClientError("not_interruptible", str(error)), event_id)
        except RejoinderError as error:
            self._say(self._translator.error("server_error", "not_possible", str(error), event_id=event_id))
        except Exception:
            self._log.exception("a client command failed", extra={"command": type(parsed).__name__})
            self._say(
                self._translator.error(
                    "server_error", "internal_error", "the server failed on this message", event_id=event_id
                )
            )
        else:
            if changed:
                self._say_session("session.updated", call)

    def _say_session(self, kind: str, call: CallLike, *, resumed: bool = False) -> None:
        self._say(
            self._translator.session(
                kind,
                call_id=call.id,
                voice=call.voice,
                language=call.language,
                channel=call.session.channel,
                resumed=resumed,
            )
        )

    def _refuse(self, error: ClientError, event_id: str | None) -> None:
        self._say(
            self._translator.error(
                "invalid_request_error", error.code, error.message, param=error.param, event_id=event_id
            )
        )

    def _say(self, message: Message) -> None:
        if self._send is None:
            return
        try:
            text = encode(message)
        except ValueError as error:
            self._log.warning("a message could not be sent", extra={"kind": message["type"]})
            text = encode(self._translator.error("server_error", "message_unsendable", f"{message['type']}: {error}"))
        self._send(text)
