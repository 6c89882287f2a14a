"""Runs a scenario against a hook in virtual time and says, expectation by expectation, how it went."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.config import Settings, load_settings
from agent.errors import ConfigError, ProtocolError
from agent.events import ClientData, DtmfSent, TransferRequested
from agent.media.frames import FRAME_MS
from agent.nlu.actions import explain
from agent.nlu.factory import create_nlu
from agent.nlu.hook import Nlu
from agent.replay.engines import ComputeModel
from agent.testing import scenario as steps
from agent.testing.caller import Said, VirtualCall
from agent.testing.scenario import Pattern, Scenario, find_scenarios, read_scenario
from agent.testing.stage import Stage
from agent.testing.virtualtime import run_virtual

__all__ = ["Check", "Report", "check_scenario", "run_scenario", "scenario_files"]

QUIET_S = 3.0
"""What was not said when nobody has had the floor for so long will not be said."""

PATIENCE_S = 120.0
"""Virtual seconds that a step may wait in all: longer than any reply."""

FRAME_S = FRAME_MS / 1000


@dataclass(frozen=True, slots=True)
class Check:
    """How one expectation went. `at_s` counts from the start of the call."""

    step: int
    wanted: str
    passed: bool
    at_s: float
    found: str


@dataclass(frozen=True, slots=True)
class Report:
    """How a scenario went."""

    name: str
    file: Path
    checks: tuple[Check, ...]
    transcript: str

    @property
    def passed(self) -> bool:
        """Whether every expectation was met."""
        return all(check.passed for check in self.checks)

    def failures(self) -> str:
        """What was not met, one line each; empty when all was."""
        return "\n".join(
            f"step {check.step}, {check.at_s:.2f} s: expected {check.wanted}; {check.found}"
            for check in self.checks
            if not check.passed
        )


def run_scenario(scenario: Scenario, settings: Settings) -> Report:
    """Run it against the hook of `settings`; blocks. Raises ConfigError when the hook or a setting is wrong."""
    return run_virtual(_run(scenario, _with(settings, scenario)))


def scenario_files(*paths: str | Path) -> list[Path]:
    """Scenario files, folders searched: for `pytest.mark.parametrize`. Raises ConfigError."""
    return find_scenarios([Path(path) for path in paths])


def check_scenario(file: str | Path, hook: str | None = None, *, settings: Settings | None = None) -> Report:
    """Run a scenario file in a test.

    Args:
        file: the scenario.
        hook: `package.module:object` or `./file.py:object`; by default the hook of the settings.
        settings: by default those of `rejoinder.toml` and the environment.

    Raises:
        AssertionError: an expectation was not met; holds all of them and the transcript.
        ConfigError: the file, the hook or a setting is wrong.
    """
    if settings is None:
        settings = load_settings()
    if hook is not None:
        nlu = settings.nlu.model_copy(update={"kind": "function", "target": hook})
        settings = settings.model_copy(update={"nlu": nlu})
    report = run_scenario(read_scenario(Path(file)), settings)
    assert report.passed, f"{report.file}: {report.name}\n{report.failures()}\n{report.transcript}"
    return report


def _with(settings: Settings, scenario: Scenario) -> Settings:
    changed = {}
    for group, values in scenario.settings.items():
        model = getattr(settings, group)
        try:
            changed[group] = type(model)(**{**model.model_dump(), **values})
        except ValidationError as exc:
            told = explain(exc, f"settings.{group}").replace("Value error, ", "")
            raise ConfigError(f"{scenario.file}: {told}") from None
    return settings.model_copy(update=changed)


async def _run(scenario: Scenario, settings: Settings) -> Report:
    nlu = create_nlu(settings.nlu)
    try:
        return await _play(scenario, settings, nlu)
    finally:
        close = getattr(nlu, "close", None)
        if close is not None:
            await close()


async def _play(scenario: Scenario, settings: Settings, nlu: Nlu) -> Report:
    engines = scenario.engines
    timing = ComputeModel(engines.asr_ms / 1000, engines.hook_ms / 1000, engines.voice_ms / 1000)
    async with Stage(nlu, settings=settings, timing=timing) as stage:
        try:
            call = await stage.call(
                call_id="call_check",
                channel=scenario.channel,
                language=scenario.language,
                caller=scenario.caller,
                state=scenario.state,
            )
        except ProtocolError as exc:
            raise ConfigError(f"{scenario.file}: {exc.field}: {exc}") from None
        player = _Player(call)
        for number, step in enumerate(scenario.steps, 1):
            await player.step(number, step)
        return Report(scenario.name, scenario.file, tuple(player.checks), call.transcript())


class _Player:
    """Plays a scenario's steps on one call."""

    def __init__(self, call: VirtualCall) -> None:
        self.checks: list[Check] = []
        self._call = call
        self._taken = 0
        """Replies that earlier steps have matched or passed over."""
        self._acted_at = 0.0
        """When the caller's last act began."""

    async def step(self, number: int, step: steps.Step) -> None:
        """Do or check one step."""
        if isinstance(step, steps.Act):
            await self._act(number, step)
        elif isinstance(step, steps.Agent):
            self.checks.append(await self._agent(number, step))
        elif isinstance(step, steps.Absent):
            self.checks.append(await self._absent(number, step))
        else:
            self.checks.append(await self._fact(number, step))

    # -- the caller ----------------------------------------------------------------------------------------------------

    async def _act(self, number: int, step: steps.Act) -> None:
        call = self._call
        after: Pattern | None = step.after
        if after is not None and self._over(after):
            self._missed(number, f"the agent still to speak after {after!r} (an agent step waits for the reply's end)")
        elif after is not None and not await self._wait(lambda: after.end(self._spoken(whole=True)) is not None):
            self._missed(number, f"the agent to say {after!r} first")
        if step.after_ms is not None:
            if await self._wait(self._sounding):
                await call.pause(step.after_ms / 1000)
            else:
                self._missed(number, "the agent to be audible first")
        if call.ended is not None:
            return
        if not isinstance(step, steps.Pause):
            self._acted_at = call.now_s
        match step:
            case steps.Caller():
                await call.says(step.caller, step.seconds)
            case steps.Backchannel():
                await call.backchannel(step.backchannel, step.seconds or 0.35)
            case steps.Noise():
                await call.noise(step.noise)
            case steps.Presses():
                await call.presses(step.presses)
            case steps.Types():
                await call.types(step.types)
            case steps.HangsUp():
                await call.hangs_up()
            case steps.Pause():
                await call.pause(step.pause)

    def _over(self, pattern: Pattern) -> bool:
        """Whether a reply that has ended said this since the caller's last act."""
        ended = [said for said in self._call.replies if said.end_s >= self._acted_at]
        spoken = [self._spoken_between(max(said.start_s, self._acted_at), said.end_s) for said in ended]
        return any(pattern.end(text) is not None for text in spoken)

    def _missed(self, number: int, wanted: str) -> None:
        self.checks.append(Check(number, wanted, False, self._call.now_s, self._instead([])))

    # -- what the agent says -------------------------------------------------------------------------------------------

    async def _agent(self, number: int, step: steps.Agent) -> Check:
        call = self._call
        passed_over: list[Said] = []

        def matching() -> Said | None:
            said = call.replies[self._taken :]
            passed_over[:] = [one for one in said if one.text]
            return next((one for one in said if self._matches(step, one)), None)

        limit_s = None if step.within_ms is None else step.within_ms / 1000
        found = await self._wait(matching, limit_s)
        wanted = f"agent: {step.agent!r}"
        wanted += "" if step.after is None else f" after {step.after!r}"
        wanted += "" if step.absent is None else f" without {step.absent!r}"
        wanted += "" if step.within_ms is None else f" within {step.within_ms:g} ms"
        if found is None:
            # What came in its place is spoken for: the next step is about what comes next.
            self._taken = len(call.replies)
            return Check(number, wanted, False, call.now_s, self._instead(passed_over))
        self._taken = call.replies.index(found) + 1
        # What interrupted a reply is not what it came after.
        before = [at for at, *_ in call.acts if at <= found.start_s]
        after_ms = (found.start_s - max(before, default=0.0)) * 1000
        late = step.within_ms is not None and after_ms > step.within_ms
        told = f"after {max(0.0, after_ms):.0f} ms"
        return Check(number, wanted, not late, found.start_s, f"late: {told}" if late else told)

    def _matches(self, step: steps.Agent, said: Said) -> bool:
        # As it was written, or as it was spoken: numbers in words, for example.
        for text in (said.text, self._spoken_between(said.start_s, said.end_s)):
            rest = text if step.after is None else step.after.rest(text)
            if rest is not None and step.agent.end(rest) is not None:
                return step.absent is None or step.absent.end(said.text) is None
        return False

    async def _absent(self, number: int, step: steps.Absent) -> Check:
        call = self._call
        limit_s = None if step.within_ms is None else step.within_ms / 1000
        await self._wait(lambda: self._heard(step.absent), limit_s, whole=limit_s is not None)
        wanted = f"absent: {step.absent!r}"
        if self._heard(step.absent):
            return Check(number, wanted, False, call.now_s, self._instead(self._recent()))
        return Check(number, wanted, True, call.now_s, "not said")

    def _heard(self, pattern: Pattern) -> bool:
        texts = [self._spoken(), *(said.text for said in self._recent())]
        return any(pattern.end(text) is not None for text in texts if text)

    def _recent(self) -> list[Said]:
        return [said for said in self._call.replies if said.text and said.start_s >= self._acted_at]

    # -- facts ---------------------------------------------------------------------------------------------------------

    async def _fact(self, number: int, step: steps.Step) -> Check:
        call = self._call
        wanted, look = self._look(step)
        limit_ms = step.within_ms if isinstance(step, steps.Expectation) else None
        limit_s = None if limit_ms is None else limit_ms / 1000
        found = await self._wait(lambda: look()[0], limit_s)
        return Check(number, wanted, bool(found), call.now_s, look()[1])

    def _look(self, step: steps.Step) -> tuple[str, Callable[[], tuple[bool, str]]]:
        """What is wanted, and a look at (whether it is so, what is so)."""
        call = self._call
        match step:
            case steps.Understood():
                return f"understood: {step.understood!r}", lambda: (
                    any(step.understood.end(text) is not None for text in self._understood()),
                    f"understood: {' / '.join(self._understood()) or 'nothing'}",
                )
            case steps.Dtmf():
                return f"dtmf: {step.dtmf}", lambda: (
                    step.dtmf in "".join(event.digits for event in call.of(DtmfSent)),
                    f"sent: {''.join(event.digits for event in call.of(DtmfSent)) or 'nothing'}",
                )
            case steps.Action(action=action):
                (name,) = action.model_fields_set
                value = getattr(action, name)
                return f"action: {name} {value}", lambda: _acted(call, name, value)
            case steps.State():
                return f"state: {step.state}", lambda: (
                    same(dict(call.call.session.state), step.state),
                    f"state: { {key: call.call.session.state.get(key) for key in step.state} }",
                )
            case steps.Language():
                return f"language: {step.language}", lambda: (
                    call.call.language == step.language,
                    f"language: {call.call.language}",
                )
            case steps.Ended():
                return f"ended: {step.ended!r}", lambda: (
                    call.ended is not None and step.ended.end(call.ended) is not None,
                    f"ended: {call.ended or 'not yet'}",
                )
            case _:
                raise AssertionError(f"not a fact: {type(step).__name__}")

    def _understood(self) -> list[str]:
        """What the caller said, and entered: digits are in no transcript."""
        return [*self._call.turns, *(turn.text for turn in self._call.asked if turn.kind == "dtmf")]

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def _wait(self, look: Callable[[], Any], limit_s: float | None = None, *, whole: bool = False) -> Any:
        """Wait for `look()` to be true, as long as it still may; `whole`: all of the limit, whoever has the floor."""
        call = self._call
        began = call.now_s
        quiet_since = began
        while True:
            found = look()
            if found or call.ended is not None:
                return found
            now = call.now_s
            if call.floor != "nobody":
                quiet_since = now
            # A limit counts from the caller's last act; what comes too late is worth knowing too.
            over = limit_s is None or now >= (began if whole else call.last_act_s) + limit_s
            if (over and (whole or now - quiet_since >= QUIET_S)) or now - began >= PATIENCE_S + (limit_s or 0.0):
                return found
            await call.next_tick()

    def _sounding(self) -> bool:
        sounds = self._call.sounds
        return bool(sounds) and sounds[-1][1] >= self._call.now_s - FRAME_S / 2

    def _spoken(self, *, whole: bool = False) -> str:
        """What was heard since the caller's last act; `whole`: but the word that is being said."""
        words = [word for word in self._call.words if word.start_s >= self._acted_at]
        if whole and words and words[-1].end_s >= self._call.now_s and self._sounding():
            words.pop()
        return " ".join(word.text for word in words)

    def _spoken_between(self, start_s: float, end_s: float) -> str:
        return " ".join(w.text for w in self._call.words if start_s - FRAME_S <= w.start_s <= end_s)

    def _instead(self, said: list[Said]) -> str:
        texts = [f'"{one.text}" at {one.start_s:.2f} s' for one in said if one.text]
        if not texts and (spoken := self._spoken()):
            texts = [f'"{spoken}"']
        over = f"; the call ended: {self._call.ended}" if self._call.ended else ""
        return (f"said: {', '.join(texts)}" if texts else "nothing was said") + over


def _acted(call: VirtualCall, name: str, value: Any) -> tuple[bool, str]:
    match name:
        case "transfer":
            to = [event.to for event in call.of(TransferRequested)]
            return value in to, f"transferred to: {', '.join(to) or 'nobody'}"
        case "send":
            sent = [dict(event.data) for event in call.of(ClientData)]
            return any(same(data, value) for data in sent), f"sent: {sent or 'nothing'}"
        case _:
            return call.call.voice == value, f"voice: {call.call.voice}"


def same(found: object, wanted: object) -> bool:
    """Whether a value is what a file of texts says: mappings may hold more, `true` is True, `2` is 2 or "2"."""
    match wanted:
        case Mapping():
            return isinstance(found, Mapping) and all(
                key in found and same(found[key], value) for key, value in wanted.items()
            )
        case list():
            return (
                isinstance(found, list | tuple)
                and len(found) == len(wanted)
                and all(same(one, other) for one, other in zip(found, wanted, strict=True))
            )
        case str() if isinstance(found, bool):
            return wanted.lower() == str(found).lower()
        case str() if found is None:
            return wanted in ("null", "")
        case _:
            return str(found) == wanted
