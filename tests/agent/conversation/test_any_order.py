"""What holds for the turn machine whatever comes in whatever order."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.conversation import protocol as m
from agent.conversation.transitions import ALLOWED, REPLYING, Why
from agent.nlu.hook import Listen
from tests.agent.conversation.story import Story

TEXTS = ("", "hi", "mhm", "okay", "stop it please", "we open at nine", "four two")
SETTINGS = {
    "idle_s": 10_000.0,
    "max_call_s": 10_000.0,
    "still_there_after_s": 0.0,
}
"""No limit of the call ends it: what is looked at is turn-taking."""

LIVELY = {"idle_s": 90.0, "max_call_s": 120.0, "end_warning_s": 60.0, "still_there_after_s": 8.0}

TEXT = st.sampled_from(TEXTS)
NUMBERS = st.integers(0, 3)
"""How many numbers ago: 0 is the running reply or the newest request."""

EVENTS = st.one_of(
    st.just(m.Tick()),
    st.builds(m.VoiceBegan, st.floats(0, 500)),
    st.builds(m.VoiceEnded, st.floats(0, 500), st.integers(0, 5000)),
    st.builds(m.PartialHeard, TEXT, TEXT),
    st.builds(m.FinalHeard, NUMBERS, TEXT, st.just(1.0), st.none() | st.floats(0, 1)),
    st.builds(m.FinalFailed, NUMBERS),
    st.builds(m.SoundJudged, NUMBERS, st.floats(0, 1)),
    st.builds(m.Typed, st.just("text")),
    st.builds(m.DigitPressed, st.sampled_from("0123456789*#")),
    st.builds(m.ReplyAudible, NUMBERS),
    st.builds(m.AgentSays, NUMBERS, st.sampled_from(["We open at nine.", "Shall I book it?"])),
    st.builds(m.ReplyGuarded, NUMBERS),
    st.builds(m.ReplyEnded, NUMBERS),
    st.builds(m.ReplyCloses, NUMBERS, st.just("agent hung up")),
    st.builds(m.Listened, st.builds(Listen, st.sampled_from(["free", "digits", "yes_no"]), st.just(2), st.booleans())),
    st.just(m.ClientCancelled()),
    st.just(m.RespondAgain()),
    st.just(m.CallStarted()),
)


def absolute(event: m.Event, machine_ids: tuple[int, int]) -> m.Event:
    """The same event with its number counted back from the newest."""
    revision, final_id = machine_ids
    match event:
        case m.FinalHeard(number, text, confidence, end_of_turn):
            return m.FinalHeard(final_id - number, text, confidence, end_of_turn)
        case m.FinalFailed(number):
            return m.FinalFailed(final_id - number)
        case m.SoundJudged(number, probability):
            return m.SoundJudged(final_id - number, probability)
        case m.ReplyAudible(number):
            return m.ReplyAudible(revision - number)
        case m.AgentSays(number, text):
            return m.AgentSays(revision - number, text)
        case m.ReplyGuarded(number):
            return m.ReplyGuarded(revision - number)
        case m.ReplyEnded(number, hang_up):
            return m.ReplyEnded(revision - number, hang_up)
        case m.ReplyCloses(number, reason):
            return m.ReplyCloses(revision - number, reason)
        case _:
            return event


class Watched(Story):
    """Checks every command against those before it."""

    running: int | None = None
    begun: int | None = None
    paused = False
    newest = 0

    def do(self, event: m.Event) -> list[m.Command]:
        was, before = self.machine.state, self.machine.revision
        if isinstance(event, m.ReplyEnded) and event.revision == self.running:
            self.running = None
        new = super().do(event)
        assert was is not m.State.ENDED or new == []
        for command in new:
            self._check(command)
        assert self.machine.revision >= before
        state = self.machine.state
        assert (self.running is not None) is (state in (*REPLYING, m.State.CLOSING)) or state is m.State.ENDED
        assert self.paused is (state is m.State.PAUSED) or state is m.State.ENDED
        if state is m.State.LISTENING:
            assert self.machine.caller.voice_since is None
            assert self.machine.caller.last_speech is None
        if state is m.State.HEARING:
            assert self.machine.caller.voice_since is not None
        if self.begun is not None:
            assert state is m.State.DECIDING
        return new

    def do_any(self, event: m.Event) -> None:
        """Do an event of which the number counts back from the newest."""
        self.do(absolute(event, (self.machine.revision, self.machine.caller.final_id)))

    def _check(self, command: m.Command) -> None:
        match command:
            case m.StopReply(revision):
                assert revision == self.running
                self.running, self.paused = None, False
            case m.Speculate(revision):
                assert self.begun is None
                assert revision > self.newest
                self.begun = self.newest = revision
            case m.DropSpeculation(revision):
                assert revision == self.begun
                self.begun = None
            case m.Ask(revision, speculated=True):
                assert revision == self.begun
                assert self.running is None
                self.begun, self.running = None, revision
            case m.Ask(revision) | m.Say(revision):
                assert self.begun is None
                assert self.running is None
                assert revision > self.newest
                self.running = self.newest = revision
            case m.PauseReply():
                assert self.running is not None
                assert not self.paused
                self.paused = True
            case m.ResumeReply():
                assert self.paused
                self.paused = False
            case m.EndCall():
                assert self.begun is None


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(EVENTS, st.floats(0, 2)), max_size=60), st.sampled_from([SETTINGS, LIVELY]))
def test_commands_are_consistent_and_no_state_is_stuck(
    events: list[tuple[m.Event, float]], limits: dict[str, float]
) -> None:
    story = Watched(**limits)
    story.do(m.CallStarted())
    for event, gap in events:
        story.now += gap
        story.do_any(event)
    # Whatever happened: when the caller falls silent and replies end, the call comes to rest in bounded time.
    story.do(m.VoiceEnded(200, 0))
    for _ in range(6):
        story.wait(4)
        if story.machine.state in (*REPLYING, m.State.CLOSING):
            story.finish()
    if limits is SETTINGS and story.machine.state is not m.State.ENDED:
        assert story.machine.state is m.State.LISTENING
        before = story.machine.revision
        story.speak(1.0, "hello again my friend")
        story.wait(1)
        assert story.machine.revision > before
        assert "hello again my friend" in story.ask().text
    elif story.machine.state is not m.State.ENDED:
        for _ in range(40):
            story.wait(4)
            if story.machine.state in (*REPLYING, m.State.CLOSING):
                story.finish()
        assert story.machine.state is m.State.ENDED


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(EVENTS, st.floats(0, 2), st.booleans()), max_size=60))
def test_two_callers_at_once_share_no_state(events: list[tuple[m.Event, float, bool]]) -> None:
    together, apart = (Watched(**SETTINGS), Watched(**SETTINGS)), (Watched(**SETTINGS), Watched(**SETTINGS))
    for event, gap, second in events:
        together[second].now += gap
        together[second].do_any(event)
    for which in (False, True):
        for event, gap, second in events:
            if second is which:
                apart[which].now += gap
                apart[which].do_any(event)
        assert together[which].commands == apart[which].commands


def test_every_move_in_the_table_happens() -> None:
    """A row that no sequence of events can reach would be a wrong table."""
    seen: set[tuple[m.State, Why, m.State]] = set()
    rng = random.Random(4)
    lively = {**LIVELY, "idle_s": 40.0, "still_there_times": 1, "max_turn_s": 5.0}
    for walk in range(4000):
        story = Watched(**({**lively, "still_there_after_s": 0.0} if walk % 2 else lively))
        go = story.machine._go

        def noted(why: Why, state: m.State, story: Watched = story, go: object = go) -> None:
            seen.add((story.machine.state, why, state))
            go(why, state)  # type: ignore[operator]

        story.machine._go = noted  # type: ignore[method-assign]
        for _ in range(60):
            story.now += rng.choice((0.02, 0.1, 0.3, 1.0, 3.0 if walk % 3 else 15.0))
            story.do_any(WALK[rng.randrange(len(WALK))](rng))
        story.machine.end()
    missing = sorted((source.name, why.name, target.name) for source, why, target in ALLOWED - seen)
    assert not missing, missing


WALK = (
    lambda rng: m.Tick(),
    lambda rng: m.Tick(),
    lambda rng: m.Tick(),
    lambda rng: m.VoiceBegan(rng.choice((0.0, 64.0, 300.0))),
    lambda rng: m.VoiceBegan(64.0),
    lambda rng: m.VoiceEnded(192.0, rng.choice((100, 500, 2000))),
    lambda rng: m.VoiceEnded(192.0, 800),
    lambda rng: m.PartialHeard(*[rng.choice(TEXTS)] * 2),
    lambda rng: m.FinalHeard(0, rng.choice(TEXTS)),
    lambda rng: m.FinalHeard(0, rng.choice(TEXTS)),
    lambda rng: m.FinalFailed(0) if rng.random() < 0.3 else m.Tick(),
    lambda rng: m.Typed("text") if rng.random() < 0.3 else m.Tick(),
    lambda rng: m.DigitPressed(rng.choice("12#")),
    lambda rng: m.ReplyAudible(0),
    lambda rng: m.ReplyGuarded(0) if rng.random() < 0.3 else m.Tick(),
    lambda rng: m.ReplyEnded(0, rng.choice((None, None, None, "bye"))),
    lambda rng: m.ReplyEnded(0),
    lambda rng: m.ReplyCloses(0, "bye") if rng.random() < 0.3 else m.Tick(),
    lambda rng: m.ClientCancelled() if rng.random() < 0.5 else m.Tick(),
    lambda rng: m.RespondAgain() if rng.random() < 0.3 else m.Tick(),
    lambda rng: m.CallStarted(),
)
