"""That every name a rules file uses is defined in it: sets, slots, tables, columns. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agent.errors import ConfigError
from agent.nlu.rules_file import TEMPLATE, Branch, Intent, RulesFile

__all__ = ["check_references"]


def check_references(rules: RulesFile, source: str) -> None:
    """Check all names but those in patterns, which know them when they are compiled.

    Raises:
        ConfigError: a name that is not defined; has its path and what is.
    """
    _References(rules, source).check()


class _References:
    def __init__(self, rules: RulesFile, source: str) -> None:
        self._rules = rules
        self._source = source

    def check(self) -> None:
        rules = self._rules
        self._reply(rules.greeting, "greeting", frozenset(), None)
        for name, ladder in (("fallback", rules.fallback), ("silence", rules.silence)):
            if ladder is not None:
                self._texts(ladder.say, f"{name}.say", frozenset())
                self._reply(ladder.then or [], f"{name}.then", frozenset(), None)
        for name, slot in rules.slots.items():
            for part, texts in (("ask", slot.ask), ("again", slot.again), ("more", slot.more)):
                self._texts(texts, f"slots.{name}.{part}", frozenset({"heard"}))
        intents = [intent.name for intent in rules.intents]
        for name, menu in rules.menus.items():
            self._texts(menu.say, f"menus.{name}.say", frozenset())
            self._texts(menu.again, f"menus.{name}.again", frozenset())
            for keys, choice in menu.keys.items():
                here = f"menus.{name}.keys.{keys}"
                if choice.intent is not None:
                    self._defined(choice.intent, intents, f"{here}.intent", "intents")
                if choice.menu is not None:
                    self._defined(choice.menu, rules.menus, f"{here}.menu", "menus")
                self._reply(choice.reply or [], f"{here}.reply", frozenset(), None)
        for index, intent in enumerate(rules.intents):
            self._intent(intent, f"intents.{index}")

    def _intent(self, intent: Intent, where: str) -> None:
        for part, names in (("slots", intent.slots), ("uses", intent.uses)):
            for name in names:
                self._defined(name, self._rules.slots, f"{where}.{part}", "slots")
        known = {*intent.slots, *intent.uses, *(n for n, slot in self._rules.slots.items() if slot.keep)}
        if intent.lookup is not None:
            self._defined(intent.lookup.table, self._rules.tables, f"{where}.lookup.table", "tables")
            self._defined(intent.lookup.key, intent.slots, f"{where}.lookup.key", "this intent's slots")
            known |= {column for row in self._rules.tables[intent.lookup.table].values() for column in row}
        self._reply(intent.reply or [], f"{where}.reply", frozenset(known), intent)

    def _reply(self, reply: Sequence[Branch], where: str, names: frozenset[str], intent: Intent | None) -> None:
        for index, branch in enumerate(reply):
            here = f"{where}.{index}"
            self._texts(branch.say, f"{here}.say", names)
            for name in branch.condition:
                if name != "found":
                    self._defined(name, names, f"{here}.if", "slots and columns")
                elif intent is None or intent.lookup is None:
                    raise ConfigError(f"{self._source}: {here}.if.found: there is no lookup to ask about")
                elif not set(branch.condition["found"]) <= {"true", "false"}:
                    raise ConfigError(f"{self._source}: {here}.if.found: expected true or false")
            if branch.menu is not None:
                self._defined(branch.menu, self._rules.menus, f"{here}.menu", "menus")
            if branch.ask is not None:
                self._defined(branch.ask, intent.slots if intent else (), f"{here}.ask", "this intent's slots")

    def _texts(self, texts: Sequence[str], where: str, names: frozenset[str]) -> None:
        for text in texts:
            for match in TEMPLATE.finditer(text):
                self._defined(match[1], names, where, "slots and columns")

    def _defined(self, name: str, names: Collection[str], where: str, what: str) -> None:
        if name not in names:
            raise ConfigError(
                f"{self._source}: {where}: {name!r} is not one of the {what} ({', '.join(sorted(names)) or 'none'})"
            )
