"""Scenario files are read strictly: what is wrong is told by file, step and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigError
from agent.testing import scenario as steps
from agent.testing.scenario import Pattern, find_scenarios, read_scenario

EXAMPLES = Path(steps.__file__).parent / "examples"


def write(folder: Path, text: str, name: str = "one.yaml") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_with_every_kind_of_step_is_read(tmp_path: Path) -> None:
    scenario = read_scenario(
        write(
            tmp_path,
            """
name: All of it
language: zh
channel: widget
caller: "+44"
state: {tries: 2}
settings: {conversation: {barge_in_ms: 200}}
engines: {asr_ms: 80, voice_ms: 120}
steps:
  - agent: Hello
    within_ms: 500
    after: Hi
    absent: /bye/
  - caller: what are your hours
    seconds: 1.5
  - backchannel: mhm
    after: nine
  - noise: 0.3
    after_ms: 200
  - presses: 0123#
  - types: hello
  - pause: 0.8
  - absent: sorry
  - understood: hours
  - dtmf: 12
  - action: {transfer: desk}
  - action: {send: {page: 2}}
  - state: {tries: 3}
  - language: zh
  - hangs_up: true
  - ended: caller hung up
""",
        )
    )
    assert scenario.name == "All of it"
    assert (scenario.language, scenario.channel, scenario.caller) == ("zh", "widget", "+44")
    assert scenario.engines.asr_ms == 80
    assert [type(step).__name__ for step in scenario.steps[:4]] == ["Agent", "Caller", "Backchannel", "Noise"]
    presses = scenario.steps[4]
    assert isinstance(presses, steps.Presses)
    assert presses.presses == "0123#", "no number, however it looks"


def test_a_file_without_a_name_has_that_of_the_file(tmp_path: Path) -> None:
    assert read_scenario(write(tmp_path, "steps: [{pause: 1}]", "late_parcel.yaml")).name == "late_parcel"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "not valid YAML"),
        ("- agent: x", "expected a mapping with steps"),
        ("name: x", r"one\.yaml: steps: required field is missing"),
        ("steps: []", r"one\.yaml: steps: "),
        ("steps: [{pause: 1}]\nstep: x", r"one\.yaml: step: unknown field"),
        ("steps: [{pause: 1}, {agnet: Hello}]", r"one\.yaml: step 2: expected one of caller, .*; got agnet"),
        ("steps: [{}]", r"step 1: .*got nothing"),
        ("steps: [{pause: 1}, {agent: Hello, within: 3}]", r"one\.yaml: step 2 \(agent\): within: unknown field"),
        ("steps: [{agent: Hello, within_ms: soon}]", r"step 1 \(agent\): within_ms: .*number"),
        ("steps: [{agent: /(/}]", r"step 1 \(agent\): agent: not a regular expression"),
        ("steps: [{agent: '...'}]", r"step 1 \(agent\): agent: expected words"),
        ("steps: [{agent: [a, b]}]", r"step 1 \(agent\): agent: expected text"),
        ("steps: [{presses: 12x}]", r"step 1 \(presses\): presses: expected keys: 0-9"),
        ("steps: [{pause: -1}]", r"step 1 \(pause\): pause: "),
        ("steps: [{caller: ''}]", r"step 1 \(caller\): caller: expected words"),
        ("steps: [{caller: hi, within_ms: 3}]", r"step 1 \(caller\): within_ms: unknown field"),
        ("steps: [{hangs_up: no}]", r"step 1 \(hangs_up\): hangs_up: expected true"),
        ("steps: [{action: {transfer: a, voice: b}}]", r"step 1 \(action\): action: expected one of transfer"),
        ("steps: [{action: {fly: a}}]", r"step 1 \(action\): action\.fly: unknown field"),
        ("channel: pigeon\nsteps: [{pause: 1}]", r"channel: expected one of browser"),
        ("settings: {server: {port: 1}}\nsteps: [{pause: 1}]", r"settings\.server: expected one of conversation"),
        ("steps: [{pause: 1, pause: 2}]", "twice"),
    ],
)
def test_what_is_wrong_is_told_by_file_step_and_field(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_scenario(write(tmp_path, text))
    assert "one.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("we're open", "Sure. We're  OPEN, daily.", True),
        ("nine", "It is ninety.", False),
        ("/nine/", "It is NINETY.", True),
        ("/^It is/", "It is ninety.", True),
        ("你好", "你好。", True),
        ("closed now", "closed. Now", True),
    ],
)
def test_words_are_whole_and_plain_and_a_regex_is_a_regex(pattern: str, text: str, matches: bool) -> None:
    assert (Pattern(pattern).end(text) is not None) is matches


def test_what_follows_a_match_is_the_rest() -> None:
    assert Pattern("found it").rest("Hm. Found it. On Thursday.") == " on thursday"
    assert Pattern("/t\\./").rest("Found it. On Thursday.") == " On Thursday."
    assert Pattern("lost").rest("Found it.") is None


def test_folders_are_searched_and_an_empty_one_is_told(tmp_path: Path) -> None:
    b = write(tmp_path, "", "b.yaml")
    a = write(tmp_path, "", "more/a.yml")
    write(tmp_path, "", "notes.txt")
    assert find_scenarios([tmp_path]) == [b, a]
    assert find_scenarios([a, tmp_path / "absent.yaml"]) == [a, tmp_path / "absent.yaml"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="empty: there is no scenario file"):
        find_scenarios([tmp_path / "empty"])
    with pytest.raises(ConfigError, match=r"cannot read the scenario file .*absent\.yaml"):
        read_scenario(tmp_path / "absent.yaml")
