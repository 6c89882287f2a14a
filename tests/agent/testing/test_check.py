"""Scenarios are run against a hook: what is met passes, what is not fails and says what came instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.config import Settings
from agent.errors import ConfigError
from agent.testing.check import Report, check_scenario, run_scenario, same, scenario_files
from agent.testing.scenario import read_scenario

EXAMPLES = Path(__file__).parents[3] / "agent" / "testing" / "examples"

HOOK = """
import asyncio
from agent import Dtmf, Hangup, Listen, Send, SwitchLanguage, SwitchVoice, Transfer, on_turn


@on_turn
async def reply(turn):
    state = turn.session.state
    text = turn.text.lower()
    if turn.kind == "greeting":
        yield "Hello! How can I help?"
    elif turn.kind == "dtmf":
        state["order"] = turn.text
        yield f"Order {turn.text} is on its way."
    elif "slow" in text:
        await asyncio.sleep(2)
        yield "At last."
    elif "hours" in text:
        yield "We open at nine in the morning and close at six in the evening on every day of the week."
    elif "keys" in text:
        yield "One moment. "
        yield Dtmf("12")
    elif "page" in text:
        yield Send({"page": 2, "more": [1, True]})
    elif "chinese" in text:
        yield SwitchLanguage("zh")
        yield SwitchVoice("other")
    elif "person" in text:
        yield "I'll put you through."
        yield Transfer("desk")
    elif "bye" in text:
        yield "Goodbye."
        yield Hangup()
    else:
        yield "Sorry, I didn't get that."
"""


Check = Callable[..., Report]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    (tmp_path / "hook.py").write_text(HOOK)

    def run(steps: str, head: str = "") -> Report:
        file = tmp_path / "one.yaml"
        file.write_text(f"{head}\nsteps:\n{steps}", encoding="utf-8")
        nlu = {"kind": "function", "target": f"{tmp_path / 'hook.py'}:reply"}
        return run_scenario(read_scenario(file), Settings(nlu=nlu))  # type: ignore[arg-type]

    return run


def told(report: Report) -> list[bool]:
    return [one.passed for one in report.checks]


@pytest.mark.parametrize("file", scenario_files(EXAMPLES), ids=lambda file: file.stem)
def test_the_example_scenarios_pass_with_the_shop(file: Path) -> None:
    report = check_scenario(file, settings=Settings())
    assert len(report.checks) >= 3


def test_every_expectation_is_met(check: Check) -> None:
    report = check(
        """
  - agent: Hello
    within_ms: 100
  - caller: what are your hours?
  - agent: /nine .* six/
    after: We open
    absent: sorry
    within_ms: 800
  - presses: "4271#"
  - understood: "4271"
  - agent: is on its way
  - state: {order: 4271, tries: 2}
  - caller: press the keys
  - dtmf: 12
  - caller: next page
  - action: {send: {page: 2, more: [1, "true"]}}
  - caller: speak chinese
  - language: zh
  - action: {voice: other}
  - caller: a person
  - agent: put you through
  - action: {transfer: desk}
  - ended: transferred
""",
        "state: {tries: 2}",
    )
    assert report.passed, report.failures()
    assert len(report.checks) == 12
    assert "put you through" in report.transcript


def test_what_is_not_met_is_told_with_what_came_instead(check: Check) -> None:
    report = check(
        """
  - agent: Good morning
  - caller: what are your hours?
  - agent: nine
    within_ms: 10
  - caller: this is slow
  - agent: At last
    within_ms: 600
  - caller: what are your hours?
  - agent: nine
    absent: evening
  - caller: gibberish
  - absent: sorry
  - dtmf: 5
  - state: {order: 1}
  - action: {transfer: desk}
  - understood: nothing of it
  - language: fr
  - ended: agent hung up
"""
    )
    assert told(report) == [False] * len(report.checks)
    failures = report.failures().splitlines()
    assert len(failures) == len(report.checks) == 11
    assert "step 1" in failures[0]
    assert 'expected agent: "Good morning"; said: "Hello! How can I help?"' in failures[0]
    assert "late: after" in failures[1]
    assert "late: after" in failures[2]
    assert failures[4].endswith('said: "Sorry,"'), "told as soon as it was said"
    assert "understood: what are your hours? / " in failures[8]
    assert failures[10].endswith("ended: not yet")


def test_a_caller_speaks_over_the_agent_when_it_has_said_something(check: Check) -> None:
    report = check(
        """
  - agent: Hello
  - caller: what are your hours?
  - backchannel: mhm
    after: open at nine
  - agent: day of the week
  - caller: what are your hours?
  - caller: no goodbye please
    after: nine
  - absent: evening
  - agent: Goodbye
  - ended: agent hung up
"""
    )
    assert report.passed, report.failures()
    assert "agent (cancelled): We open at nine" in report.transcript


def test_what_is_never_said_is_no_moment_to_speak(check: Check) -> None:
    report = check(
        """
  - agent: Hello
  - caller: what are your hours?
    after: never said
"""
    )
    assert told(report) == [True, False]
    assert 'the agent to say "never said" first' in report.failures()


def test_nobody_speaks_over_a_reply_that_is_over(check: Check) -> None:
    steps = """
  - agent: Hello
  - caller: what are your hours?
  - agent: nine in the morning
  - caller: no goodbye please
    after: nine
"""
    report = check(steps)
    assert told(report) == [True, True, False]
    assert 'the agent still to speak after "nine"' in report.failures()
    in_time = check(steps.replace("  - agent: nine in the morning\n", ""))
    assert in_time.passed, in_time.failures()


def test_a_reply_that_was_cut_is_timed_from_what_it_answers(check: Check) -> None:
    steps = """
  - agent: Hello
  - caller: what are your hours?
  - caller: no goodbye please
    after: nine
  - agent: We open at nine
    within_ms: 400
"""
    assert check(steps).passed
    late = check(steps, "engines: {voice_ms: 900}")
    assert told(late) == [True, False]
    assert "late: after" in late.failures()


def test_silence_is_an_expectation_too(check: Check) -> None:
    steps = """
  - agent: Hello
  - noise: 0.5
  - absent: /./
    within_ms: 3000
"""
    report = check(steps)
    assert report.passed, report.failures()
    assert report.checks[-1].at_s >= 4.8
    assert not check(steps.replace("noise: 0.5", "caller: something")).passed


def test_a_call_that_ends_early_fails_the_rest_at_once(check: Check) -> None:
    report = check(
        """
  - caller: bye now
  - agent: Goodbye
  - caller: hello
  - agent: Hello
  - hangs_up: true
"""
    )
    assert told(report) == [True, False]
    assert report.failures().endswith("the call ended: agent hung up")


def test_engines_take_the_time_that_is_stated(check: Check) -> None:
    steps = "  - agent: Hello\n  - caller: what are your hours?\n  - agent: nine\n    within_ms: 800\n"
    assert check(steps).passed
    assert not check(steps, "engines: {voice_ms: 900}").passed


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (
            "settings: {conversation: {barge_in_ms: soon}}",
            r"one\.yaml: settings\.conversation\.barge_in_ms: Input should be a valid integer, .{0,60}$",
        ),
        ("settings: {conversation: {no_such: 1}}", r"one\.yaml: settings\.conversation\.no_such: unknown field$"),
        ("language: fr", r"one\.yaml: language: expected one of en, zh"),
    ],
)
def test_wrong_settings_are_told(check: Check, head: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check("  - agent: Hello\n", head)


def test_a_test_fails_with_the_failures_and_the_transcript(tmp_path: Path) -> None:
    (tmp_path / "hook.py").write_text(HOOK)
    file = tmp_path / "one.yaml"
    file.write_text("steps: [{agent: Good morning}]")
    with pytest.raises(AssertionError, match=r"(?s)step 1.*Good morning.*agent \(completed\): Hello!"):
        check_scenario(file, hook=f"{tmp_path / 'hook.py'}:reply", settings=Settings())


@pytest.mark.parametrize(
    ("found", "wanted", "is_same"),
    [
        (2, "2", True),
        (True, "true", True),
        (True, "1", False),
        (None, "null", True),
        ({"a": 1, "b": 2}, {"a": "1"}, True),
        ({"a": 1}, {"b": "1"}, False),
        ([1, 2], ["1", "2"], True),
        ([1], ["1", "2"], False),
        ("x", {"a": "1"}, False),
    ],
)
def test_values_are_what_a_file_of_texts_says(found: object, wanted: object, is_same: bool) -> None:
    assert same(found, wanted) is is_same
