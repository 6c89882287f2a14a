"""One answer of a call. It tells the call only while it is the current one: what was given up leads nowhere."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Protocol

from agent.conversation import protocol as turns
from agent.events import AgentText, CacheUse, CallEvent
from agent.foreseeing import Foreseeing, Opening
from agent.nlu.hook import Action
from agent.reply import Reply
from agent.speech.chunker import Clause
from agent.speech.speaker import Speaker
from agent.tts.protocol import Style, Voice

__all__ = ["Answer", "SpeakingHost"]


class SpeakingHost(Protocol):
    """What speaking needs of its call. All are called on the event loop."""

    def feed(self, event: turns.Event) -> None:
        """An event for the turn machine."""

    def emit(self, event: CallEvent) -> None:
        """An event for the client."""

    def fault(self, part: str, error: BaseException) -> None:
        """A part failed and was covered."""

    def on_action(self, action: Action) -> None:
        """The place of an action that concerns more than speaking was reached."""

    def spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Run something in a task that the call owns."""
        ...

    @property
    def language(self) -> str:
        """BCP 47 tag the caller is heard in."""
        ...

    @property
    def speaking_as(self) -> tuple[Voice, Style]:
        """Voice and style of the next clause."""
        ...


class Answer:
    """One reply, and what its call knows of it. It is its reply's host.

    Args:
        host: the call.
        is_current: whether this is what the call says.
        revision: the turn machine's number of it.
        speaker: its way to the ear.
        foreseeing: told how it begins.
        written: told once all of it is written, while it still plays.
    """

    def __init__(
        self,
        host: SpeakingHost,
        is_current: Callable[[Answer], bool],
        revision: int,
        speaker: Speaker,
        foreseeing: Foreseeing,
        written: Callable[[Answer], None],
    ) -> None:
        self.revision = revision
        self.speaker = speaker
        self.reply: Reply
        ident = uuid.uuid4().hex[:16]
        self.response_id = f"resp_{ident}"
        self.item_id = f"item_{ident}"
        self.ask: turns.Ask | None = None
        """None for a phrase of the agent's own."""
        self.user_item_id = ""
        """The caller's item it answers."""
        self.task: asyncio.Task[None] | None = None
        self.audible_at: float | None = None
        self.final_ms: float | None = None
        self.timings_sent = False
        self.guarded = False
        """It is heard in full: neither speech nor a client's cancel stops it."""
        self.opening: Opening | None = None
        """How the hook's answer begins; None before that is known."""
        self.said = ""
        """The last clause that was handed to playout."""
        self.said_told = False
        """Who foresees knows where the dialogue stands after it."""
        self._foreseeing = foreseeing
        self._written = written
        self._host = host
        self._is_current = is_current

    @property
    def cache(self) -> CacheUse:
        """See Answered."""
        return "miss" if self.opening is None else self.opening.cache

    @property
    def current(self) -> bool:
        """True while this is what the call says."""
        return self._is_current(self)

    @property
    def speaking_as(self) -> tuple[Voice, Style]:
        """See ReplyHost."""
        return self._host.speaking_as

    def on_opening(self, clause: Clause, *, private: bool) -> None:
        """See ReplyHost."""
        self.opening = self._foreseeing.opening(clause.text, clause.spoken, *self.speaking_as, private=private)
        if self.current:
            self.tell_opening()

    def tell_opening(self) -> None:
        """It answers a turn that is over: how it begins is something to learn from."""
        if self.opening is not None and self.ask is not None:
            self._foreseeing.answered(self.ask.text, self.opening)

    def on_written(self) -> None:
        """See ReplyHost."""
        if self.current:
            self._written(self)

    def on_clause(self, text: str) -> None:
        """See ReplyHost."""
        if self.current:
            self.said = text
            self._host.emit(AgentText(self.response_id, self.item_id, text))
            self._host.feed(turns.AgentSays(self.revision, text))

    def on_action(self, action: Action) -> None:
        """See ReplyHost."""
        if self.current:
            self._host.on_action(action)

    def on_guarded(self) -> None:
        """See ReplyHost."""
        if self.current:
            self.guarded = True
            self._host.feed(turns.ReplyGuarded(self.revision))

    def on_closing(self, reason: str) -> None:
        """See ReplyHost."""
        if self.current:
            self._host.feed(turns.ReplyCloses(self.revision, reason))

    def fault(self, part: str, error: BaseException) -> None:
        """See ReplyHost."""
        if self.current:
            self._host.fault(part, error)
