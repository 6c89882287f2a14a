"""Keypad menus of rules files: keys, voice, wrong keys, silence, and files that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.config import Settings
from agent.errors import ConfigError
from agent.nlu.hook import Hangup, Listen, Session, Transfer, Turn
from agent.nlu.rules import RulesNlu
from agent.testing.check import check_scenario, scenario_files

AGENT = Path(__file__).parents[3] / "agent"

MENUS = """
greeting: {say: Welcome., menu: main}
menus:
  main:
    say: Press 1, 2 or 3.
    again: Not one of these.
    tries: 2
    keys:
      "1": {intent: hours}
      "2": {menu: shops}
      "3": {reply: {say: Three it is., do: [hangup]}}
      "*": {repeat: true}
  shops:
    say: Enter the shop.
    barge_in: false
    gap_s: 2.5
    keys:
      "012": {reply: Shop zero twelve.}
      "12": {reply: Shop twelve.}
      "#": {menu: main}
slots:
  pin: {type: digits, least: 4, most: 6, gap_s: 4, barge_in: false, ask: "Your PIN?"}
intents:
  - {name: hours, patterns: [opening hours], reply: Nine to six.}
  - {name: person, patterns: [person], keys: ["0"], reply: {say: Wait., do: [{action: transfer, to: desk}]}}
  - {name: balance, patterns: [balance], slots: [pin], reply: Ten pounds.}
  - {name: shops, patterns: [shops], reply: {menu: shops}}
silence: {say: "Hello?"}
fallback: {say: "Sorry?", after: 9, then: {say: Hold on., do: [{action: transfer, to: desk}]}}
"""

MAIN = Listen(max_digits=1)
SHOPS = Listen(max_digits=3, digit_gap_s=2.5, dtmf_barge_in=False)


class Caller:
    def __init__(self, nlu: RulesNlu) -> None:
        self._nlu = nlu
        self._session = Session("caller", "sip")

    async def turn(self, kind: Any, text: str = "") -> list[Any]:
        return [item async for item in self._nlu.reply(Turn(self._session, kind, text))]


@pytest.fixture
async def caller(tmp_path: Path) -> Caller:
    file = tmp_path / "rules.yaml"
    file.write_text(MENUS, encoding="utf-8")
    made = Caller(RulesNlu(file))
    assert await made.turn("greeting") == ["Welcome.", MAIN, " Press 1, 2 or 3."]
    return made


async def test_a_key_means_its_choice(caller: Caller) -> None:
    assert await caller.turn("dtmf", "1") == ["Nine to six.", MAIN]
    assert await caller.turn("dtmf", "3") == ["Three it is.", Hangup(), MAIN]


async def test_star_says_the_menu_again(caller: Caller) -> None:
    assert await caller.turn("dtmf", "*") == [MAIN, "Press 1, 2 or 3."]


async def test_a_menu_in_a_menu_and_back(caller: Caller) -> None:
    assert await caller.turn("dtmf", "2") == [SHOPS, "Enter the shop."]
    assert await caller.turn("dtmf", "#") == [MAIN, "Press 1, 2 or 3."]


@pytest.mark.parametrize(("keys", "answer"), [("012", "Shop zero twelve."), ("12", "Shop twelve.")])
async def test_a_zero_in_front_counts(caller: Caller, keys: str, answer: str) -> None:
    await caller.turn("dtmf", "2")
    assert await caller.turn("dtmf", keys) == [answer, SHOPS]


@pytest.mark.parametrize("words", ["two", "number two", "option 2 please"])
async def test_a_choice_may_be_said(caller: Caller, words: str) -> None:
    assert await caller.turn("speech", words) == [SHOPS, "Enter the shop."]


async def test_a_figure_in_a_sentence_is_no_choice(caller: Caller) -> None:
    assert await caller.turn("speech", "there were two of us in the room yesterday") != [SHOPS, "Enter the shop."]


async def test_words_are_understood_in_a_menu_and_may_open_one(caller: Caller) -> None:
    assert await caller.turn("speech", "your opening hours please") == ["Nine to six.", MAIN]
    assert await caller.turn("speech", "shops") == [SHOPS, "Enter the shop."]


async def test_keys_of_intents_work_in_every_menu(caller: Caller) -> None:
    assert (await caller.turn("dtmf", "0"))[:2] == ["Wait.", Transfer("desk")]


async def test_wrong_keys_are_told_and_then_given_up(caller: Caller) -> None:
    assert await caller.turn("dtmf", "9") == [MAIN, "Not one of these.", " Press 1, 2 or 3."]
    assert (await caller.turn("dtmf", "8"))[:2] == ["Hold on.", Transfer("desk")]


async def test_a_right_key_forgets_the_wrong_ones(caller: Caller) -> None:
    for _ in range(3):
        assert (await caller.turn("dtmf", "9"))[1] == "Not one of these."
        await caller.turn("dtmf", "1")


async def test_silence_says_the_menu_once_more(caller: Caller) -> None:
    assert await caller.turn("silence") == [MAIN, "Press 1, 2 or 3."]
    assert await caller.turn("silence") == ["Hello?", MAIN]


async def test_a_number_of_any_length_is_collected_as_the_slot_says(caller: Caller) -> None:
    listen = Listen("digits", 4, dtmf_barge_in=False, max_digits=6, digit_gap_s=4.0)
    assert await caller.turn("speech", "my balance") == [listen, "Your PIN?"]
    assert await caller.turn("dtmf", "00421") == ["Ten pounds.", MAIN]


async def test_digits_asked_for_are_not_taken_for_a_choice(caller: Caller) -> None:
    await caller.turn("speech", "my balance")
    assert await caller.turn("speech", "one two three four") == ["Ten pounds.", MAIN]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"1": {intent: hours}', '"1": {intent: nothing}', r"menus\.main\.keys\.1\.intent: 'nothing' is not one of"),
        ('"2": {menu: shops}', '"2": {menu: nowhere}', r"menus\.main\.keys\.2\.menu: 'nowhere' is not one of"),
        ("menu: main}\nmenus", "menu: nowhere}\nmenus", r"greeting\.0\.menu: 'nowhere' is not one of the menus"),
        ('"1": {intent: hours}', '"1": {}', r"menus\.main\.keys\.1: .*expected one of `intent`"),
        ('"1": {intent: hours}', '"1": {intent: hours, menu: shops}', r"menus\.main\.keys\.1: .*expected one of"),
        ('"1": {intent: hours}', '"1x": {intent: hours}', r"menus\.main\.keys\.1x"),
        ("gap_s: 2.5", "gap_s: 0", r"menus\.shops\.gap_s"),
        ("say: Enter the shop.", "say: Enter {pin}.", r"menus\.shops\.say: 'pin'"),
    ],
)
def test_a_menu_that_means_nothing_is_refused_by_its_path(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in MENUS
    file = tmp_path / "rules.yaml"
    file.write_text(MENUS.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError, match=complaint):
        RulesNlu(file)


@pytest.mark.parametrize("file", scenario_files(AGENT / "testing" / "menus"), ids=lambda file: file.stem)
def test_the_worked_example_does_as_its_scenarios_say(file: Path) -> None:
    target = str(AGENT / "nlu" / "examples" / "menus.yaml")
    report = check_scenario(file, settings=Settings.model_validate({"nlu": {"kind": "rules", "target": target}}))
    assert report.passed, report.transcript
