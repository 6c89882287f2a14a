"""The dialogue that a rules file describes. Pure: a turn and a call's memory in, a list of texts and actions out.

The memory is one JSON-like mapping in the session's state; the dialogue itself is read-only and shared by all calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.errors import ConfigError
from agent.nlu.hook import Action, Expect, Listen, Turn
from agent.nlu.linear_regex import PatternError
from agent.nlu.phrases import Pattern, Utterance, words_of
from agent.nlu.rules_check import check_references
from agent.nlu.rules_file import TEMPLATE, Branch, Choice, Intent, Ladder, Menu, RulesFile, Slot
from agent.nlu.rules_menus import menu_listen, pressed_choice, spoken_choice
from agent.nlu.rules_slots import partial_digits, slot_value
from agent.nlu.spoken_digits import spell

__all__ = ["Dialogue"]

MEMORY_KEY = "rules"
"""Where in the session's state the dialogue keeps its memory."""

Items = list[str | Action]


@dataclass(slots=True)
class _Compiled:
    intent: Intent
    patterns: list[Pattern]
    unless: list[Pattern]


@dataclass(slots=True)
class _Memory:
    """What one call remembers between turns."""

    slots: dict[str, str] = field(default_factory=dict)
    intent: str = ""
    """The intent whose slot is being asked for; "" when no question is open."""
    slot: str = ""
    partial: str = ""
    asked: int = 0
    missed: int = 0
    silent: int = 0
    menu: str = ""
    """The menu whose keys count; "" when none was opened."""
    wrong: int = 0
    """Entries in a row that meant nothing in it."""
    rotation: dict[str, int] = field(default_factory=dict)
    last: str = ""

    def close_question(self) -> None:
        self.intent = self.slot = self.partial = ""
        self.asked = 0


class Dialogue:
    """Answers turns by a rules file."""

    def __init__(self, rules: RulesFile, source: str = "rules") -> None:
        """Compile. Raises ConfigError for a pattern or a reference that means nothing, naming its path."""
        self._rules = rules
        self._source = source
        self._known: frozenset[str] = frozenset()
        self._intents = [self._compile(intent, f"intents.{i}") for i, intent in enumerate(rules.intents)]
        self._by_name = {compiled.intent.name: compiled.intent for compiled in self._intents}
        if len(self._by_name) < len(self._intents):
            raise ConfigError(f"{source}: intents: two of them have the same name")
        self._known = frozenset(
            word for c in self._intents for pattern in c.patterns + c.unless for word in pattern.keywords
        )
        check_references(rules, source)

    def answer(self, turn: Turn) -> Items:
        """What to say and do. Updates the memory in `turn.session.state`."""
        memory = _load(turn.session.state)
        items = _spaced(self._answer(turn, memory))
        if memory.menu and not memory.slot and items and not any(isinstance(item, Listen) for item in items):
            items.append(menu_listen(self._rules.menus[memory.menu]))
        said = "".join(item for item in items if isinstance(item, str))
        if said:
            memory.last = said
        turn.session.state[MEMORY_KEY] = _dump(memory)
        return items

    def greetings(self) -> list[str]:
        """Its greetings without a template."""
        texts = [text for branch in self._rules.greeting for text in branch.say]
        return [text for text in texts if not TEMPLATE.search(text)]

    def openings(self) -> list[str]:
        """Every text without a template: what this dialogue is likely to say."""
        replies = [self._rules.greeting, *(c.intent.reply or [] for c in self._intents)]
        texts = [text for reply in replies for branch in reply for text in branch.say]
        texts += [text for slot in self._rules.slots.values() for text in slot.ask]
        texts += [text for menu in self._rules.menus.values() for text in menu.say]
        texts += self._rules.fallback.say + (self._rules.silence.say if self._rules.silence else [])
        return [text for text in texts if not TEMPLATE.search(text)]

    def _answer(self, turn: Turn, memory: _Memory) -> Iterator[str | Action]:
        if turn.kind == "greeting":
            yield from self._give(self._rules.greeting, memory, "greeting", {})
        elif turn.kind == "silence":
            yield from self._silence(memory)
        elif turn.kind in ("speech", "dtmf"):
            memory.silent = 0
            if turn.kind == "dtmf":
                yield from self._keys(turn.text, memory)
            else:
                yield from self._speech(Utterance(words_of(turn.text), self._known), memory)

    def _silence(self, memory: _Memory) -> Iterator[str | Action]:
        ladder = self._rules.silence
        if ladder is None:
            return
        memory.silent += 1
        if memory.silent >= ladder.after and ladder.then is not None:
            yield from self._give(ladder.then, memory, "silence.then", {})
        elif memory.slot and memory.silent == 1:
            slot = self._rules.slots[memory.slot]
            yield from self._question(slot, slot.again or slot.ask, memory)
        elif memory.menu and memory.silent == 1:
            yield from self._prompt(memory)
        else:
            yield self._turn_of(ladder.say, memory, "silence")

    def _keys(self, keys: str, memory: _Memory) -> Iterator[str | Action]:
        slot = self._rules.slots.get(memory.slot)
        if slot is not None and slot.type == "digits" and any(key.isdigit() for key in keys):
            if "*" in keys:  # the caller starts over
                memory.partial, keys = "", keys.rpartition("*")[2]
            digits = "".join(key for key in keys if key.isdigit())
            yield from self._fill(Utterance((digits,) if digits else ()), memory)
            return
        menu = self._rules.menus.get(memory.menu)
        if menu is not None and (choice := pressed_choice(menu, keys)) is not None:
            yield from self._choose(choice, memory)
            return
        for compiled in self._intents:
            if keys in compiled.intent.keys:
                yield from self._begin(compiled.intent, Utterance(()), memory)
                return
        if menu is not None and not memory.slot:
            yield from self._wrong_key(menu, memory)
            return
        yield from self._speech(Utterance((keys.strip("*#"),), self._known), memory)

    def _choose(self, choice: Choice, memory: _Memory) -> Iterator[str | Action]:
        memory.wrong = 0
        memory.close_question()
        if choice.intent is not None:
            yield from self._begin(self._by_name[choice.intent], Utterance(()), memory)
        elif choice.menu is not None:
            yield from self._open(choice.menu, memory)
        elif choice.reply is not None:
            yield from self._give(choice.reply, memory, f"{memory.menu}.choice", {})
        else:
            yield from self._prompt(memory)

    def _wrong_key(self, menu: Menu, memory: _Memory) -> Iterator[str | Action]:
        memory.wrong += 1
        if memory.wrong >= menu.tries:
            memory.wrong = 0
            yield from self._give_up(memory)
            return
        yield menu_listen(menu)
        if menu.again:
            yield self._turn_of(menu.again, memory, f"{memory.menu}.again")
        yield self._turn_of(menu.say, memory, f"{memory.menu}.menu")

    def _open(self, name: str, memory: _Memory) -> Iterator[str | Action]:
        memory.menu, memory.wrong = name, 0
        memory.close_question()
        yield from self._prompt(memory)

    def _prompt(self, memory: _Memory) -> Iterator[str | Action]:
        menu = self._rules.menus[memory.menu]
        # Before the prompt, so that whether a key stops it holds from its first word.
        yield menu_listen(menu)
        yield self._turn_of(menu.say, memory, f"{memory.menu}.menu")

    def _speech(self, utterance: Utterance, memory: _Memory) -> Iterator[str | Action]:
        if not utterance.words or not any(utterance.words):
            yield from self._miss(memory)
            return
        menu = self._rules.menus.get(memory.menu)
        if menu is not None and not memory.slot and (choice := spoken_choice(menu, utterance)) is not None:
            yield from self._choose(choice, memory)
            return
        intent = self._best(utterance)
        if intent is not None and intent.repeat:
            yield from self._repeat(memory)
            return
        if memory.slot:
            slot = self._rules.slots[memory.slot]
            value = slot_value(slot, utterance, pending=True)
            # A free answer could hold any words, so an intent's own words win over it; over a whole number they do not.
            definite = value is not None and slot.type not in ("name", "text")
            if intent is None or definite or intent.name == memory.intent:
                yield from self._fill(utterance, memory)
                return
            memory.close_question()
        if intent is None:
            yield from self._miss(memory)
        else:
            yield from self._begin(intent, utterance, memory)

    def _best(self, utterance: Utterance) -> Intent | None:
        best: tuple[float, Intent | None] = (0.0, None)
        for compiled in self._intents:
            score = max((p.score(utterance, self._has_slot) for p in compiled.patterns), default=0.0)
            if score > best[0] and not any(p.score(utterance, self._has_slot) for p in compiled.unless):
                best = score, compiled.intent
        return best[1]

    def _has_slot(self, name: str, utterance: Utterance) -> bool:
        return slot_value(self._rules.slots[name], utterance, pending=False) is not None

    def _begin(self, intent: Intent, utterance: Utterance, memory: _Memory) -> Iterator[str | Action]:
        memory.missed = 0
        memory.close_question()
        for name in [*intent.slots, *intent.uses]:
            slot = self._rules.slots[name]
            value = slot_value(slot, utterance, pending=False)
            if value is not None:
                memory.slots[name] = value
            elif not slot.keep:
                memory.slots.pop(name, None)
        yield from self._continue(intent, memory)

    def _continue(self, intent: Intent, memory: _Memory) -> Iterator[str | Action]:
        """Ask for the first slot that is missing, or give the reply."""
        for name in intent.slots:
            if name not in memory.slots:
                slot = self._rules.slots[name]
                memory.intent, memory.slot, memory.partial, memory.asked = intent.name, name, "", 1
                yield from self._question(slot, slot.ask, memory)
                return
        asked = memory.asked
        memory.close_question()
        values = dict(memory.slots)
        found: bool | None = None
        if intent.lookup is not None:
            row = self._rules.tables[intent.lookup.table].get(memory.slots[intent.lookup.key])
            found = row is not None
            values.update(row or {})
        yield from self._give(intent.reply or [], memory, intent.name, values, found, intent, asked)

    def _fill(self, utterance: Utterance, memory: _Memory) -> Iterator[str | Action]:
        """Read the answer to the open question."""
        name, intent = memory.slot, self._by_name[memory.intent]
        slot = self._rules.slots[name]
        value: str | None = None
        if memory.partial:  # the rest of a number, or the whole number again
            joined = partial_digits(slot, utterance, memory.partial)
            whole = slot_value(slot, utterance, pending=True)
            value = whole or (joined if len(joined) >= slot.least else None)
        else:
            value = slot_value(slot, utterance, pending=True)
        if value is not None:
            memory.missed = 0
            memory.slots[name] = value
            memory.slot = memory.partial = ""
            yield from self._continue(intent, memory)
            return
        came = partial_digits(slot, utterance, memory.partial) if slot.type == "digits" else ""
        if came and came != memory.partial:
            memory.partial = came
            yield from self._question(slot, slot.more or slot.again or slot.ask, memory)
            return
        memory.partial = ""
        memory.asked += 1
        if memory.asked > slot.tries:
            memory.close_question()
            yield from self._give_up(memory)
            return
        yield from self._question(slot, slot.again or slot.ask, memory)

    def _question(self, slot: Slot, texts: Sequence[str], memory: _Memory) -> Iterator[str | Action]:
        text = self._turn_of(texts, memory, f"{memory.slot}.{texts[0]}")
        listen = _listen(slot, memory.partial)
        if not slot.barge_in:
            yield listen
        yield _render(text, {**memory.slots, "heard": memory.partial})
        if slot.barge_in:
            yield listen

    def _repeat(self, memory: _Memory) -> Iterator[str | Action]:
        if memory.last:
            yield memory.last
        else:
            yield from self._miss(memory)
        if memory.slot:
            yield _listen(self._rules.slots[memory.slot], memory.partial)

    def _miss(self, memory: _Memory) -> Iterator[str | Action]:
        ladder: Ladder = self._rules.fallback
        memory.missed += 1
        if memory.missed >= ladder.after and ladder.then is not None:
            yield from self._give_up(memory)
        else:
            yield self._turn_of(ladder.say, memory, "fallback")

    def _give_up(self, memory: _Memory) -> Iterator[str | Action]:
        memory.missed = 0
        ladder = self._rules.fallback
        if ladder.then is not None:
            yield from self._give(ladder.then, memory, "fallback.then", {})
        else:
            yield self._turn_of(ladder.say, memory, "fallback")

    def _give(
        self,
        reply: Sequence[Branch],
        memory: _Memory,
        key: str,
        values: Mapping[str, str],
        found: bool | None = None,
        intent: Intent | None = None,
        asked: int = 0,
    ) -> Iterator[str | Action]:
        for index, branch in enumerate(reply):
            if not _applies(branch, values, found):
                continue
            if branch.ask is not None and intent is not None:
                slot = self._rules.slots[branch.ask]
                if asked >= slot.tries:
                    yield from self._give_up(memory)
                    return
            if branch.say:
                yield _render(self._turn_of(branch.say, memory, f"{key}.{index}"), values)
            yield from branch.actions
            if branch.ask is not None and intent is not None:
                memory.slots.pop(branch.ask, None)
                memory.intent, memory.slot, memory.asked = intent.name, branch.ask, asked + 1
                yield _listen(self._rules.slots[branch.ask], "")
            if branch.menu is not None:
                yield from self._open(branch.menu, memory)
            return

    def _turn_of(self, texts: Sequence[str], memory: _Memory, key: str) -> str:
        turn = memory.rotation.get(key, 0)
        if len(texts) > 1:
            memory.rotation[key] = (turn + 1) % len(texts)
        return texts[turn % len(texts)]

    def _compile(self, intent: Intent, where: str) -> _Compiled:
        def patterns(sources: Sequence[str], name: str) -> list[Pattern]:
            compiled = []
            for index, source in enumerate(sources):
                try:
                    compiled.append(Pattern(source, self._rules.sets, self._rules.slots))
                except PatternError as exc:
                    raise ConfigError(f"{self._source}: {where}.{name}.{index}: {exc}") from None
            return compiled

        return _Compiled(intent, patterns(intent.patterns, "patterns"), patterns(intent.unless, "unless"))


def _spaced(items: Iterable[str | Action]) -> Items:
    """With a space between texts, which are pieces of one reply."""
    spaced: Items = []
    said = False
    for item in items:
        spaced.append(f" {item}" if said and isinstance(item, str) else item)
        said = said or isinstance(item, str)
    return spaced


def _applies(branch: Branch, values: Mapping[str, str], found: bool | None) -> bool:
    for name, allowed in branch.condition.items():
        value = str(found).lower() if name == "found" else values.get(name)
        if value not in allowed:
            return False
    # A text can only be said when everything it mentions is known.
    return all(match[1] in values for text in branch.say for match in TEMPLATE.finditer(text))


def _render(text: str, values: Mapping[str, str]) -> str:
    return TEMPLATE.sub(lambda m: spell(values.get(m[1], "")) if m[2] else values.get(m[1], ""), text)


def _listen(slot: Slot, partial: str) -> Listen:
    if slot.type == "digits":
        least, most = max(1, slot.least - len(partial)), max(1, slot.most - len(partial))
        return Listen(
            "digits",
            min_digits=least,
            dtmf_barge_in=slot.barge_in,
            # A number of any length ends with # or a pause, not as soon as it could.
            max_digits=most if most > least else None,
            digit_gap_s=slot.gap_s,
        )
    expect: Expect = "name" if slot.type == "name" else "yes_no" if slot.type == "yes_no" else "free"
    return Listen(expect, dtmf_barge_in=slot.barge_in)


def _load(state: Mapping[str, Any]) -> _Memory:
    saved = state.get(MEMORY_KEY)
    if not isinstance(saved, Mapping):
        return _Memory()
    memory = _Memory(**{key: saved[key] for key in _Memory.__slots__ if key in saved})
    memory.slots, memory.rotation = dict(memory.slots), dict(memory.rotation)
    return memory


def _dump(memory: _Memory) -> MutableMapping[str, Any]:
    return {key: getattr(memory, key) for key in _Memory.__slots__}
