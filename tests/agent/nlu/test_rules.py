from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.errors import ConfigError
from agent.nlu.hook import (
    Dtmf,
    Hangup,
    Listen,
    Play,
    Send,
    Session,
    SwitchLanguage,
    SwitchVoice,
    Transfer,
    Turn,
)
from agent.nlu.rules import RulesNlu

BASE = """
greeting: Hello.
fallback:
  say: ["Sorry?", "Once more?"]
  after: 3
  then: {say: Please hold., do: [{action: transfer, to: desk}]}
intents:
  - name: bye
    patterns: [goodbye]
    reply: {say: Bye., do: [hangup]}
"""


class Caller:
    """One call with a rules file."""

    def __init__(self, nlu: RulesNlu, name: str = "caller") -> None:
        self._nlu = nlu
        self.session = Session(name, "console")

    async def turn(self, kind: Any, text: str = "") -> list[Any]:
        return [item async for item in self._nlu.reply(Turn(self.session, kind, text))]

    async def says(self, text: str) -> list[Any]:
        return await self.turn("speech", text)


@pytest.fixture
def call(tmp_path: Path) -> Any:
    def start(source: str) -> Caller:
        file = tmp_path / "rules.yaml"
        file.write_text(source, encoding="utf-8")
        return Caller(RulesNlu(file))

    return start


@pytest.fixture
def refused(tmp_path: Path) -> Any:
    def load(source: str | bytes) -> str:
        file = tmp_path / "rules.yaml"
        file.write_bytes(source.encode() if isinstance(source, str) else source)
        with pytest.raises(ConfigError) as caught:
            RulesNlu(file)
        assert str(file) in str(caught.value)
        return str(caught.value)

    return load


async def test_misses_take_turns_and_then_escalate(call: Any) -> None:
    caller = call(BASE)
    assert await caller.turn("greeting") == ["Hello."]
    assert await caller.says("mumble") == ["Sorry?"]
    assert await caller.says("") == ["Once more?"]
    assert await caller.says("mumble") == ["Please hold.", Transfer("desk")]


async def test_an_understood_turn_forgives_earlier_misses(call: Any) -> None:
    caller = call(BASE)
    for _ in range(2):
        await caller.says("mumble")
        await caller.says("mumble")
        assert await caller.says("good-bye goodbye") == ["Bye.", Hangup()]


async def test_every_action_can_be_written(call: Any) -> None:
    actions = """
      - {action: play, clip: ring}
      - {action: send, data: {page: order}}
      - {action: switch_language, tag: fr}
      - {action: switch_voice, voice: luc}
      - {action: dtmf, digits: 12#}
      - {action: listen, expect: digits, min_digits: 4}
      - {action: hangup, after_playout: false}
      - {action: transfer, to: "sip:desk@example.com"}
"""
    caller = call(BASE + "  - name: all\n    patterns: [all]\n    reply:\n     say: Here.\n     do:" + actions)
    assert await caller.says("all") == [
        "Here.",
        Play("ring"),
        Send({"page": "order"}),
        SwitchLanguage("fr"),
        SwitchVoice("luc"),
        Dtmf("12#"),
        Listen("digits", 4),
        Hangup(after_playout=False),
        Transfer("sip:desk@example.com"),
    ]


SLOTS = """
greeting: Hello.
fallback: {say: "Sorry?", after: 3, then: {say: Please hold., do: [{action: transfer, to: desk}]}}
silence: {say: ["Still there?", "Hello?"], after: 3, then: {say: Bye., do: [hangup]}}
slots:
  pin:
    {type: digits, least: 4, most: 6, tries: 2, ask: "Your PIN?", again: Four digits please.,
     more: "{heard:digits}. And?"}
  who: {type: name, ask: "Your name?", keep: true}
  size: {type: choice, ask: "Which size?", values: {small: [little, tiny], large: [big]}}
  sure: {type: yes_no, ask: "Are you sure?"}
  note: {type: text, ask: "What should I write down?"}
tables:
  accounts: {"0142": {owner: Ada}, "4271": {owner: Bob}}
intents:
  - name: balance
    patterns: [balance, "balance + {pin}"]
    slots: [pin]
    lookup: {table: accounts, key: pin}
    reply:
      - if: {found: true}
        say: Hello {owner}.
      - if: {found: false}
        say: No {pin:digits}. Again?
        ask: pin
  - {name: meet, patterns: [appointment], slots: [who, size], reply: "{who}, {size}."}
  - name: wipe
    patterns: [delete everything]
    slots: [sure]
    reply: [{if: {sure: "yes"}, say: Gone.}, {say: Kept.}]
  - {name: memo, patterns: [memo], slots: [note], reply: "Noted: {note}."}
  - {name: again, patterns: [pardon], repeat: true}
  - {name: stop, patterns: [never mind], keys: "9", reply: All right.}
"""


async def test_a_missing_slot_is_asked_for_and_looked_up(call: Any) -> None:
    caller = call(SLOTS)
    assert await caller.says("my balance") == ["Your PIN?", Listen("digits", 4, max_digits=6)]
    assert await caller.says("oh one four two") == ["Hello Ada."]
    assert await caller.says("balance of 4271") == ["Hello Bob."]
    assert await caller.says("balance") == ["Your PIN?", Listen("digits", 4, max_digits=6)]


async def test_a_number_may_come_in_pieces(call: Any) -> None:
    caller = call(SLOTS)
    await caller.says("balance")
    assert await caller.says("four two") == ["four two. And?", Listen("digits", 2, max_digits=4)]
    assert await caller.says("seven one") == ["Hello Bob."]


async def test_a_whole_number_replaces_the_pieces(call: Any) -> None:
    caller = call(SLOTS)
    await caller.says("balance")
    await caller.says("four")
    assert await caller.says("four two seven one") == ["Hello Bob."]


async def test_keys_fill_the_open_question_and_star_starts_over(call: Any) -> None:
    caller = call(SLOTS)
    await caller.says("balance")
    assert await caller.turn("dtmf", "4271#") == ["Hello Bob."]
    await caller.says("balance")
    await caller.turn("dtmf", "99")
    assert await caller.turn("dtmf", "*4271") == ["Hello Bob."]


async def test_a_key_without_an_open_question_is_an_intent(call: Any) -> None:
    assert await call(SLOTS).turn("dtmf", "9") == ["All right."]


async def test_a_row_that_is_not_found_is_asked_again_and_then_given_up(call: Any) -> None:
    caller = call(SLOTS)
    await caller.says("balance")
    assert await caller.says("9 9 9 9") == ["No nine nine nine nine. Again?", Listen("digits", 4, max_digits=6)]
    assert await caller.says("8 8 8 8") == ["Please hold.", Transfer("desk")]


async def test_answers_without_a_value_are_asked_again_and_then_given_up(call: Any) -> None:
    caller = call(SLOTS)
    await caller.says("balance")
    assert await caller.says("well") == ["Four digits please.", Listen("digits", 4, max_digits=6)]
    assert await caller.says("well") == ["Please hold.", Transfer("desk")]


async def test_another_intent_leaves_the_question(call: Any) -> None:
    caller = call(SLOTS)
    await caller.says("balance")
    assert await caller.says("never mind") == ["All right."]
    assert await caller.says("4271") == ["Sorry?"]


async def test_names_choices_and_kept_slots(call: Any) -> None:
    caller = call(SLOTS)
    assert await caller.says("an appointment") == ["Your name?", Listen("name")]
    assert await caller.says("Uh, it's Ada Lovelace.") == ["Which size?", Listen("free")]
    assert await caller.says("a big one") == ["Ada Lovelace, large."]
    assert await caller.says("appointment") == ["Which size?", Listen("free")]
    assert await caller.says("tiny") == ["Ada Lovelace, small."]
    assert await caller.says("my name is Bob, a small appointment") == ["Bob, small."]


@pytest.mark.parametrize(("answer", "reply"), [("yes please", "Gone."), ("no don't", "Kept."), ("sure", "Gone.")])
async def test_yes_and_no(call: Any, answer: str, reply: str) -> None:
    caller = call(SLOTS)
    assert await caller.says("delete everything") == ["Are you sure?", Listen("yes_no")]
    assert await caller.says(answer) == [reply]


async def test_a_free_text_is_taken_whole(call: Any) -> None:
    caller = call(SLOTS)
    await caller.says("memo")
    assert await caller.says("Call the plumber!") == ["Noted: call the plumber."]


async def test_repeat_says_the_last_words_and_keeps_the_question(call: Any) -> None:
    caller = call(SLOTS)
    await caller.says("balance")
    assert await caller.says("pardon") == ["Your PIN?", Listen("digits", 4, max_digits=6)]
    assert await caller.says("4271") == ["Hello Bob."]


async def test_silence_asks_again_then_ends_the_call(call: Any) -> None:
    caller = call(SLOTS)
    await caller.says("balance")
    assert await caller.turn("silence") == ["Four digits please.", Listen("digits", 4, max_digits=6)]
    assert await caller.turn("silence") == ["Still there?"]
    assert await caller.turn("silence") == ["Bye.", Hangup()]


async def test_two_calls_share_nothing(call: Any) -> None:
    ann = call(SLOTS)
    bob = Caller(ann._nlu, "bob")
    await ann.says("my name is Ann, balance")
    await bob.says("appointment")
    assert await ann.says("4271") == ["Hello Bob."]
    assert await bob.says("Bob") == ["Which size?", Listen("free")]
    assert ann.session.state != bob.session.state


async def test_memory_is_json_like_and_survives_being_restored(call: Any) -> None:
    caller = call(SLOTS)
    await caller.says("balance")
    await caller.says("four two")
    caller.session.state.update(yaml.safe_load(yaml.safe_dump(dict(caller.session.state))))
    assert await caller.says("seven one") == ["Hello Bob."]


async def test_an_earlier_memory_is_not_changed_by_later_turns(call: Any) -> None:
    caller = call(SLOTS)
    await caller.says("balance")
    before = caller.session.state["rules"]
    copy = yaml.safe_dump(before)
    await caller.says("4271")
    assert yaml.safe_dump(before) == copy


WRONG = [
    ("greeting: Hi.\n", "fallback: required field is missing"),
    (BASE + "extra: 1\n", "extra: unknown field"),
    (BASE.replace("patterns: [goodbye]", "patterns: [<absent>]"), "intents.0.patterns.0: <absent> is not one of"),
    (BASE.replace("patterns: [goodbye]", "patterns: ['/(/']"), "intents.0.patterns.0: at character 2"),
    (BASE.replace("patterns: [goodbye]", "patterns: ['{pin}']"), "intents.0.patterns.0: {pin} is not one of the slots"),
    (BASE.replace("patterns: [goodbye]", "keys: x"), "intents.0.keys.0"),
    (BASE.replace("    patterns: [goodbye]\n", ""), "intents.0: Value error, expected `patterns`, `keys` or both"),
    (BASE.replace("say: Bye.", "say: 'Bye {who}.'"), "intents.0.reply.0.say: 'who' is not one of the slots"),
    (BASE.replace("say: Bye.", "say: 'Bye {.'"), "intents.0.reply.0.say.0"),
    (BASE.replace("[hangup]", "[explode]"), "intents.0.reply.0.do.0: Value error, action.action: expected one of"),
    (BASE.replace("[hangup]", "[{action: dtmf, digits: x}]"), "action.digits"),
    (BASE.replace("after: 3", "after: soon"), "fallback.after: Input should be a valid integer"),
    (SLOTS.replace("least: 4, most: 6", "least: 6, most: 4"), "slots.pin: Value error, least (6) is more than most"),
    (SLOTS.replace("type: name", "type: colour"), "slots.who.type"),
    (SLOTS.replace("table: accounts", "table: orders"), "intents.0.lookup.table: 'orders' is not one of the tables"),
    (SLOTS.replace("slots: [pin]", "slots: [pan]"), "intents.0.slots: 'pan' is not one of the slots"),
    (SLOTS.replace("found: true", "found: maybe"), "intents.0.reply.0.if.found: expected true or false"),
    (SLOTS.replace("ask: pin\n", "ask: who\n"), "intents.0.reply.1.ask: 'who' is not one of"),
    (SLOTS.replace("name: memo", "name: stop"), "two of them have the same name"),
    ("[", "not valid YAML"),
    ("- a list\n", "expected a mapping"),
    ("greeting: a\ngreeting: b\n", "'greeting' is there twice"),
    ("a: &x [1]\nb: *x\n", "aliases"),
    ("? [complex]\n: 1\n", "is no text"),
    (b"\xff\xfe\x00\xd8", "not valid YAML"),
    ("[" * 5000, "nested too deeply"),
    ("x" * 1_100_000, "at most 1048576 bytes"),
]


@pytest.mark.parametrize(("source", "message"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_a_wrong_file_is_refused_by_path(refused: Any, source: str | bytes, message: str) -> None:
    assert message in refused(source)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the rules file .*absent\.yaml"):
        RulesNlu(tmp_path / "absent.yaml")
