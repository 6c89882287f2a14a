"""Words that say "go on", not "stop": spoken over the agent they do not take the floor."""

from __future__ import annotations

from functools import cache

from agent.conversation.words import words
from agent.language import primary_language

__all__ = ["asks", "is_backchannel"]

# Per language: phrases of which a listener's response is made, alone or several in a row ("yeah okay", "mhm mhm").
# Left out is what answers, asks or objects even in the middle of a sentence: "yes", "no", "what", "stop".
BACKCHANNELS: dict[str, str] = {
    "en": (
        "mhm,mm,mmm,hm,hmm,hmmm,mm-hmm,mm-hm,mm hmm,mm hm,mmhmm,mhmm,um-hum,uh-huh,uh huh,uhhuh,huh,ah,aah,oh,ooh,aha,"
        "uh,um,umm,er,wow,really,ok,okay,kay,right,alright,all right,sure,yeah,yep,yup,i see,go on,got it,i got it,"
        "gotcha,cool,great,nice,good,fine,exactly,of course,makes sense,that makes sense,i know,i understand,perfect"
    ),
    "zh": (
        "嗯,嗯哼,恩,唔,哦,噢,喔,啊,哈,呵,哎,诶,欸,对,对对对,对的,对啊,好,好的,好啊,好吧,行,行吧,可以,是,是的,是啊,没错,"
        "这样,这样啊,明白,明白了,知道了,我知道,了解,懂了,嗯嗯,ok,okay"
    ),
    "de": "mhm,hm,hmm,aha,ach,ach so,achso,ah,oh,okay,ok,genau,gut,alles klar,verstehe,stimmt,klar,na klar,richtig",
    "fr": "mhm,hm,hmm,ah,oh,euh,ok,okay,d'accord,ouais,bien,très bien,je vois,voilà,exactement,c'est ça,entendu",
    "es": "mhm,hm,hmm,ah,ajá,aja,eh,oh,ok,okay,vale,claro,ya,ya veo,bueno,bien,entiendo,exacto,de acuerdo,perfecto",
    "it": "mhm,hm,hmm,ah,eh,oh,ok,okay,va bene,certo,capisco,ho capito,esatto,bene,giusto,d'accordo,perfetto",
    "pt": "mhm,hm,hmm,ah,hum,ok,okay,certo,tá,tá bom,entendi,claro,exato,beleza,pois,isso,perfeito",
    "nl": "mhm,hm,hmm,ah,oh,oké,oke,ok,okay,precies,goed,juist,ik snap het,begrijp ik,prima,klopt",
    "ja": "うん,うんうん,はあ,へえ,ふーん,ええ,そう,そうです,そうですか,そうですね,なるほど,あー,ああ,わかりました",
}

_QUESTION_MARKS = ("?", "？", "؟")
_QUESTION_WORDS = {"zh": ("吗", "嘛", "么", "呢", "吧"), "ja": ("か",)}
_CLOSING = " \t\n\"'”’»)）」』.。!！…"


def is_backchannel(text: str, language: str = "en") -> bool:
    """True when all of `text` is a listener's response, such as "mhm", "okay" or "yeah, okay".

    Empty text is not one: there is nothing to judge. Whether "okay" answers a question is not seen here.
    """
    said = words(text)
    table = _phrases(primary_language(language))
    longest = max((len(phrase) for phrase in table), default=0)
    # ends[i]: the first i words are a row of whole phrases.
    ends = [True] + [False] * len(said)
    for end in range(1, len(said) + 1):
        first = max(0, end - longest)
        ends[end] = any(ends[start] and tuple(said[start:end]) in table for start in range(first, end))
    return bool(said) and ends[-1]


def asks(text: str, language: str = "en") -> bool:
    """True when what the agent said last is a question, so that "okay" or "right" may be the answer."""
    text = text.rstrip(_CLOSING)
    return text.endswith(_QUESTION_MARKS) or text.endswith(_QUESTION_WORDS.get(primary_language(language), ("?",)))


@cache
def _phrases(language: str) -> frozenset[tuple[str, ...]]:
    listed = BACKCHANNELS.get(language, "")
    return frozenset(tuple(words(phrase)) for phrase in listed.split(",") if phrase)
