"""One call's side of the voice cache: its speech comes through here, and the dialogue is told to the predictor.

Turn-taking knows nothing of this: what is said goes by on its way to the voice, what is heard on its way to the turn
machine. Whatever fails here costs a prediction, never a word.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agent.events import CacheUse
from agent.nlu.hook import Nlu, Session, Turn
from agent.nlu.threads import call_in_thread
from agent.private import Private
from agent.speech.chunker import Clause
from agent.tts.protocol import Speech, Style, Synthesizer, Voice

__all__ = ["Anticipation", "Dialogues", "Opening"]

EXPECT_DEADLINE_S = 1.0
"""What a hook expects helps while the agent still speaks; what comes later than this is not waited for."""

log = logging.getLogger(__name__)


class Dialogues(Protocol):
    """Who follows the dialogues of all calls: `agent.voicecache.cache.VoiceCache`, which has the meaning of each."""

    def use(self, text: str, voice: Voice, style: Style) -> CacheUse: ...
    def on_call(self, call: str, voice: Voice, style: Style, *, caller: str | None = None, queue: str = "") -> None: ...
    def on_turn(
        self, call: str, *, said: str = "", state: Mapping[str, object] | None = None, expected: tuple[str, ...] = ()
    ) -> None: ...
    def on_partial(self, call: str, text: str) -> None: ...
    def on_reply(
        self, call: str, text: str, *, heard: str = "", private: bool = False, ready: bool | None = None
    ) -> None: ...
    def on_end(self, call: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Opening:
    """The clause that a reply begins with."""

    text: str
    """As the hook wrote it."""
    private: bool
    cache: CacheUse
    """Where its speech was when it was asked for."""


class Anticipation:
    """Of one call.

    Args:
        dialogues: None where nothing is predicted; then this only passes speech on.
        synthesizer: the voice, with the cache around it.
        nlu: the hook, which may say what it expects.
        session: who calls.
        spawn: runs work in a task that the call owns.
    """

    def __init__(
        self,
        dialogues: Dialogues | None,
        synthesizer: Synthesizer,
        nlu: Nlu,
        session: Session,
        spawn: Callable[[Coroutine[object, object, None], str], asyncio.Task[None]],
    ) -> None:
        self._dialogues = dialogues
        self._synthesizer = synthesizer
        self._expect: Callable[[Turn], Sequence[str]] | None = getattr(nlu, "expect", None)
        self._call = session.id
        self._caller = session.caller
        self._queue = session.channel
        self._spawn = spawn
        self._speaking_as: tuple[Voice, Style] | None = None
        self._asking: asyncio.Task[None] | None = None

    # -- what the agent says -------------------------------------------------------------------------------------------

    def speech(self, clause: Clause, voice: Voice, style: Style, *, private: bool) -> AsyncIterator[Speech]:
        """The clause as the voice speaks it. Raises, on iteration, what `Synthesizer.stream` does."""
        return self._synthesizer.stream(Private(clause.spoken) if private else clause.spoken, voice, style)

    def opening(self, clause: Clause, voice: Voice, style: Style, *, private: bool) -> Opening:
        """What is to be known of a reply's first clause before its speech is asked for."""
        dialogues = self._dialogues
        use: CacheUse = "miss" if dialogues is None else dialogues.use(clause.spoken, voice, style)
        return Opening(clause.text.strip(), private, use)

    def begins(self, opening: Opening, heard: str, speaking_as: tuple[Voice, Style]) -> None:
        """The agent answers `heard` with this opening."""
        dialogues = self._follow(speaking_as)
        self._drop_question()
        if dialogues is not None:
            self._safely(
                lambda: dialogues.on_reply(
                    self._call, opening.text, heard=heard, private=opening.private, ready=opening.cache != "miss"
                )
            )

    def written(self, turn: Turn, said: str, speaking_as: tuple[Voice, Style]) -> None:
        """All of the answer to `turn` is there; it ends, or was cut, with the clause `said` (empty: a private one).

        What may come next is predicted from here on, while the answer still plays.
        """
        dialogues = self._follow(speaking_as)
        self._drop_question()
        if dialogues is None:
            return
        if self._expect is None:
            self._safely(lambda: dialogues.on_turn(self._call, said=said, state=turn.session.state))
        else:
            self._asking = self._spawn(self._ask(dialogues, self._expect, turn, said), "expectation")

    # -- what the caller says ------------------------------------------------------------------------------------------

    def hears(self, text: str, speaking_as: tuple[Voice, Style]) -> None:
        """The caller's running turn reads like this now."""
        dialogues = self._follow(speaking_as)
        if dialogues is not None and text:
            self._safely(lambda: dialogues.on_partial(self._call, text))

    def end(self) -> None:
        """The call is over. Idempotent."""
        self._drop_question()
        dialogues, self._dialogues = self._dialogues, None
        if dialogues is not None and self._speaking_as is not None:
            self._safely(lambda: dialogues.on_end(self._call))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _follow(self, speaking_as: tuple[Voice, Style]) -> Dialogues | None:
        dialogues = self._dialogues
        if dialogues is not None and speaking_as != self._speaking_as:
            self._speaking_as = speaking_as
            self._safely(
                lambda: dialogues.on_call(self._call, *speaking_as, caller=self._caller, queue=self._queue),
            )
        return dialogues

    async def _ask(self, dialogues: Dialogues, expect: Callable[[Turn], Sequence[str]], turn: Turn, said: str) -> None:
        expected: tuple[str, ...] = ()
        try:
            async with asyncio.timeout(EXPECT_DEADLINE_S):
                answer = await call_in_thread(lambda: expect(turn))
                expected = _texts(answer)
        except asyncio.CancelledError:
            raise
        except BaseException as exc:
            # SystemExit among them, which would end the server. A hook's message may quote the caller.
            log.warning("the hook's `expect` failed: %s", type(exc).__name__, extra={"call_id": self._call})
        self._safely(lambda: dialogues.on_turn(self._call, said=said, state=turn.session.state, expected=expected))

    def _drop_question(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _safely(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        except Exception:
            log.exception("the voice cache lost a turn", extra={"call_id": self._call})


def _texts(answer: Any) -> tuple[str, ...]:
    """What may be made ahead of what a hook expects. Raises TypeError for what is no list of texts."""
    if isinstance(answer, str) or not isinstance(answer, Sequence):
        raise TypeError(f"expect: expected a list of texts, got {type(answer).__name__}")
    if not all(isinstance(text, str) for text in answer):
        raise TypeError("expect: expected texts")
    return tuple(text for text in answer if not isinstance(text, Private))
