"""What was heard, told by the hook's own words; and clauses that come with packets."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import numpy as np
import pytest

from agent.asr.protocol import Word
from agent.media.codec import OPUS, PCMU, Codec
from agent.media.encoded import EncodedSpeech
from agent.media.frames import Pcm
from agent.media.playout import Playout
from agent.speech.chunker import Clause, ClauseChunker
from agent.speech.speaker import Speaker
from agent.tts.protocol import Speech

RATE = 24_000
WORD_S = 0.2


def clause_of(text: str, language: str = "en") -> Clause:
    chunker = ClauseChunker(language)
    clauses = chunker.push(text) + chunker.flush()
    assert len(clauses) == 1
    return clauses[0]


async def by_word(words: list[str], seconds: float = WORD_S) -> AsyncGenerator[Speech]:
    for number, word in enumerate(words):
        yield Speech(
            np.full(round(seconds * RATE), 1000, np.int16), (Word(word, number * seconds, (number + 1) * seconds),)
        )


def play(playout: Playout, speaker: Speaker, seconds: float) -> None:
    for _ in range(round(seconds / 0.02)):
        playout.read()
        speaker.tick()


@pytest.mark.parametrize(
    ("text", "heard_words", "heard"),
    [
        # Half a price was not heard: the source has one word for all of it.
        ("It costs $3.50 today.", 4, "It costs"),
        ("It costs $3.50 today.", 7, "It costs $3.50"),
        ("**Bold** words and `code` here.", 2, "**Bold** words"),
        ("Call 555-0199 now.", 3, "Call"),
    ],
)
async def test_history_is_cut_by_the_words_of_the_source(text: str, heard_words: int, heard: str) -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    clause = clause_of(text)
    await speaker.say(clause.text, by_word([word.text for word in clause.words]), clause)
    play(playout, speaker, heard_words * WORD_S)
    assert speaker.heard() == (heard, text[len(heard) :].strip())


async def test_an_engine_that_counts_words_its_own_way_or_tells_none_is_cut_at_a_word_of_the_source() -> None:
    clause = clause_of("Your total is $3.50 in all.")
    for words in (["your-total", "is-three", "dollars-and", "fifty-cents", "in-all"], []):
        playout = Playout(RATE)
        speaker = Speaker(playout, RATE)
        pieces = by_word(words) if words else one(np.full(RATE, 1000, np.int16))
        await speaker.say(clause.text, pieces, clause)
        for _ in range(50):
            play(playout, speaker, 0.02)
            heard, unheard = speaker.heard()
            assert f"{heard} {unheard}".split() == clause.text.split()
            assert not heard.endswith("$3")


async def one(
    pcm: Pcm, packets: EncodedSpeech | None = None, *, asked: list[Codec] | None = None
) -> AsyncGenerator[Speech]:
    def coded(codec: Codec) -> EncodedSpeech | None:
        if asked is not None:
            asked.append(codec)
        return packets

    yield Speech(pcm, packets=coded)


def coded(pcm: Pcm) -> EncodedSpeech:
    return EncodedSpeech("k", RATE, tuple(bytes([n % 256]) for n in range(-(-len(pcm) // 480))), pcm)


async def test_a_clause_whose_packets_are_there_goes_out_as_packets() -> None:
    playout = Playout(RATE, codec=OPUS)
    speaker = Speaker(playout, RATE)
    asked: list[Codec] = []
    pcm = np.full(480 * 3 + 100, 1000, np.int16)
    seconds = await speaker.say("Hello.", one(pcm, coded(pcm), asked=asked))
    assert asked == [OPUS]
    assert seconds == pytest.approx(len(pcm) / RATE)
    frames = []
    while (frame := playout.read()) is not None:
        frames.append(frame)
        assert playout.encoded is not None
        assert playout.encoded.index == len(frames) - 1
        speaker.tick()
    assert len(frames) == 4
    assert speaker.heard() == ("Hello.", "")
    assert playout.drained


@pytest.mark.parametrize("codec", [None, PCMU])
async def test_without_packets_that_fit_the_samples_go_out(codec: Codec | None) -> None:
    playout = Playout(RATE, codec=codec)
    speaker = Speaker(playout, RATE)
    pcm = np.full(480 * 3, 1000, np.int16)
    await speaker.say("Hello.", one(pcm, None if codec else coded(pcm)))
    frames = [playout.read() for _ in range(2)]
    assert np.array_equal(frames[1], pcm[480:960])
    assert playout.encoded is None


async def test_speech_that_is_stored_at_another_rate_goes_out_at_the_calls() -> None:
    """8 kHz packets of a 24 kHz voice: the samples beside them are the call's, not the voice's."""
    playout = Playout(8_000, codec=PCMU)
    speaker = Speaker(playout, RATE)
    pcm = np.full(RATE, 1000, np.int16)
    packets = EncodedSpeech("k", 8_000, (b"\x00",) * 50, np.full(8_000, 1000, np.int16))
    assert await speaker.say("Hello.", one(pcm, packets)) == pytest.approx(1.0)
    assert playout.queued_samples == 8_000


async def test_a_clause_too_long_for_the_queue_goes_out_as_samples() -> None:
    playout = Playout(RATE, codec=OPUS, max_queued_s=2.0)
    speaker = Speaker(playout, RATE)
    pcm = np.full(RATE * 3 // 2, 1000, np.int16)
    await speaker.say("Hello.", one(pcm, coded(pcm)))
    playout.read()
    assert playout.encoded is None


async def test_a_reply_begun_ahead_keeps_its_packets_when_it_joins_the_call() -> None:
    ahead, call = Playout(RATE, codec=OPUS), Playout(RATE, codec=OPUS)
    speaker = Speaker(ahead, RATE)
    speaker.hold()
    pcm = np.full(480 * 4, 1000, np.int16)
    await speaker.say("Hello.", one(pcm, coded(pcm)))
    speaker.join(call)
    speaker.release()
    call.read()
    assert call.encoded is not None
    assert speaker.heard() == ("", "Hello.")


async def test_an_interrupted_clause_of_packets_is_cut_like_any_other() -> None:
    playout = Playout(RATE, codec=OPUS)
    speaker = Speaker(playout, RATE)
    clause = clause_of("one two three four five")
    pcm = np.full(RATE, 1000, np.int16)
    packets = coded(pcm)
    words = tuple(Word(word, n * 0.2, n * 0.2 + 0.2) for n, word in enumerate(clause.text.split()))

    async def speech() -> AsyncGenerator[Speech]:
        yield Speech(pcm, words, packets=lambda codec: packets)

    await speaker.say(clause.text, speech(), clause)
    play(playout, speaker, 0.4)
    playout.pause()
    play(playout, speaker, 0.1)
    speaker.stop()
    assert speaker.heard() == ("one two", "three four five")
