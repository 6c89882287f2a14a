"""The states of a call and every way from one to another: the table the turn machine is held to.

`python -m agent.conversation.transitions` prints it for the docs; with a path it writes it there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from agent.conversation.protocol import State
from agent.events import Floor

__all__ = ["ALLOWED", "FLOOR", "MOVES", "Move", "Why", "as_markdown"]

FLOOR: dict[State, Floor] = {
    State.LISTENING: "nobody",
    State.HEARING: "caller",
    State.DECIDING: "caller",
    State.THINKING: "thinking",
    State.SPEAKING: "agent",
    State.PAUSED: "caller",
    State.CLOSING: "agent",
    State.ENDED: "nobody",
}

MEANING: dict[State, str] = {
    State.LISTENING: "nobody speaks",
    State.HEARING: "the caller speaks, the agent is silent",
    State.DECIDING: "the caller paused: is the turn over?",
    State.THINKING: "the hook was asked, nothing is audible yet",
    State.SPEAKING: "the agent is audible",
    State.PAUSED: "the caller makes a sound over the reply, which waits until it is clear what that is",
    State.CLOSING: "the last words play, then the call ends",
    State.ENDED: "the call is over",
}

REPLYING = (State.THINKING, State.SPEAKING, State.PAUSED)
"""A reply runs that may be given up."""

RESTING = (State.LISTENING, State.HEARING, State.DECIDING)
"""No reply runs: the state follows from what the caller is doing."""

HEARD = (State.HEARING, State.DECIDING)
"""No reply runs, and the caller has the floor. A reply is only paused while the caller makes a sound."""

SOUNDING = (State.THINKING, State.SPEAKING)
"""A reply runs and is not paused."""

LIVE = tuple(state for state in State if state is not State.ENDED)


class Why(Enum):
    """What moves a call from one state to another."""

    GREETING = "the call begins with a greeting"
    VOICE = "the caller speaks"
    PAUSE = "the caller's speech pauses"
    CUT = "the turn is too long, or no new word comes while sound goes on: it is taken as it stands"
    NOISE = "what was heard was no speech, an echo, or a response that answers nothing"
    NOISE_AGAIN = "it was no speech, but it stopped an answer nobody had heard: the turn is asked again"
    TURN_OVER = "the turn is over: the hook is asked"
    DEAF = "the recogniser failed: the apology"
    ENTRY = "keys: the entry is complete, or no further key came"
    KEY = "a key stops the reply"
    TYPED = "the caller typed a message"
    RESPOND = "the client asks for a reply"
    AUDIBLE = "the first sample of the reply leaves"
    SPOKEN_OVER = "speech over the reply for `barge_in_ms`"
    RESUMED = "it was a backchannel, a cough, noise or an echo: the reply goes on"
    GUARDED = "the reply is not to be interrupted from here on: it goes on"
    INTERRUPTED = "words, or speech too long for anything else: the reply is given up"
    CANCELLED = "the client cancels the reply"
    CLOSES = "the reply says that it is the last"
    REPLY_ENDED = "all of the reply was heard"
    HUNG_UP = "all of the last words was heard, or the reply asks for the end"
    STILL_THERE = "silence: the agent asks whether somebody is there"
    GOODBYE = "silence after it was asked often enough: goodbye, which may still be answered"
    WARNING = "the call's time is nearly up: a warning"
    TIME_UP = "the call's time is up: goodbye"
    CUT_OFF = "the goodbye took too long as well"
    IDLE = "the caller did nothing for `idle_s`"
    OVER = "the call is ended from outside (hang-up, lost connection, shutdown)"


@dataclass(frozen=True, slots=True)
class Move:
    """From any of `sources` to one of `targets`."""

    why: Why
    sources: tuple[State, ...]
    targets: tuple[State, ...]


MOVES: tuple[Move, ...] = (
    Move(Why.GREETING, (State.LISTENING,), (State.THINKING,)),
    Move(Why.VOICE, (State.LISTENING, State.DECIDING), (State.HEARING,)),
    Move(Why.PAUSE, (State.HEARING,), (State.DECIDING,)),
    Move(Why.CUT, (State.HEARING,), (State.DECIDING,)),
    Move(Why.NOISE, HEARD, (State.LISTENING,)),
    Move(Why.NOISE_AGAIN, HEARD, (State.THINKING,)),
    Move(Why.TURN_OVER, (State.DECIDING,), (State.THINKING,)),
    Move(Why.DEAF, (State.DECIDING,), (State.THINKING,)),
    Move(Why.ENTRY, (State.LISTENING, State.HEARING), (State.THINKING,)),
    Move(Why.KEY, SOUNDING, RESTING),
    Move(Why.KEY, (State.PAUSED,), HEARD),
    Move(Why.TYPED, LIVE, (State.THINKING,)),
    Move(Why.RESPOND, LIVE, (State.THINKING,)),
    Move(Why.AUDIBLE, (State.THINKING,), (State.SPEAKING,)),
    Move(Why.SPOKEN_OVER, SOUNDING, (State.PAUSED,)),
    Move(Why.RESUMED, (State.PAUSED,), SOUNDING),
    Move(Why.GUARDED, (State.PAUSED,), SOUNDING),
    Move(Why.INTERRUPTED, REPLYING, HEARD),
    Move(Why.CANCELLED, SOUNDING, RESTING),
    Move(Why.CANCELLED, (State.PAUSED,), HEARD),
    Move(Why.CLOSES, REPLYING, (State.CLOSING,)),
    Move(Why.REPLY_ENDED, SOUNDING, RESTING),
    Move(Why.REPLY_ENDED, (State.PAUSED,), HEARD),
    Move(Why.HUNG_UP, (*REPLYING, State.CLOSING), (State.ENDED,)),
    Move(Why.STILL_THERE, (State.LISTENING,), (State.THINKING,)),
    Move(Why.GOODBYE, (State.LISTENING,), (State.THINKING,)),
    Move(Why.WARNING, (State.LISTENING,), (State.THINKING,)),
    Move(Why.TIME_UP, (*RESTING, *REPLYING), (State.CLOSING,)),
    Move(Why.CUT_OFF, LIVE, (State.ENDED,)),
    Move(Why.IDLE, (State.LISTENING,), (State.ENDED,)),
    Move(Why.OVER, LIVE, (State.ENDED,)),
)

ALLOWED: frozenset[tuple[State, Why, State]] = frozenset(
    (source, move.why, target) for move in MOVES for source in move.sources for target in move.targets
)
"""Every move there is. The turn machine makes no other: it checks each."""


def as_markdown() -> str:
    """The table as a page of the docs."""
    lines = [
        "# States and transitions of the turn machine",
        "",
        "Generated from `agent/conversation/transitions.py` by `python -m agent.conversation.transitions",
        "docs/turn-machine.md`; do not edit. The machine checks every move against this table.",
        "",
        "| state | meaning | floor |",
        "|---|---|---|",
        *(f"| {state.value} | {MEANING[state]} | {FLOOR[state]} |" for state in State),
        "",
    ]
    for state in LIVE:
        lines += [f"## {state.value}", "", "| what happens | next |", "|---|---|"]
        for move in MOVES:
            if state in move.sources:
                targets = " or ".join(target.value for target in move.targets)
                lines.append(f"| {move.why.value} | {targets} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(as_markdown(), encoding="utf-8")
    else:
        sys.stdout.write(as_markdown())
