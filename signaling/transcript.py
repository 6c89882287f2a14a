"""What a client was told of the conversation so far, for one that comes back and may remember nothing. Pure."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

from agent.events import AgentText, CallEvent, ReplyFinished, ReplyStarted, UserTranscript
from signaling.realtime import appended

__all__ = ["Transcript"]

Item = dict[str, Any]

MAX_ITEMS = 400
"""As many as the call's own history; the oldest are forgotten."""

MAX_BYTES = 48_000
"""Of JSON in one message, under what a data-channel message may have (RFC 8841 section 6.1)."""


class Transcript:
    """The contributions of one call, each in its newest form, oldest first.

    A caller's item is `{id, role: "user", text, final}`, an agent's `{id, item_id, role: "agent", text, heard, unheard,
    status}` with the response's id, as in the messages that told of it.
    """

    def __init__(self) -> None:
        self._items: OrderedDict[str, Item] = OrderedDict()

    def on_event(self, event: CallEvent) -> None:
        """Take up what `event` says."""
        match event:
            case UserTranscript(item_id, text, final):
                self._put(item_id, {"id": item_id, "role": "user", "text": text, "final": final})
            case ReplyStarted(response_id, item_id):
                item = {"id": response_id, "item_id": item_id, "role": "agent", "text": "", "heard": "", "unheard": ""}
                self._put(response_id, item | {"status": "in_progress"})
            case AgentText(response_id, _, text):
                item = self._items.get(response_id, {})
                if item:
                    item["text"] += appended(item["text"], text)
            case ReplyFinished(response_id, _, status, heard, unheard):
                item = self._items.get(response_id, {})
                if item:
                    item.update(status=status, heard=heard, unheard=unheard)
            case _:
                pass

    def newest(self) -> tuple[list[Item], int]:
        """What fits into one message, oldest first, and how many older contributions do not.

        A reply that said nothing is left out.
        """
        items = [item for item in self._items.values() if item["text"] or item.get("status") == "in_progress"]
        room = MAX_BYTES
        first = len(items)
        while first > 0:
            room -= len(json.dumps(items[first - 1], ensure_ascii=False).encode("utf-8", "replace"))
            if room < 0:
                break
            first -= 1
        return [dict(item) for item in items[first:]], first

    def _put(self, key: str, item: Item) -> None:
        self._items[key] = item
        while len(self._items) > MAX_ITEMS:
            self._items.popitem(last=False)
