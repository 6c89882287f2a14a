"""A hook behind HTTP: POST the turn as JSON, read the reply as NDJSON, server-sent events, JSON or plain text.

The shapes are documented, with examples, in docs/hooks.md.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from agent.errors import HookError
from agent.nlu.actions import action_from_json
from agent.nlu.hook import Action, Turn
from agent.nlu.remote import RemoteAnswer, RemoteHook, SurrogateJoiner, decode_json

__all__ = ["HttpNlu", "turn_to_json"]

ACCEPT = "application/x-ndjson, text/event-stream, application/json;q=0.9, text/plain;q=0.8"
MAX_STATE_BYTES = 64 * 1024
"""Largest session state a remote hook may keep; it travels with every turn."""

_NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/jsonlines")
_FIELDS = ("text", "action", "actions", "state", "error", "done")


class HttpNlu:
    """Asks a URL. One instance serves all calls; what a call must remember lives in its session's state."""

    def __init__(self, url: str, *, api_key: str | None = None, timeout_s: float = 10.0) -> None:
        """Raises ConfigError when the address cannot be asked."""
        self._remote = RemoteHook(url, api_key=api_key, timeout_s=timeout_s)

    async def reply(self, turn: Turn) -> AsyncIterator[str | Action]:
        """Ask, and yield the reply as it arrives. Closing aborts the request.

        Raises:
            HookTimeout: connecting, the first piece, or a later piece took too long.
            HookError: the remote end failed, or its reply breaks the documented shape.
        """
        joiner = SurrogateJoiner()
        async with (
            self._remote.post(turn_to_json(turn), ACCEPT) as answer,
            aclosing(_documents(answer)) as documents,
        ):
            async for where, document in documents:
                for item in _items(document, where, turn):
                    if isinstance(item, str):
                        item = joiner.feed(item)
                    if item != "":
                        yield item

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._remote.close()


def turn_to_json(turn: Turn) -> dict[str, Any]:
    """The turn as the remote hook gets it."""
    session = turn.session
    return {
        "session": {
            "id": session.id,
            "channel": session.channel,
            "language": session.language,
            "caller": session.caller,
            "state": dict(session.state),
            "metadata": dict(session.metadata),
            **({"called": session.called, "direction": session.direction} if session.channel == "sip" else {}),
        },
        "kind": turn.kind,
        "text": turn.text,
        "confidence": turn.confidence,
        "language": turn.language,
        "history": [
            {
                "role": item.role,
                "text": item.text,
                "unheard": item.unheard,
                "interrupted": item.interrupted,
                "at_s": item.at_s,
                "end_s": item.end_s,
            }
            for item in turn.history
        ],
        "interrupted": (
            None if turn.interrupted is None else {"heard": turn.interrupted.heard, "unheard": turn.interrupted.unheard}
        ),
        "speculative": turn.speculative,
        "data": dict(turn.data),
    }


async def _documents(answer: RemoteAnswer) -> AsyncGenerator[tuple[str, Any], None]:
    if answer.status == 204:
        return
    if answer.content_type in _NDJSON:
        number = 0
        async with aclosing(answer.lines()) as lines:
            async for line in lines:
                number += 1
                if line.strip():
                    where = f"line {number} of the hook's answer"
                    yield where, decode_json(line, where)
    elif answer.content_type == "text/event-stream":
        number = 0
        async with aclosing(answer.events()) as events:
            async for name, data in events:
                number += 1
                where = f"event {number} of the hook's answer"
                if data == "[DONE]":
                    return
                if name == "error":
                    raise HookError(f"{where} is an error")
                yield where, decode_json(data, where)
    elif answer.content_type == "application/json":
        body = await answer.body()
        if body.strip():
            yield "the hook's answer", decode_json(body, "the hook's answer")
    elif answer.content_type == "text/plain":
        async with aclosing(answer.text()) as pieces:
            async for piece in pieces:
                yield "the hook's answer", piece
    else:
        raise HookError(
            f"the hook's answer has content type {answer.content_type or '(none)'!r}; expected application/x-ndjson, "
            "text/event-stream, application/json or text/plain"
        )


def _items(document: Any, where: str, turn: Turn) -> Iterator[str | Action]:
    if isinstance(document, str):
        yield document
    elif isinstance(document, list):
        for index, entry in enumerate(document):
            if isinstance(entry, list):
                raise HookError(f"{where}[{index}]: expected a string or an object, got a list")
            yield from _items(entry, f"{where}[{index}]", turn)
    elif isinstance(document, Mapping):
        yield from _object_items(document, where, turn)
    else:
        raise HookError(f"{where}: expected a string, an object or a list, got {_kind(document)}")


def _object_items(document: Mapping[str, Any], where: str, turn: Turn) -> Iterator[str | Action]:
    if not any(field in document for field in _FIELDS):
        raise HookError(f"{where}: expected at least one of the fields {', '.join(_FIELDS)}")
    if document.get("error") is not None:
        raise HookError(f"{where} is an error")
    if document.get("state") is not None:
        _update_state(document["state"], f"{where}.state", turn)
    text = document.get("text")
    if text is not None:
        if not isinstance(text, str):
            raise HookError(f"{where}.text: expected a string, got {_kind(text)}")
        yield text
    if "action" in document:
        yield action_from_json({k: v for k, v in document.items() if k not in ("text", "actions", "state")}, where)
    actions = document.get("actions")
    if actions is not None:
        if not isinstance(actions, list):
            raise HookError(f"{where}.actions: expected a list, got {_kind(actions)}")
        for index, action in enumerate(actions):
            yield action_from_json(action, f"{where}.actions[{index}]")


def _update_state(update: Any, where: str, turn: Turn) -> None:
    if not isinstance(update, Mapping):
        raise HookError(f"{where}: expected an object, got {_kind(update)}")
    state = turn.session.state
    merged = {key: value for key, value in {**state, **update}.items() if value is not None}
    size = len(json.dumps(merged))
    if size > MAX_STATE_BYTES:
        raise HookError(f"{where}: the session's state would be {size} bytes, expected at most {MAX_STATE_BYTES}")
    for key, value in update.items():
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
