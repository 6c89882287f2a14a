"""Scenario files: what a caller does and what must come of it. docs/testing.md describes the language."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agent.errors import ConfigError
from agent.media.dtmf import DIGITS
from agent.nlu.actions import explain
from agent.nlu.hook import Channel
from agent.plainyaml import read_plain_yaml
from agent.testing.plain import plain

__all__ = ["Act", "Expectation", "Pattern", "Scenario", "Step", "find_scenarios", "read_scenario"]

ENDINGS = (".yaml", ".yml")
SETTINGS = ("conversation", "listening", "phrases")
"""Groups of settings that a scenario may change: those that shape a call and need nothing of the machine."""

MAX_STEPS = 500


class Pattern:
    """What the agent should say: words that must be in it, or `/regex/`; case does not count.

    Words are compared without case, punctuation and doubled spaces. Raises ValueError for a bad regex.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._regex: re.Pattern[str] | None = None
        if len(source) > 2 and source.startswith("/") and source.endswith("/"):
            try:
                self._regex = re.compile(source[1:-1], re.IGNORECASE)
            except re.error as exc:
                raise ValueError(f"not a regular expression: {exc}") from None
        elif not plain(source):
            raise ValueError("expected words, or /a regular expression/")

    def __repr__(self) -> str:
        return self.source if self._regex is not None else f'"{self.source}"'

    def end(self, text: str) -> int | None:
        """Where its first match ends in `text` (of the plain form, for words); None without one."""
        if self._regex is not None:
            match = self._regex.search(text)
            return None if match is None else match.end()
        # Whole words only: "nine" is not in "ninety".
        at = f" {plain(text)} ".find(f" {plain(self.source)} ")
        return None if at < 0 else at + len(plain(self.source))

    def rest(self, text: str) -> str | None:
        """What of `text` follows its first match; None without one."""
        end = self.end(text)
        return None if end is None else (text if self._regex is not None else plain(text))[end:]


def _pattern(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("expected text")
    return Pattern(value)


def _keys(value: str) -> str:
    if not value or set(value.upper()) - set(DIGITS):
        raise ValueError("expected keys: 0-9 * # A-D")
    return value.upper()


def _yes(value: Any) -> Any:
    if value not in ("true", "yes", ""):
        raise ValueError("expected true")
    return True


def _words(value: str) -> str:
    if not plain(value):
        raise ValueError("expected words")
    return value


_Pattern = Annotated[Any, BeforeValidator(_pattern)]
_Keys = Annotated[str, AfterValidator(_keys)]
_Words = Annotated[str, AfterValidator(_words)]
_Yes = Annotated[Literal[True], BeforeValidator(_yes)]
_Seconds = Annotated[float, Field(gt=0, le=600)]
_Milliseconds = Annotated[float, Field(ge=0, le=600_000)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class Act(_Part):
    """Something the caller does. `after`: as soon as the agent has said this, since the caller's last act."""

    after: _Pattern | None = None
    after_ms: _Milliseconds | None = None
    """This long after the agent's next sound."""


class Caller(Act):
    """The caller speaks."""

    caller: _Words
    seconds: _Seconds | None = None


class Backchannel(Act):
    """A listener's word over the agent."""

    backchannel: _Words
    seconds: _Seconds | None = None


class Noise(Act):
    """A sound without words."""

    noise: _Seconds


class Presses(Act):
    """Keys."""

    presses: _Keys


class Types(Act):
    """A typed message."""

    types: _Words


class HangsUp(Act):
    """The caller hangs up."""

    hangs_up: _Yes


class Pause(Act):
    """The caller says nothing."""

    pause: _Seconds


class Expectation(_Part):
    """Something that must come of it, within the time since the caller's last act."""

    within_ms: _Milliseconds | None = None


class Agent(Expectation):
    """The agent says this."""

    agent: _Pattern
    after: _Pattern | None = None
    absent: _Pattern | None = None


class Absent(Expectation):
    """The agent has not said this since the caller's last act, nor does it until it is quiet, or within the time."""

    absent: _Pattern


class Understood(Expectation):
    """The hook was given this as the caller's turn."""

    understood: _Pattern


class Dtmf(Expectation):
    """The agent pressed these keys."""

    dtmf: _Keys


class _Action(_Part):
    transfer: str | None = None
    send: dict[str, Any] | None = None
    voice: str | None = None


def _one_action(action: _Action) -> _Action:
    if len(action.model_fields_set) != 1:
        raise ValueError("expected one of transfer, send, voice")
    return action


class Action(Expectation):
    """An action was carried out."""

    action: Annotated[_Action, AfterValidator(_one_action)]


class State(Expectation):
    """The hook's memory of the call holds this, and perhaps more."""

    state: dict[str, Any]


class Language(Expectation):
    """The call goes on in this language."""

    language: str


class Ended(Expectation):
    """The call is over, for this reason."""

    ended: _Pattern


Step = (
    Caller
    | Backchannel
    | Noise
    | Presses
    | Types
    | HangsUp
    | Pause
    | Agent
    | Absent
    | Understood
    | Dtmf
    | Action
    | State
    | Language
    | Ended
)

KINDS: dict[str, type[Step]] = {
    "caller": Caller,
    "backchannel": Backchannel,
    "noise": Noise,
    "presses": Presses,
    "types": Types,
    "hangs_up": HangsUp,
    "pause": Pause,
    "agent": Agent,
    "absent": Absent,
    "understood": Understood,
    "dtmf": Dtmf,
    "action": Action,
    "state": State,
    "language": Language,
    "ended": Ended,
}


class Engines(_Part):
    """How long engines take, in milliseconds of the call."""

    asr_ms: _Milliseconds = 0.0
    hook_ms: _Milliseconds = 0.0
    voice_ms: _Milliseconds = 0.0


class _Head(_Part):
    name: str = ""
    language: str | None = None
    channel: str = "browser"
    caller: str | None = None
    state: dict[str, Any] = Field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict)
    engines: Engines = Field(default_factory=Engines)
    steps: Annotated[list[Any], Field(min_length=1, max_length=MAX_STEPS)]


class Scenario:
    """A scenario, ready to be run. Made by `read_scenario`."""

    def __init__(self, file: Path, head: _Head, steps: Sequence[Step]) -> None:
        self.file = file
        self.name = head.name or file.stem
        self.language = head.language
        self.channel: Channel = head.channel  # type: ignore[assignment]  # checked by read_scenario
        self.caller = head.caller
        self.state = head.state
        self.settings = head.settings
        self.engines = head.engines
        self.steps = tuple(steps)


def read_scenario(file: Path) -> Scenario:
    """Read a scenario file. Raises ConfigError naming the file, the step and the field."""
    document = read_plain_yaml(file, "scenario file")
    if not isinstance(document, dict):
        raise ConfigError(f"{file}: expected a mapping with steps")
    head = _valid(_Head, document, str(file))
    for group in head.settings:
        if group not in SETTINGS:
            raise ConfigError(f"{file}: settings.{group}: expected one of {', '.join(SETTINGS)}")
    if head.channel not in get_args(Channel):
        raise ConfigError(f"{file}: channel: expected one of {', '.join(get_args(Channel))}, got {head.channel!r}")
    return Scenario(file, head, [_step(file, number, step) for number, step in enumerate(head.steps, 1)])


def find_scenarios(paths: Sequence[Path]) -> list[Path]:
    """The files named, and all scenario files in the folders named, in order. Raises ConfigError when one has none."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(file for file in path.rglob("*") if file.suffix in ENDINGS and file.is_file())
        if not inside:
            raise ConfigError(f"{path}: there is no scenario file (*.yaml) in this folder")
        found += inside
    return found


def _step(file: Path, number: int, step: Any) -> Step:
    where = f"{file}: step {number}"
    if not isinstance(step, dict):
        raise ConfigError(f"{where}: expected a mapping such as `agent: words`")
    # `agent` may bear an `absent` beside it, so the first kind in this order names the step.
    kind = next((kind for kind in KINDS if kind in step), None)
    if kind is None:
        raise ConfigError(f"{where}: expected one of {', '.join(KINDS)}; got {', '.join(map(str, step)) or 'nothing'}")
    return _valid(KINDS[kind], step, f"{where} ({kind})")


M = TypeVar("M", bound=BaseModel)


def _valid(model: type[M], value: Any, where: str) -> M:
    try:
        return model.model_validate(value)
    except ValidationError as exc:
        raise ConfigError(f"{where}: {explain(exc).replace('Value error, ', '')}") from None
