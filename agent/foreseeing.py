"""How one call's dialogue goes, told to whoever makes likely speech ahead. The call goes on whatever happens there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from agent.events import CacheUse
from agent.nlu.hook import Session, Turn
from agent.tts.protocol import Style, Voice

__all__ = ["DialogueWatcher", "Foreseeing", "Opening"]

log = logging.getLogger(__name__)

MAX_EXPECTED = 64
"""Openings that are taken of a hook."""

SLOW_S = 0.05
"""Two and a half frames of every call of the process: a hook's `expect` that takes this long is not asked again."""


class DialogueWatcher(Protocol):
    """Learns what follows what, and makes ready what is likely (VoiceCache). All return at once."""

    def on_call(self, call: str, voice: Voice, style: Style, *, caller: str | None = None, queue: str = "") -> None:
        """A call began, or goes on with another voice."""

    def on_turn(
        self, call: str, *, said: str = "", state: Mapping[str, object] | None = None, expected: tuple[str, ...] = ()
    ) -> None:
        """The agent has said `said`, and this is where the dialogue stands."""

    def on_partial(self, call: str, text: str) -> None:
        """The caller's running turn reads like this now."""

    def on_reply(
        self, call: str, text: str, *, heard: str = "", private: bool = False, ready: bool | None = None
    ) -> None:
        """The agent answers `heard`, beginning with the clause `text`; `ready`: whether its speech was there."""

    def on_end(self, call: str) -> None:
        """The call is over."""

    def use(self, text: str, voice: Voice, style: Style) -> CacheUse:
        """Whether the speech of this clause is in memory, and made ahead, `text` as the engine reads it."""
        ...


@dataclass(slots=True)
class Opening:
    """The first clause of a reply, as it was when its speech was asked for."""

    text: str
    private: bool
    cache: CacheUse = "miss"
    """Whether its speech was there already."""


class Foreseeing:
    """One call's way to a DialogueWatcher.

    Args:
        watcher: None where nobody makes anything ahead.
        expect: the hook's `expect`, if it has one: a turn to openings that are likely next.
        call: the call's id.
        clock: monotonic seconds, for how long the hook takes.
    """

    def __init__(
        self,
        watcher: DialogueWatcher | None,
        expect: Callable[[Turn], object] | None,
        call: str,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._watcher = watcher
        self._expect = expect
        self._call = call
        self._clock = clock

    def speaks_as(self, voice: Voice, style: Style, caller: str | None) -> None:
        """The call begins, or goes on with another voice."""
        self._tell(lambda watcher: watcher.on_call(self._call, voice, style, caller=caller))

    def heard(self, text: str) -> None:
        """A partial reading of the whole of the caller's turn."""
        self._tell(lambda watcher: watcher.on_partial(self._call, text))

    def opening(self, text: str, spoken: str, voice: Voice, style: Style, *, private: bool) -> Opening | None:
        """A reply's first clause, before it is asked for; tell it with `answered` once the reply counts."""
        if self._watcher is None:
            return None
        opening = Opening(text, private)

        def look(watcher: DialogueWatcher) -> None:
            opening.cache = watcher.use(spoken, voice, style)

        self._tell(look)
        return opening

    def answered(self, heard: str, opening: Opening) -> None:
        """The turn `heard` is answered with this opening."""
        self._tell(
            lambda watcher: watcher.on_reply(
                self._call, opening.text, heard=heard, private=opening.private, ready=opening.cache != "miss"
            )
        )

    def said(self, last: str, session: Session, turn: Callable[[], Turn]) -> None:
        """A reply is over; `last` is its last clause, `turn()` the next turn as far as it is known."""
        if self._watcher is None:
            return
        expected = self._expected(turn)
        self._tell(lambda watcher: watcher.on_turn(self._call, said=last, state=session.state, expected=expected))

    def ended(self) -> None:
        """The call is over; what comes after leads nowhere."""
        self._tell(lambda watcher: watcher.on_end(self._call))
        self._watcher = None

    def _expected(self, turn: Callable[[], Turn]) -> tuple[str, ...]:
        if self._expect is None:
            return ()
        began = self._clock()
        try:
            answer: Any = self._expect(turn())
            # A generator may have no end.
            told = tuple(islice(answer, MAX_EXPECTED))
            if isinstance(answer, str) or not all(isinstance(text, str) for text in told):
                raise TypeError(f"expected a list of str, got {type(answer).__name__}")
        except BaseException as exc:
            # SystemExit among them, which would end the server. Its text may quote what was said.
            log.warning("the hook's expect failed: %s", type(exc).__name__, extra={"call_id": self._call})
            self._expect = None
            return ()
        took_s = self._clock() - began
        if took_s > SLOW_S:
            log.warning(
                "the hook's expect took too long and is not asked again in this call",
                extra={"call_id": self._call, "took_ms": round(took_s * 1000)},
            )
            self._expect = None
        return told

    def _tell(self, what: Callable[[DialogueWatcher], None]) -> None:
        if self._watcher is None:
            return
        try:
            what(self._watcher)
        except Exception:
            # Foresight is a convenience: this call does without it from here on.
            log.exception("speech is not made ahead any more", extra={"call_id": self._call})
            self._watcher = None
