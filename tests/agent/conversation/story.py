"""A call told as events with times, for tests in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from agent.config import ConversationSettings, ListeningSettings
from agent.conversation import protocol as m
from agent.conversation.machine import TurnMachine
from agent.listening.endpoint import EndOfTurn, Evidence, SilenceEndpoint, Verdict

ENDPOINT_S = 0.5
STOP_S = 0.192
"""Silence after which a segment of speech closes."""


class ByText:
    """An estimator that a test scripts: from the evidence to a verdict. Keeps what it was asked."""

    def __init__(self, verdict: Callable[[Evidence], Verdict]) -> None:
        self.asked: list[Evidence] = []
        self._verdict = verdict

    def judge(self, evidence: Evidence) -> Verdict:
        self.asked.append(evidence)
        return self._verdict(evidence)


class Story:
    """Keeps every command. The recogniser's answers, the voice and the hook are told by the test."""

    def __init__(self, *, end_of_turn: EndOfTurn | None = None, language: str = "en", **conversation: object) -> None:
        self.machine = TurnMachine(
            ConversationSettings.model_validate(conversation),
            ListeningSettings(stop_ms=round(STOP_S * 1000)),
            end_of_turn or SilenceEndpoint(ENDPOINT_S * 1000),
            language=language,
        )
        self.now = 100.0
        self.commands: list[m.Command] = []

    def do(self, event: m.Event) -> list[m.Command]:
        new = self.machine.on(event, self.now)
        self.commands += new
        return new

    def wait(self, seconds: float) -> list[m.Command]:
        new: list[m.Command] = []
        for _ in range(round(seconds / 0.02)):
            self.now += 0.02
            new += self.do(m.Tick())
        return new

    def until(self, command: type[m.Command], seconds: float = 5.0) -> float:
        """Wait for a command; returns the seconds until it came."""
        for step in range(round(seconds / 0.02)):
            self.now += 0.02
            if any(isinstance(c, command) for c in self.do(m.Tick())):
                return (step + 1) * 0.02
        raise AssertionError(f"no {command.__name__} within {seconds} s")

    def speak(
        self, seconds: float, text: str | None = None, confidence: float = 0.9, partials: Sequence[str] = ()
    ) -> list[m.Command]:
        """The caller speaks; `partials` come evenly, and the final of `text` 40 ms after the segment closed."""
        new = self.do(m.VoiceBegan(ago_ms=64))
        for partial in partials:
            new += self.wait((seconds - 0.064) / len(partials))
            new += self.do(m.PartialHeard(partial, partial))
        if not partials:
            new += self.wait(seconds - 0.064)
        new += self.wait(STOP_S)
        new += self.do(m.VoiceEnded(ago_ms=192, speech_ms=round(seconds * 1000)))
        if text is not None:
            new += self.wait(0.04)
            new += self.answer(text, confidence)
        return new

    def answer(self, text: str, confidence: float = 0.9) -> list[m.Command]:
        """The recogniser answers the last request."""
        requests = [c for c in self.commands if isinstance(c, m.RequestFinal)]
        return self.do(m.FinalHeard(requests[-1].final_id, text, confidence))

    def press(self, keys: str, gap_s: float = 0.2) -> list[m.Command]:
        new: list[m.Command] = []
        for key in keys:
            new += self.do(m.DigitPressed(key))
            new += self.wait(gap_s)
        return new

    def ask(self) -> m.Ask:
        return next(c for c in reversed(self.commands) if isinstance(c, m.Ask))

    def asks(self, kind: str) -> list[m.Ask]:
        return [c for c in self.commands if isinstance(c, m.Ask) and c.kind == kind]

    def audible(self, *clauses: str) -> None:
        """The reply's first sound leaves; `clauses` are said."""
        for clause in clauses:
            self.do(m.AgentSays(self.machine.revision, clause))
        self.do(m.ReplyAudible(self.machine.revision))

    def finish(self) -> list[m.Command]:
        return self.do(m.ReplyEnded(self.machine.revision))

    def greeted(self) -> Self:
        self.do(m.CallStarted())
        self.audible()
        self.finish()
        assert self.machine.state is m.State.LISTENING
        return self

    def asking(self, *clauses: str) -> Self:
        """The greeting, of these clauses, has just been heard."""
        self.do(m.CallStarted())
        self.audible(*clauses)
        self.wait(2)
        self.finish()
        self.commands.clear()
        return self

    def answering(self, *clauses: str) -> Self:
        """The agent is in the middle of an answer, revision 2."""
        self.greeted()
        self.speak(1.0, "what are your opening hours")
        self.wait(ENDPOINT_S)
        self.audible(*clauses)
        self.wait(1.0)
        assert self.machine.state is m.State.SPEAKING
        self.commands.clear()
        return self


def kinds(commands: Sequence[m.Command]) -> list[str]:
    return [type(c).__name__ for c in commands]
