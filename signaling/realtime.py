"""Call events in the form of OpenAI Realtime server events: pure translation, no I/O.

`RealtimeTranslator` turns each `CallEvent` into messages; the client's side is in `commands`, the glue to a call in
`realtime_session`. Event ids and texts follow from the events alone.
"""

from __future__ import annotations

import json
import unicodedata
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from agent.events import (
    AgentText,
    CallEnded,
    CallEvent,
    CallFault,
    CallResumed,
    CallSuspended,
    ClientData,
    DtmfPressed,
    DtmfSent,
    FloorChanged,
    MediaResumed,
    MediaStalled,
    OutputCleared,
    OutputPaused,
    OutputResumed,
    PlayoutStarted,
    PlayoutStopped,
    ReplyFinished,
    ReplyStarted,
    SpeechStarted,
    SpeechStopped,
    TransferRequested,
    TurnTimings,
    UserTranscript,
)

__all__ = ["MAX_MESSAGE_BYTES", "Message", "RealtimeTranslator", "appended", "encode", "error_message", "timing_fields"]

Message = dict[str, Any]

MAX_MESSAGE_BYTES = 60_000
"""A data-channel message of more than 64 KiB is not safe with every browser (RFC 8841 section 6.1)."""

MAX_OPEN_ITEMS = 16
"""Items and replies remembered at once; a call has one or two of each going on."""


@dataclass(slots=True)
class _OpenReply:
    item_id: str
    text: str = ""


class RealtimeTranslator:
    """Turns one call's events into server events, in order.

    It remembers what has been sent of each open item, so that deltas join up to the transcripts that close them.
    """

    def __init__(self) -> None:
        self._sent = 0
        self._heard: OrderedDict[str, str] = OrderedDict()
        self._spoken: OrderedDict[str, None] = OrderedDict()
        self._replies: OrderedDict[str, _OpenReply] = OrderedDict()

    def session(
        self, kind: str, *, call_id: str, voice: str, language: str, channel: str, resumed: bool = False
    ) -> Message:
        """`session.created` or `session.updated`; `resumed` marks the former when an earlier call goes on."""
        session = {"id": call_id, "model": "rejoinder", "voice": voice, "language": language, "channel": channel}
        return self._message(kind, session=session, **({"resumed": True} if resumed else {}))

    def history(self, items: list[Message], omitted: int) -> Message:
        """The conversation so far; `omitted` older contributions did not fit."""
        return self._message("rejoinder.history", items=items, omitted=omitted)

    def error(
        self, kind: str, code: str, message: str, *, param: str | None = None, event_id: str | None = None
    ) -> Message:
        """An `error` event; `event_id` is the client's event at fault, if it named one."""
        return self._message("error", error=error_message(kind, code, message, param=param, event_id=event_id))

    def translate(self, event: CallEvent) -> list[Message]:
        """The messages that say `event`, oldest first; none when there is nothing new to say."""
        match event:
            case SpeechStarted(item_id, audio_ms):
                self._remember(self._spoken, item_id, None)
                return [self._message("input_audio_buffer.speech_started", item_id=item_id, audio_start_ms=audio_ms)]
            case SpeechStopped(item_id, audio_ms):
                return [self._message("input_audio_buffer.speech_stopped", item_id=item_id, audio_end_ms=audio_ms)]
            case UserTranscript():
                return self._user(event)
            case ReplyStarted(response_id, item_id):
                self._remember(self._replies, response_id, _OpenReply(item_id))
                return [self._message("response.created", response={"id": response_id, "status": "in_progress"})]
            case AgentText():
                return [self._agent(event)]
            case ReplyFinished():
                return self._finished(event)
            case PlayoutStarted(response_id):
                return [self._message("output_audio_buffer.started", response_id=response_id)]
            case PlayoutStopped(response_id):
                return [self._message("output_audio_buffer.stopped", response_id=response_id)]
            case OutputPaused(response_id):
                return [self._message("rejoinder.paused", response_id=response_id)]
            case OutputResumed(response_id):
                return [self._message("rejoinder.resumed", response_id=response_id)]
            case OutputCleared(response_id):
                return [self._message("output_audio_buffer.cleared", response_id=response_id)]
            case FloorChanged(floor):
                return [self._message("rejoinder.floor", floor=floor)]
            case TurnTimings():
                return [self._message("rejoinder.timings", response_id=event.response_id, **timing_fields(event))]
            case DtmfPressed(digit):
                return [self._message("rejoinder.dtmf", digit=digit)]
            case DtmfSent(digits):
                return [self._message("rejoinder.dtmf_sent", digits=digits)]
            case ClientData(data):
                return [self._message("rejoinder.data", data=dict(data))]
            case TransferRequested(to):
                return [self._message("rejoinder.transfer", to=to)]
            case MediaStalled(silence_s):
                return [self._message("rejoinder.media_stalled", silence_s=round(silence_s, 1))]
            case MediaResumed(silence_s):
                return [self._message("rejoinder.media_resumed", silence_s=round(silence_s, 1))]
            case CallFault(part, message):
                return [self.error("server_error", f"{part}_failed", message)]
            case CallSuspended(_, resume_s):
                return [self._message("rejoinder.suspended", resume_s=resume_s)]
            case CallResumed(away_s):
                return [self._message("rejoinder.reconnected", away_s=round(away_s, 1))]
            case CallEnded(reason):
                return [self._message("rejoinder.ended", reason=reason)]

    def _user(self, event: UserTranscript) -> list[Message]:
        kind = "conversation.item.input_audio_transcription"
        before = self._heard.get(event.item_id, "")
        if event.final:
            self._heard.pop(event.item_id, None)
            done = self._message(f"{kind}.completed", item_id=event.item_id, content_index=0, transcript=event.text)
            if event.item_id not in self._spoken:
                return [done]
            # Typed text was never in the audio buffer, so only spoken items are committed.
            del self._spoken[event.item_id]
            return [self._message("input_audio_buffer.committed", item_id=event.item_id), done]
        if event.text == before:
            return []
        self._remember(self._heard, event.item_id, event.text)
        # A revised text has no suffix that would be right to append; `transcript` always is.
        delta = event.text[len(before) :] if event.text.startswith(before) else ""
        return [
            self._message(f"{kind}.delta", item_id=event.item_id, content_index=0, delta=delta, transcript=event.text)
        ]

    def _agent(self, event: AgentText) -> Message:
        reply = self._replies.get(event.response_id)
        if reply is None:
            reply = _OpenReply(event.item_id)
            self._remember(self._replies, event.response_id, reply)
        delta = appended(reply.text, event.text)
        reply.text += delta
        return self._message(
            "response.output_audio_transcript.delta",
            response_id=event.response_id,
            item_id=event.item_id,
            output_index=0,
            content_index=0,
            delta=delta,
        )

    def _finished(self, event: ReplyFinished) -> list[Message]:
        reply = self._replies.pop(event.response_id, None)
        messages = []
        if reply is not None and reply.text:
            messages.append(
                self._message(
                    "response.output_audio_transcript.done",
                    response_id=event.response_id,
                    item_id=event.item_id,
                    output_index=0,
                    content_index=0,
                    transcript=reply.text,
                )
            )
        content = [{"type": "output_audio", "transcript": event.heard}]
        messages.append(
            self._message(
                "response.done",
                response={
                    "id": event.response_id,
                    "status": event.status,
                    "output": [{"id": event.item_id, "type": "message", "role": "assistant", "content": content}],
                },
                rejoinder={"heard": event.heard, "unheard": event.unheard},
            )
        )
        return messages

    def _message(self, kind: str, **fields: Any) -> Message:
        self._sent += 1
        return {"type": kind, "event_id": f"event_{self._sent}", **fields}

    @staticmethod
    def _remember(table: OrderedDict[str, Any], key: str, value: object) -> None:
        table[key] = value
        while len(table) > MAX_OPEN_ITEMS:
            table.popitem(last=False)


def appended(before: str, clause: str) -> str:
    """`clause` as it continues `before`: with a space where words would run together, none between Han or Kana."""
    if not before or not clause or before[-1].isspace() or clause[0].isspace() or _is_wide(before[-1]):
        return clause
    return f" {clause}"


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in ("W", "F")


def timing_fields(event: TurnTimings) -> Message:
    """The numbers of one answer, in milliseconds to a tenth, null where a part did not take place."""
    names = ("endpoint_ms", "asr_final_ms", "nlu_first_ms", "tts_first_ms", "playout_ms", "response_ms")
    values = {name: getattr(event, name) for name in names}
    return {name: None if ms is None else round(ms, 1) for name, ms in values.items()} | {"cache": event.cache}


def error_message(
    kind: str, code: str, message: str, *, param: str | None = None, event_id: str | None = None
) -> Message:
    """The `error` member of an error event. `kind` is invalid_request_error or server_error."""
    return {"type": kind, "code": code, "message": message, "param": param, "event_id": event_id}


def encode(message: Message) -> str:
    """`message` as JSON text. Raises ValueError when it holds what JSON cannot (a hook's `Send`) or is too long."""
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode("utf-8"))
    except (TypeError, ValueError, RecursionError) as exc:
        raise ValueError("the message holds what JSON cannot say") from exc
    if size > MAX_MESSAGE_BYTES:
        raise ValueError(f"the message has {size} bytes, more than {MAX_MESSAGE_BYTES}")
    return text
