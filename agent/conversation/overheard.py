"""What speech over the agent is: an interruption, a listener's response, an echo, or nothing. Pure."""

from __future__ import annotations

from enum import Enum

from agent.conversation.backchannel import asks, is_backchannel
from agent.conversation.said import Said
from agent.conversation.words import count_words
from agent.nlu.hook import Expect

__all__ = ["LONG_INTERRUPTION_S", "NEAR_END_S", "SURE_INTERRUPTION_S", "Overheard", "may_answer", "overheard"]

SURE_INTERRUPTION_S = 0.7
"""Speech this long over a reply is meant for us, even if no word was recognised yet; backchannels are shorter."""

LONG_INTERRUPTION_S = 3.0
"""Speech this long is meant for us whatever it reads like: no echo outlasts the pause, no "mhm" takes three seconds."""

NEAR_END_S = 1.0
"""A doubtful word this shortly before the end of a reply is kept: it may be the answer to it."""


class Overheard(Enum):
    """What words over the agent are taken for."""

    NOTHING = "no words"
    ECHO = "the agent's own words"
    BACKCHANNEL = "a listener's response"
    FEW = "fewer words than take the floor, or one of the agent's own"
    WORDS = "words that take the floor"

    def interrupts_after(self) -> float:
        """How long, in seconds, speech that reads like this goes on until it takes the floor."""
        match self:
            case Overheard.WORDS:
                return 0.0
            case Overheard.NOTHING | Overheard.FEW:
                return SURE_INTERRUPTION_S
            case Overheard.ECHO | Overheard.BACKCHANNEL:
                return LONG_INTERRUPTION_S


def overheard(
    text: str, said: Said | None, since: float, last_speech: float | None, *, language: str, min_words: int
) -> Overheard:
    """Judge a reading of speech over the agent.

    Args:
        text: the reading.
        said: what the agent said; None leaves echo out.
        since, last_speech: when the speech began and ended (None while it goes on), on the machine's clock.
        language: BCP 47 tag of the caller.
        min_words: as many words take the floor (a Chinese character is a word).
    """
    count = count_words(text)
    if not count:
        return Overheard.NOTHING
    ours = said is not None and said.could_echo(since) and said.reads_like(text, last_speech)
    if ours and said is not None and (count > 1 or said.echoes(since)):
        return Overheard.ECHO
    if is_backchannel(text, language):
        return Overheard.BACKCHANNEL
    # One word of ours, on a line that never had echo, may as well be the answer to "say yes or no".
    return Overheard.WORDS if count >= min_words and not ours else Overheard.FEW


def may_answer(asked: str, expect: Expect, language: str) -> bool:
    """Whether "okay", "right" and the like answer what was asked."""
    return expect == "yes_no" or asks(asked, language)
