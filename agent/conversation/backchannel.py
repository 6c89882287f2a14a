"""Words that say "go on", not "stop": spoken over the agent they do not take the floor."""

from __future__ import annotations

import re

from agent.language import primary_language

__all__ = ["is_backchannel"]

# Per language, whole utterances only. "yes" and "no" are left out: they often answer the question being asked.
BACKCHANNELS: dict[str, frozenset[str]] = {
    "en": frozenset(
        (
            "mhm,mm,mmm,hm,hmm,hmmm,mm-hmm,mm-hm,mm hmm,mm hm,mmhmm,uh,um,uh-huh,uh huh,uhhuh,ah,oh,aha,wow,really,"
            "ok,okay,oh okay,okay okay,right,alright,all right,sure,yeah,yeah yeah,yep,i see,go on,got it"
        ).split(",")
    ),
    "zh": frozenset("嗯,嗯嗯,哦,噢,对,对对,好,好的,是,是的,啊,哈".split(",")),
}

_PUNCTUATION = re.compile(r"[^\w\s'-]+")


def is_backchannel(text: str, language: str = "en") -> bool:
    """True when all of `text` is a listener's response, such as "mhm" or "okay".

    Empty text is not one: there is nothing to judge.
    """
    words = " ".join(_PUNCTUATION.sub(" ", text.lower()).split())
    return words in BACKCHANNELS.get(primary_language(language), frozenset())
