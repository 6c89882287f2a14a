"""A hook that is any OpenAI-compatible chat completions endpoint: streamed text is spoken, tool calls become actions.

One request a turn. Tools are instructions to the call, not questions to it, so no result is ever sent back: a reply of
tool calls alone is complete.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from agent.errors import ConfigError, HookError
from agent.nlu.actions import tool_descriptions
from agent.nlu.chat_messages import messages
from agent.nlu.chat_stream import ChatReader
from agent.nlu.hook import Action, Turn
from agent.nlu.remote import RemoteAnswer, RemoteHook, check_url, decode_json

__all__ = ["OpenAIChatNlu"]

ACCEPT = "text/event-stream, application/json;q=0.9"


class OpenAIChatNlu:
    """Asks `{base}/chat/completions`. One instance serves all calls; it remembers nothing between turns."""

    def __init__(
        self,
        url: str,
        *,
        model: str,
        api_key: str | None = None,
        system_prompt: str = "",
        timeout_s: float = 10.0,
    ) -> None:
        """Raises ConfigError when the address cannot be asked or no model is named."""
        if not model.strip():
            raise ConfigError("nlu.model: expected the name of a model of the endpoint, got an empty string")
        base = check_url(url).rstrip("/")
        url = base if base.endswith("/chat/completions") else base + "/chat/completions"
        self._remote = RemoteHook(url, api_key=api_key, timeout_s=timeout_s)
        self._model = model
        self._system_prompt = system_prompt
        self._tools = tool_descriptions()

    async def reply(self, turn: Turn) -> AsyncIterator[str | Action]:
        """Ask, and yield text and actions as they are complete. Closing aborts the request.

        Raises:
            HookTimeout: connecting, the first piece, or a later piece took too long.
            HookError: the endpoint failed or refused, or a tool call does not fit its action.
        """
        request = {
            "model": self._model,
            "stream": True,
            "messages": messages(turn, self._system_prompt),
            "tools": self._tools,
        }
        reader = ChatReader()
        async with self._remote.post(request, ACCEPT) as answer, aclosing(_read(answer, reader)) as items:
            async for item in items:
                yield item

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._remote.close()


async def _read(answer: RemoteAnswer, reader: ChatReader) -> AsyncGenerator[str | Action, None]:
    if answer.content_type == "text/event-stream":
        async with aclosing(answer.events()) as events:
            async for _, data in events:
                if data.strip() == "[DONE]":
                    reader.done()
                    break
                for item in reader.chunk(_object(decode_json(data, "a chunk of the completion"))):
                    yield item
        ended = reader.end()
    elif answer.content_type == "application/json":
        ended = reader.whole(_object(decode_json(await answer.body(), "the completion")))
    else:
        raise HookError(
            f"the completion has content type {answer.content_type or '(none)'!r}; expected text/event-stream or "
            "application/json"
        )
    for item in ended:
        yield item


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise HookError(f"the completion: expected an object, got {type(value).__name__}")
    return value
