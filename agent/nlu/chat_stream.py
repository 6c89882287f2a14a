"""Reading a chat completion, streamed or whole, as text pieces and actions in their order. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent.errors import HookError
from agent.nlu.actions import ACTION_NAMES, action_from_json
from agent.nlu.hook import Action
from agent.nlu.remote import SurrogateJoiner

__all__ = ["ChatReader"]

MAX_TOOL_CALLS = 16
MAX_ARGUMENT_CHARS = 64 * 1024


@dataclass(slots=True)
class _Call:
    key: object
    name: str = ""
    arguments: str = ""


class ChatReader:
    """Fed the chunks of one completion; the items it returns are ready to be spoken or done.

    A tool call is complete when the next one begins, when its arguments are whole JSON and text goes on, or at the end.
    """

    def __init__(self) -> None:
        self._joiner = SurrogateJoiner()
        self._calls: list[_Call] = []
        self._seen = 0
        self._choices = 0
        self._finished = False

    def chunk(self, document: Mapping[str, Any]) -> Iterator[str | Action]:
        """One chunk of a stream. Raises HookError for an error object or a chunk of the wrong shape."""
        for choice in self._first_choice(document):
            yield from self._message(_mapping(choice.get("delta"), "choices[0].delta"))
            yield from self._finish(choice)

    def whole(self, document: Mapping[str, Any]) -> Iterator[str | Action]:
        """A completion that was not streamed."""
        for choice in self._first_choice(document):
            yield from self._message(_mapping(choice.get("message"), "choices[0].message"))
            yield from self._finish(choice)
            self._finished = True
        yield from self.end()

    def done(self) -> None:
        """The stream said `[DONE]`: complete, also for endpoints that give no finish_reason."""
        self._finished = True

    def end(self) -> Iterator[str | Action]:
        """The stream is over: what tool calls were gathered.

        Raises:
            HookError: it held no choice, or stopped before the model did, or a tool call is not whole.
        """
        if not self._choices:
            raise HookError("the completion has no choices")
        if not self._finished:
            raise HookError("the completion broke off: the stream ended before a finish_reason or [DONE]")
        yield from self._flush(len(self._calls))

    def _first_choice(self, document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        if document.get("error") is not None:
            error = document["error"]
            code = error.get("code") or error.get("type") if isinstance(error, Mapping) else None
            raise HookError(
                f"the endpoint answered with an error ({str(code)[:80]})" if code else "the endpoint failed"
            )
        choices = document.get("choices")
        if choices is None or choices == []:  # usage and keep-alive chunks have none
            return
        if not isinstance(choices, list):
            raise HookError(f"choices: expected a list, got {type(choices).__name__}")
        choice = _mapping(choices[0], "choices[0]")
        if choice.get("index") in (None, 0):
            self._choices += 1
            yield choice

    def _message(self, message: Mapping[str, Any]) -> Iterator[str | Action]:
        for field in ("content", "refusal"):
            text = self._joiner.feed(_text(message.get(field), field))
            if text:
                yield from self._flush(sum(1 for call in self._calls if _is_whole(call.arguments)))
                yield text
        calls = message.get("tool_calls")
        if calls is None:
            return
        if not isinstance(calls, list):
            raise HookError(f"tool_calls: expected a list, got {type(calls).__name__}")
        for position, delta in enumerate(calls):
            yield from self._call(_mapping(delta, f"tool_calls[{position}]"), position)

    def _call(self, delta: Mapping[str, Any], position: int) -> Iterator[str | Action]:
        function = _mapping(delta.get("function"), f"tool_calls[{position}].function")
        key = delta.get("index")
        if key is None:  # some endpoints number nothing: an id or a name begins a call
            begins = delta.get("id") or function.get("name")
            key = delta.get("id") or ("call", self._seen) if begins or not self._calls else self._calls[-1].key
        call = next((known for known in self._calls if known.key == key), None)
        if call is None:
            yield from self._flush(len(self._calls))
            self._seen += 1
            if self._seen > MAX_TOOL_CALLS:
                raise HookError(f"the completion has more than {MAX_TOOL_CALLS} tool calls")
            call = _Call(key)
            self._calls.append(call)
        name = function.get("name")
        if isinstance(name, str) and name != call.name:
            call.name += name
        arguments = function.get("arguments")
        if isinstance(arguments, Mapping):  # not a string, against the specification, but unambiguous
            arguments = json.dumps(arguments)
        if arguments is not None and not isinstance(arguments, str):
            raise HookError(f"tool call {call.name[:80]!r}: arguments: expected a string of JSON")
        call.arguments += arguments or ""
        if len(call.arguments) > MAX_ARGUMENT_CHARS:
            raise HookError(f"tool call {call.name[:80]!r}: arguments: more than {MAX_ARGUMENT_CHARS} characters")

    def _finish(self, choice: Mapping[str, Any]) -> Iterator[str | Action]:
        reason = choice.get("finish_reason")
        if reason is None:
            return
        self._finished = True
        if reason == "content_filter":
            raise HookError("the endpoint's content filter stopped the completion")
        yield from self._flush(len(self._calls))

    def _flush(self, count: int) -> Iterator[Action]:
        done, self._calls = self._calls[:count], self._calls[count:]
        for call in done:
            yield _action(call)


def _action(call: _Call) -> Action:
    where = f"tool call {call.name[:80]!r}"
    if call.name not in ACTION_NAMES:
        raise HookError(f"{where}: no such tool; expected one of {', '.join(ACTION_NAMES)}")
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        raise HookError(f"{where}: arguments: not JSON") from None
    if not isinstance(arguments, dict):
        raise HookError(f"{where}: arguments: expected an object, got {type(arguments).__name__}")
    return action_from_json({**arguments, "action": call.name}, where)


def _is_whole(arguments: str) -> bool:
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise HookError(f"{where}: expected an object, got {type(value).__name__}")
    return value


def _text(value: object, where: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):  # content parts
        parts = [part.get("text") for part in value if isinstance(part, Mapping) and part.get("type") == "text"]
        return "".join(part for part in parts if isinstance(part, str))
    raise HookError(f"{where}: expected a string, got {type(value).__name__}")
