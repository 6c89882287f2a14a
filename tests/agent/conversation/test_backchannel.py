from __future__ import annotations

import pytest

from agent.conversation.backchannel import is_backchannel


@pytest.mark.parametrize("text", ["Mhm.", "uh-huh", "Okay!", "mm-hmm", "I see.", "  RIGHT ", "Yeah, yeah."])
def test_a_listeners_response_is_a_backchannel(text: str) -> None:
    assert is_backchannel(text)


@pytest.mark.parametrize("text", ["", "yes", "no", "stop", "okay but wait", "I see a problem", "right now please"])
def test_words_with_a_will_of_their_own_are_not(text: str) -> None:
    assert not is_backchannel(text)


def test_language_decides() -> None:
    assert is_backchannel("嗯。", "zh")
    assert is_backchannel("嗯嗯", "zh-CN")
    assert not is_backchannel("嗯。", "en")
    assert not is_backchannel("mhm", "tlh")
