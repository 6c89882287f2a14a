"""Which samples a recogniser gets where two segments overlap, and when its stream opens and closes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from agent.asr.protocol import EngineInfo, Hypothesis
from agent.ear import SILENCE_SAMPLES, Ear
from agent.errors import EngineError
from agent.media.frames import Pcm

PCM = np.arange(8000, dtype=np.int16)
"""Half a second in which every sample says where it was."""


class Written:
    """A stream that keeps what it gets and reads what the test wrote."""

    def __init__(self, language: str) -> None:
        self.language = language
        self.pieces: list[Pcm] = []
        self.reading = Hypothesis()
        self.answers = asyncio.Event()
        self.answers.set()
        self.closed = False

    @property
    def pcm(self) -> Pcm:
        return np.concatenate(self.pieces)

    def push(self, pcm: Pcm) -> None:
        self.pieces.append(pcm)

    def partial(self) -> Hypothesis:
        return self.reading

    async def final(self) -> Hypothesis:
        await self.answers.wait()
        return self.reading

    def close(self) -> None:
        self.closed = True


class Notebook:
    """A recogniser of such streams."""

    info = EngineInfo("written", "1", 16_000, ("en", "de"), streams=True)

    def __init__(self) -> None:
        self.streams: list[Written] = []

    def stream(self, *, language: str, hints: Sequence[str] = ()) -> Written:
        self.streams.append(Written(language))
        return self.streams[-1]

    async def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def notebook() -> Notebook:
    return Notebook()


async def heard(ear: Ear, notebook: Notebook, text: str) -> None:
    """A turn of one segment in which this was read; it is over."""
    ear.begin(PCM, 0)
    notebook.streams[-1].reading = Hypothesis(text, text, revision=1)
    await ear.final()
    ear.reset()


async def test_a_turns_last_word_is_not_the_first_of_the_next(notebook: Notebook) -> None:
    ear = Ear(notebook, "en")
    await heard(ear, notebook, "goodbye")
    ear.begin(PCM, 4000)
    assert notebook.streams[1].pcm[0] == 4000 - SILENCE_SAMPLES
    assert notebook.streams[1].pcm[-1] == PCM[-1]


async def test_a_repeat_shorter_than_the_closing_silence_is_kept_whole(notebook: Notebook) -> None:
    ear = Ear(notebook, "en")
    await heard(ear, notebook, "goodbye")
    ear.begin(PCM, SILENCE_SAMPLES // 2)
    assert np.array_equal(notebook.streams[1].pcm, PCM)


async def test_a_word_shown_but_never_final_is_the_last_turns_too(notebook: Notebook) -> None:
    ear = Ear(notebook, "en")
    ear.begin(PCM, 0)
    notebook.streams[0].reading = Hypothesis("good", "good", revision=1)
    assert ear.news() is not None
    ear.reset()
    ear.begin(PCM, 4000)
    assert notebook.streams[1].pcm[0] == 4000 - SILENCE_SAMPLES


async def test_a_short_sound_that_was_dropped_unread_may_begin_the_next_turn(notebook: Notebook) -> None:
    ear = Ear(notebook, "en")
    await heard(ear, notebook, "goodbye")
    ear.begin(PCM, 0)
    ear.reset()
    ear.begin(PCM, 4000)
    assert np.array_equal(notebook.streams[2].pcm, PCM)


async def test_the_next_segment_of_a_turn_repeats_nothing(notebook: Notebook) -> None:
    ear = Ear(notebook, "en")
    ear.begin(PCM, 0)
    ear.push(PCM[:320])
    ear.begin(PCM, 4000)
    [stream] = notebook.streams
    assert [len(piece) for piece in stream.pieces] == [8000, 320, 4000]
    assert stream.pieces[-1][0] == 4000


async def test_a_reading_is_news_once(notebook: Notebook) -> None:
    ear = Ear(notebook, "en")
    assert ear.news() is None
    ear.begin(PCM, 0)
    assert ear.news() is None
    notebook.streams[0].reading = Hypothesis("good", "", revision=1)
    assert ear.news() == Hypothesis("good", "", revision=1)
    assert ear.news() is None


async def test_another_language_begins_with_the_next_turn(notebook: Notebook) -> None:
    ear = Ear(notebook, "en")
    ear.begin(PCM, 0)
    ear.language = "de"
    ear.begin(PCM, 0)
    ear.reset()
    ear.begin(PCM, 0)
    assert [stream.language for stream in notebook.streams] == ["en", "de"]


async def test_a_final_that_comes_after_its_turn_says_nothing_about_the_next(notebook: Notebook) -> None:
    ear = Ear(notebook, "en")
    ear.begin(PCM, 0)
    notebook.streams[0].answers.clear()
    late = asyncio.create_task(ear.final())
    await asyncio.sleep(0)
    ear.reset()
    ear.begin(PCM, 0)
    notebook.streams[0].reading = Hypothesis("late", "late", revision=1)
    notebook.streams[0].answers.set()
    assert (await late).text == "late"
    ear.reset()
    ear.begin(PCM, 4000)
    assert np.array_equal(notebook.streams[2].pcm, PCM)


async def test_outside_a_turn_there_is_nothing_to_read(notebook: Notebook) -> None:
    ear = Ear(notebook, "en")
    ear.push(PCM)
    assert await ear.final() == Hypothesis()
    assert not ear.open
    ear.begin(PCM, 0)
    assert ear.open
    ear.reset()
    ear.reset()
    assert not ear.open
    assert notebook.streams[0].closed


async def test_a_recogniser_that_refuses_leaves_the_ear_closed(notebook: Notebook) -> None:
    class Refusing(Notebook):
        def stream(self, *, language: str, hints: Sequence[str] = ()) -> Written:
            raise EngineError("no")

    ear = Ear(Refusing(), "en")
    with pytest.raises(EngineError):
        ear.begin(PCM, 0)
    assert not ear.open
