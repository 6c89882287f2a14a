"""Follows the dialogues of all calls and turns predictions into work for the prefetcher; learns from what was said."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from agent.config import CacheSettings
from agent.speech.chunker import Clause, ClauseChunker
from agent.speech.normalize import normalize
from agent.tts.protocol import Style, Voice
from agent.voicecache.journal import Foreseen, TurnRecord, veiled
from agent.voicecache.predictor import Observation, Prediction, Predictor
from agent.voicecache.prefetcher import Job
from agent.voicecache.privacy import Privacy
from agent.voicecache.situation import Situation, template
from agent.voicecache.voices import VoicePredictor

__all__ = ["Foresight", "first_clause"]

MAX_CALLS = 512
MAX_UNTAUGHT = 1_000
"""Observations waiting to be shared."""

MAX_OPENING_CHARS = 2_000
"""Of a text that a hook expects: more is no clause."""

MAX_PARTIAL_CHARS = 600
"""The end of a long turn tells what it is about."""

REMEMBERED = 4_096
"""Texts whose reading is kept: the same openings are looked at again with each partial."""

log = logging.getLogger(__name__)


@lru_cache(REMEMBERED)
def _spoken(text: str, language: str) -> str:
    return normalize(text, language)


def first_clause(text: str, language: str) -> Clause | None:
    """The clause that a reply of `text` begins with; None if nothing of it is spoken."""
    return _first_clause(text[:MAX_OPENING_CHARS], language)


@lru_cache(REMEMBERED)
def _first_clause(text: str, language: str) -> Clause | None:
    chunker = ClauseChunker(language)
    clauses = chunker.push(text) + chunker.flush()
    return next((clause for clause in clauses if clause.spoken), None)


@dataclass(slots=True)
class _Dialogue:
    """One call."""

    voice: Voice
    style: Style
    situation: Situation = field(default_factory=Situation)
    partial: str = ""
    partials: int = 0
    predictions: Sequence[Prediction] = ()
    turns: int = 0


class Foresight:
    """Predictions for all calls. No tasks, no I/O: what is to be made and written goes out by callbacks.

    Args:
        want: told the jobs a call needs next, with their probabilities.
        ready: whether a job's speech is in memory.
        note: takes a record for the journal.
    """

    def __init__(
        self,
        settings: CacheSettings,
        privacy: Privacy,
        *,
        want: Callable[[str, Sequence[tuple[Job, float]]], None],
        ready: Callable[[Job], bool],
        note: Callable[[str, TurnRecord], None],
    ) -> None:
        self.predictor = Predictor(settings.half_life_turns)
        self.voices = VoicePredictor()
        self.changed = False
        """Something was learned since this was last set to False."""
        self._settings = settings
        self._privacy = privacy
        self._want = want
        self._ready = ready
        self._note = note
        self._dialogues: OrderedDict[str, _Dialogue] = OrderedDict()
        self._untaught: deque[Observation] = deque(maxlen=MAX_UNTAUGHT)

    def on_call(
        self, call: str, voice: Voice, style: Style, *, hour: int, caller: str | None = None, queue: str = ""
    ) -> None:
        """A call began, or goes on with another voice."""
        dialogue = self._dialogues.get(call)
        if dialogue is None:
            self._dialogues[call] = _Dialogue(voice, style)
            while len(self._dialogues) > MAX_CALLS:
                self._dialogues.popitem(last=False)
        else:
            dialogue.voice, dialogue.style = voice, style
        self.voices.observe(voice, hour=hour, caller=caller, queue=queue)
        self.changed = True

    def on_turn(self, call: str, situation: Situation) -> None:
        """The agent has spoken; this is where the dialogue stands now."""
        dialogue = self._dialogues.get(call)
        if dialogue is None:
            return
        said = template(situation.said, situation.slots).strip()
        if self._privacy.private(said, dialogue.voice.language):
            said = ""
        dialogue.situation = replace(situation, said=said, expected=self._clauses(situation.expected, dialogue))
        dialogue.partial = ""
        dialogue.partials = 0
        self._predict(call, dialogue)

    def on_partial(self, call: str, text: str) -> None:
        """The caller's running turn reads like this now."""
        dialogue = self._dialogues.get(call)
        text = text[-MAX_PARTIAL_CHARS:].strip()
        if dialogue is None or not text or text == dialogue.partial:
            return
        dialogue.partial = text
        dialogue.partials += 1
        self._predict(call, dialogue)

    def on_reply(
        self, call: str, text: str, *, heard: str = "", private: bool = False, ready: bool | None = None
    ) -> None:
        """The agent answers `heard`, and this is the first clause of it.

        Args:
            ready: whether its speech was in memory when it was asked for; None: it is asked for after this.
        """
        dialogue = self._dialogues.get(call)
        if dialogue is None:
            return
        dialogue.turns += 1
        heard = (heard or dialogue.partial)[-MAX_PARTIAL_CHARS:]
        observation = self.predictor.observation(dialogue.situation, heard, text)
        language = dialogue.voice.language
        private = private or self._privacy.private(observation.opening, language)
        self._record(call, dialogue, text, observation.opening, private, ready)
        if not private:
            self.predictor.observe(observation)
            self._untaught.append(observation)
            self.changed = True
        dialogue.predictions = ()

    def on_end(self, call: str) -> None:
        """The call is over."""
        self._dialogues.pop(call, None)

    def untaught(self) -> list[Observation]:
        """What other processes were not told yet; told once."""
        out = list(self._untaught)
        self._untaught.clear()
        return out

    def learn(self, seen: Sequence[Observation]) -> None:
        """What other processes observed."""
        for observation in seen:
            self.predictor.observe(observation)
        self.changed = self.changed or bool(seen)

    def predictions(self, call: str) -> Sequence[Prediction]:
        """The newest predictions for a call, likeliest first."""
        dialogue = self._dialogues.get(call)
        return () if dialogue is None else dialogue.predictions

    def _predict(self, call: str, dialogue: _Dialogue) -> None:
        limit = self._settings.predictions_per_turn
        dialogue.predictions = self.predictor.predict(dialogue.situation, dialogue.partial, limit=limit)
        # Two templates may read the same, spoken.
        wanted: dict[Job, float] = {}
        for prediction in dialogue.predictions:
            job = self._job(prediction.text, dialogue)
            if job is not None and not self._ready(job):
                wanted[job] = wanted.get(job, 0.0) + prediction.probability
        least = self._settings.min_probability
        self._want(call, [(job, probability) for job, probability in wanted.items() if probability >= least])

    def _record(
        self, call: str, dialogue: _Dialogue, text: str, opening: str, private: bool, ready: bool | None
    ) -> None:
        language = dialogue.voice.language
        actual = _spoken(text, language)
        if ready is None:
            ready = (job := self._job(text, dialogue)) is not None and self._ready(job)
        foreseen = [
            Foreseen(
                veiled(p.pattern, self._privacy.private(p.pattern, language)),
                round(p.probability, 3),
                p.why,
                (each := self._job(p.text, dialogue)) is not None and self._ready(each),
            )
            for p in dialogue.predictions
        ]
        used = ready and any(_spoken(p.text, language) == actual for p in dialogue.predictions)
        situation = dialogue.situation
        self._note(
            call,
            TurnRecord(
                dialogue.turns,
                situation.state,
                situation.said,
                veiled(opening, private),
                foreseen,
                used,
                ready,
                dialogue.partials,
            ),
        )

    def _job(self, text: str, dialogue: _Dialogue) -> Job | None:
        spoken = _spoken(text, dialogue.voice.language)
        return Job(spoken, dialogue.voice, dialogue.style) if spoken else None

    def _clauses(self, texts: Sequence[str], dialogue: _Dialogue) -> tuple[str, ...]:
        def each() -> Iterator[str]:
            for text in texts[:64]:
                clause = first_clause(text, dialogue.voice.language)
                if clause is not None:
                    yield clause.text.strip()

        return tuple(dict.fromkeys(each()))
