"""The shape of a rules file, and reading one. The language is documented in docs/hooks.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from agent.errors import ConfigError, HookError
from agent.nlu.actions import action_from_json, explain
from agent.nlu.hook import Action
from agent.plainyaml import read_plain_yaml

__all__ = ["TEMPLATE", "Branch", "Choice", "Intent", "Ladder", "Menu", "Reply", "RulesFile", "Slot", "read_rules"]

TEMPLATE = re.compile(r"\{([a-z][a-z0-9_]*)(?::(digits))?\}")
"""`{slot}` or `{slot:digits}` (spoken digit by digit) in a text."""

_Word = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]


def _check_text(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty")
    rest = TEMPLATE.sub("", text)
    if "{" in rest or "}" in rest:
        raise ValueError("a { or } that is no template; expected {slot} or {slot:digits}")
    return text


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _as_branches(value: Any) -> Any:
    if isinstance(value, str):
        return [{"say": [value]}]
    if isinstance(value, dict):
        return [value]
    if isinstance(value, list) and value and all(isinstance(entry, str) for entry in value):
        return [{"say": value}]
    return value


def _as_action(value: Any) -> Any:
    if isinstance(value, str):
        value = {"action": value}
    try:
        return action_from_json(value, "action", strict=False)
    except HookError as exc:
        raise ValueError(str(exc)) from None


_Text = Annotated[str, StringConstraints(max_length=2000), AfterValidator(_check_text)]
Texts = Annotated[list[_Text], BeforeValidator(_listed), Field(max_length=20)]
"""One text, or variants that take turns."""
_Strings = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=200)]], BeforeValidator(_listed), Field(min_length=1)
]
_Action = Annotated[Any, BeforeValidator(_as_action)]
_Keys = Annotated[str, StringConstraints(pattern=r"^[0-9*#A-D]+$", max_length=32)]
_Gap = Annotated[float, Field(ge=0.3, le=30)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Branch(_Part):
    """A reply and when to give it."""

    condition: dict[_Word, _Strings] = Field(default_factory=dict, alias="if")
    """`found: "true"` for the outcome of a look-up; a slot's or column's name and the values it may have."""
    say: Texts = Field(default_factory=list)
    do: list[_Action] = Field(default_factory=list, max_length=10)
    ask: _Word | None = None
    """A slot to forget and listen for again; `say` is the question."""
    menu: _Word | None = None
    """A menu to open once this is said and done."""

    @property
    def actions(self) -> list[Action]:
        """`do`, typed."""
        return self.do

    @model_validator(mode="after")
    def _says_something(self) -> Branch:
        if not self.say and not self.do and self.menu is None:
            raise ValueError("expected `say`, `do` or `menu`")
        if self.ask and not self.say:
            raise ValueError("`ask` needs `say`: the question")
        if self.ask and self.menu:
            raise ValueError("expected either `ask` or `menu`")
        return self


Reply = Annotated[list[Branch], BeforeValidator(_as_branches), Field(min_length=1, max_length=50)]


class Ladder(_Part):
    """What to say when something goes on: variants in turn, then, at the `after`-th time in a row, `then`."""

    say: Annotated[Texts, Field(min_length=1)]
    after: int = Field(3, ge=1, le=20)
    then: Reply | None = None


class Slot(_Part):
    """A piece of information to get from the caller."""

    type: Literal["digits", "name", "choice", "yes_no", "text"]
    ask: Annotated[Texts, Field(min_length=1)]
    again: Texts = Field(default_factory=list)
    """When the answer held no value; `ask` if empty."""
    more: Texts = Field(default_factory=list)
    """When some digits came but not all; `{heard:digits}` is what came. `again` if empty."""
    least: int = Field(1, ge=1, le=32)
    most: int = Field(32, ge=1, le=32)
    """Digits the number may have."""
    values: dict[str, _Strings] = Field(default_factory=dict)
    """choice: each value and the phrases that mean it."""
    tries: int = Field(3, ge=1, le=10)
    """Questions before giving up, which is what `fallback.then` does."""
    keep: bool = False
    """Remember the value for the rest of the call instead of asking each time."""
    gap_s: _Gap | None = None
    """digits: keys further apart are separate entries; 1.5 s if unset."""
    barge_in: bool = True
    """False: a key does not stop the question; it counts all the same."""

    @model_validator(mode="after")
    def _fits_its_type(self) -> Slot:
        if self.least > self.most:
            raise ValueError(f"least ({self.least}) is more than most ({self.most})")
        if (self.type == "choice") != bool(self.values):
            raise ValueError("`values` belongs to the type choice, which needs it")
        return self


class Lookup(_Part):
    """Finds the row of a table whose key is a slot's value."""

    table: _Word
    key: _Word


class Intent(_Part):
    """Something callers want, how they say it, and the answer."""

    name: _Word
    patterns: _Strings = Field(default_factory=list)
    unless: Annotated[list[str], BeforeValidator(_listed)] = Field(default_factory=list)
    """Patterns that rule the intent out."""
    keys: Annotated[list[_Keys], BeforeValidator(_listed)] = Field(default_factory=list)
    """Keys that mean this intent, such as "0"."""
    slots: list[_Word] = Field(default_factory=list)
    """Needed before the reply; asked for in this order."""
    uses: list[_Word] = Field(default_factory=list)
    """Taken from what was said if present; never asked for."""
    lookup: Lookup | None = None
    reply: Reply | None = None
    repeat: bool = False
    """Say the last reply again; an open question stays open."""

    @model_validator(mode="after")
    def _can_be_reached_and_answers(self) -> Intent:
        if not self.patterns and not self.keys:
            raise ValueError("expected `patterns`, `keys` or both")
        if (self.reply is None) != self.repeat:
            raise ValueError("expected either `reply` or `repeat: true`")
        return self


class Choice(_Part):
    """What keys in a menu do: one of these."""

    intent: _Word | None = None
    """As if the caller had said it."""
    menu: _Word | None = None
    reply: Reply | None = None
    repeat: bool = False
    """Say the menu again."""

    @model_validator(mode="after")
    def _does_one_thing(self) -> Choice:
        if sum((self.intent is not None, self.menu is not None, self.reply is not None, self.repeat)) != 1:
            raise ValueError("expected one of `intent`, `menu`, `reply` and `repeat: true`")
        return self


class Menu(_Part):
    """A prompt and what each key does after it. It stays open until another opens or a question is asked."""

    say: Annotated[Texts, Field(min_length=1)]
    again: Texts = Field(default_factory=list)
    """Said before the prompt when the keys mean nothing here."""
    keys: dict[_Keys, Choice] = Field(min_length=1, max_length=50)
    """Each entry and its choice; "012" is not "12". Entries of one length are taken without waiting."""
    tries: int = Field(3, ge=1, le=10)
    """Wrong entries before giving up, which is what `fallback.then` does."""
    gap_s: _Gap | None = None
    """Keys further apart are separate entries; 1.5 s if unset."""
    barge_in: bool = True
    """False: a key does not stop the prompt; it counts all the same."""


class RulesFile(_Part):
    """A whole rules file."""

    name: Annotated[str, StringConstraints(max_length=200)] = ""
    sets: dict[_Word, _Strings] = Field(default_factory=dict)
    slots: dict[_Word, Slot] = Field(default_factory=dict)
    tables: dict[_Word, dict[str, dict[_Word, str]]] = Field(default_factory=dict)
    menus: dict[_Word, Menu] = Field(default_factory=dict)
    greeting: Reply
    silence: Ladder | None = None
    fallback: Ladder
    intents: list[Intent] = Field(min_length=1, max_length=500)


def read_rules(file: Path) -> RulesFile:
    """Read and validate a rules file.

    Raises:
        ConfigError: it cannot be read, is not YAML, or breaks the language; names the field's path.
    """
    document = read_plain_yaml(file, "rules file")
    if not isinstance(document, dict):
        raise ConfigError(f"{file}: expected a mapping with greeting, fallback and intents")
    try:
        return RulesFile.model_validate(document)
    except ValidationError as exc:
        raise ConfigError(f"{file}: {explain(exc)}") from None
