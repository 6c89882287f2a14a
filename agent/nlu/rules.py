"""A hook that is a YAML file: intents, patterns, answers, slots and look-ups, without a model or a key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from agent.nlu.hook import Action, Turn
from agent.nlu.rules_dialogue import Dialogue
from agent.nlu.rules_file import read_rules

__all__ = ["SHOP_EXAMPLE", "RulesNlu"]

SHOP_EXAMPLE = Path(__file__).parent / "examples" / "shop.yaml"
"""The worked example that answers when nothing is configured."""


class RulesNlu:
    """Answers by a rules file. One instance serves all calls; a call's memory is in its session's state."""

    def __init__(self, file: Path = SHOP_EXAMPLE) -> None:
        """Raises ConfigError naming the file and the field at fault."""
        self._dialogue = Dialogue(read_rules(file), str(file))

    async def reply(self, turn: Turn) -> AsyncIterator[str | Action]:
        """Answer at once: the whole reply takes about a millisecond."""
        for item in self._dialogue.answer(turn):
            yield item

    @property
    def greeting(self) -> Sequence[str]:
        """What it greets with, where that is a fixed text."""
        return self._dialogue.greetings()

    def expect(self, turn: Turn) -> Sequence[str]:  # noqa: ARG002  (the protocol's signature)
        """Every fixed text of the file."""
        return self._dialogue.openings()

    async def close(self) -> None:
        """Nothing is held."""
