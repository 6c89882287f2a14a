"""A stream of calls in virtual time: who speaks when, what the engine works on, and was the first clause ready.

Events in a heap; one engine thread that finishes what it began. Clauses that a caller waits for come first, work ahead
only while nobody waits. Predictor, plan, privacy policy and memory tier are those of the product.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from agent.asr.protocol import EngineInfo
from agent.config import CacheSettings
from agent.speech.chunker import Clause, ClauseChunker
from agent.tts.protocol import Style, Voice
from agent.voicecache.entry import CachedSpeech
from agent.voicecache.foresight import Foresight, first_clause
from agent.voicecache.key import SpeechKey, speech_key
from agent.voicecache.memory import MemoryTier
from agent.voicecache.plan import Candidate, CpuBudget, PrefetchPlan
from agent.voicecache.prefetcher import Job
from agent.voicecache.privacy import Privacy
from agent.voicecache.situation import Situation
from bench._dialogues import Dialogue, Exchange

__all__ = ["EngineTimes", "LineResult", "Lru", "Tiny", "play"]

ENGINE = EngineInfo("hibari", "measured", 24_000, ("en",), True)
STYLE = Style()

CHARS_PER_S = 15.0
"""The agent's pace."""
WORDS_PER_S = 2.5
"""The caller's pace."""
REACTION_S = 0.5
"""From the agent's last sound to the caller's first."""
PARTIAL_EVERY_S = 0.32
RECOGNISED_AFTER_S = 0.25
"""A word is in a partial this long after it was said."""
DECIDED_AFTER_S = 0.4
"""From the caller's last word to the hook's first text: end of turn, final reading, a fast hook."""
CALLS_EVERY_S = 20.0

_SOUND = np.zeros(24_000 * 60, np.int16)


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """CPU seconds for a clause, measured: a + b a character."""

    each_s: float
    per_char_s: float

    def seconds(self, text: str) -> float:
        return self.each_s + self.per_char_s * len(text)


class Store(Protocol):
    """What a system keeps speech in."""

    def get(self, key: SpeechKey) -> CachedSpeech | None: ...

    def put(self, speech: CachedSpeech) -> object: ...

    def __contains__(self, key: SpeechKey) -> bool: ...


class Lru:
    """The plain cache to compare with: bounded by bytes, what was used longest ago goes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[SpeechKey, CachedSpeech] = OrderedDict()
        self._size = 0

    def get(self, key: SpeechKey) -> CachedSpeech | None:
        speech = self._entries.get(key)
        if speech is not None:
            self._entries.move_to_end(key)
        return speech

    def put(self, speech: CachedSpeech) -> None:
        if speech.key not in self._entries:
            self._size += speech.size_bytes
        self._entries[speech.key] = speech
        self._entries.move_to_end(speech.key)
        while self._size > self._max_bytes:
            self._size -= self._entries.popitem(last=False)[1].size_bytes

    def __contains__(self, key: SpeechKey) -> bool:
        return key in self._entries


class Tiny:
    """Keeps nothing: no cache at all."""

    def get(self, key: SpeechKey) -> None:  # noqa: ARG002
        return None

    def put(self, speech: CachedSpeech) -> None:
        """Forgotten at once."""

    def __contains__(self, key: SpeechKey) -> bool:
        return False


@dataclass(slots=True)
class LineResult:
    """What came of a stream of calls."""

    ready: list[list[bool]] = field(default_factory=list)
    """By dialogue in the order they began: for each answer, was its first clause in memory when it was needed."""
    live_s: float = 0.0
    ahead_s: float = 0.0
    wasted_s: float = 0.0
    ahead: int = 0
    wasted: int = 0
    waited_s: list[float] = field(default_factory=list)
    """For each answer, how long its first clause took from there."""


@dataclass(slots=True)
class _Work:
    job: Job
    key: SpeechKey
    done: Callable[[], None] | None
    """None: made ahead."""


class _Line:
    def __init__(
        self, store: Store, times: EngineTimes, settings: CacheSettings | None, *, oracle: bool, expect: bool, seed: int
    ) -> None:
        self.now = 0.0
        self.result = LineResult()
        self._store = store
        self._times = times
        self._oracle = oracle
        self._expect = expect
        self._rng = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._waiting: deque[_Work] = deque()
        self._running: _Work | None = None
        self._unspent: dict[SpeechKey, float] = {}
        budget = settings.cpu_s_per_hour if settings is not None else float(10**9) if oracle else 0.0
        self._plan = PrefetchPlan(CpuBudget(budget, 0.0))
        self._foresight = (
            Foresight(
                settings,
                Privacy(settings.private, settings.public_words),
                want=self._want,
                ready=lambda job: self._key(job) in self._store,
                note=lambda _call, _record: None,
            )
            if settings is not None
            else None
        )

    def run(self, calls: Sequence[Dialogue]) -> LineResult:
        at = 0.0
        for number, dialogue in enumerate(calls):
            self.result.ready.append([])
            self._at(at, lambda number=number, dialogue=dialogue: self._begin(number, dialogue))  # type: ignore[misc]
            at += self._rng.expovariate(1 / CALLS_EVERY_S)
        while self._events:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.result.wasted = len(self._unspent)
        self.result.wasted_s = sum(self._unspent.values())
        return self.result

    # -- the dialogue --------------------------------------------------------------------------------------------------

    def _begin(self, number: int, dialogue: Dialogue) -> None:
        if self._foresight is not None:
            self._foresight.on_call(str(number), Voice(dialogue.voice), STYLE, hour=10)
        self._speak(number, dialogue, dialogue.greeting, 0, first=False)

    def _speak(self, number: int, dialogue: Dialogue, exchange: Exchange, next_one: int, *, first: bool) -> None:
        """The agent answers now; `first`: its first clause counts."""
        chunker = ClauseChunker("en")
        clauses = [clause for clause in chunker.push(exchange.reply) + chunker.flush() if clause.spoken]
        self._plan.forget(str(number))
        if self._foresight is not None:
            self._foresight.on_reply(str(number), clauses[0].text.strip(), heard=exchange.heard)
        asked = self.now

        def said(index: int) -> None:
            """Clause `index` is there: it plays, the next one is made meanwhile."""
            if index == 0 and first:
                self.result.waited_s.append(self.now - asked)
            if index + 1 < len(clauses):
                self._need(dialogue, clauses[index + 1], lambda: said(index + 1))
            else:
                length_s = len(exchange.reply) / CHARS_PER_S
                ends = max(self.now + len(clauses[-1].spoken) / CHARS_PER_S, asked + length_s)
                self._at(ends, lambda: self._listen(number, dialogue, next_one))
                self._expectation(number, dialogue, exchange, clauses, next_one)

        if first:
            self.result.ready[number].append(self._key(self._job(dialogue, clauses[0])) in self._store)
        self._need(dialogue, clauses[0], lambda: said(0))

    def _expectation(
        self, number: int, dialogue: Dialogue, exchange: Exchange, clauses: list[Clause], next_one: int
    ) -> None:
        """The whole reply is made: what may come after it is known from here on, while it still plays."""
        if self._oracle and next_one < len(dialogue.exchanges):
            clause = first_clause(dialogue.exchanges[next_one].reply, "en")
            assert clause is not None
            self._want(str(number), [(self._job(dialogue, clause), 1.0)])
        if self._foresight is not None:
            situation = Situation(
                exchange.state,
                clauses[-1].text.strip(),
                expected=exchange.expected if self._expect else (),
                slots=exchange.known,
            )
            self._foresight.on_turn(str(number), situation)

    def _listen(self, number: int, dialogue: Dialogue, next_one: int) -> None:
        if next_one >= len(dialogue.exchanges):
            self._plan.forget(str(number))
            if self._foresight is not None:
                self._foresight.on_end(str(number))
            return
        coming = dialogue.exchanges[next_one]
        words = coming.heard.split()
        begin = self.now + REACTION_S
        end = begin + len(words) / WORDS_PER_S
        if self._foresight is not None:
            at = begin + PARTIAL_EVERY_S
            while at < end + DECIDED_AFTER_S:
                heard = " ".join(words[: max(0, int((at - begin - RECOGNISED_AFTER_S) * WORDS_PER_S))])
                if heard:
                    self._at(at, lambda heard=heard: self._partial(number, heard))  # type: ignore[misc]
                at += PARTIAL_EVERY_S
            # The recogniser reads at the pause as well: without that reading no turn is decided.
            self._at(end + RECOGNISED_AFTER_S, lambda: self._partial(number, coming.heard))
        self._at(end + DECIDED_AFTER_S, lambda: self._speak(number, dialogue, coming, next_one + 1, first=True))

    def _partial(self, number: int, heard: str) -> None:
        assert self._foresight is not None
        self._foresight.on_partial(str(number), heard)

    # -- the engine ----------------------------------------------------------------------------------------------------

    def _need(self, dialogue: Dialogue, clause: Clause, then: Callable[[], None]) -> None:
        job = self._job(dialogue, clause)
        key = self._key(job)
        if self._store.get(key) is not None:
            self._unspent.pop(key, None)
            then()
            return
        if self._running is not None and self._running.key == key and self._running.done is None:
            # Being made ahead just now: it is used after all.
            self._running.done = then
            return
        self._waiting.append(_Work(job, key, then))
        self._work()

    def _want(self, call: str, jobs: Sequence[tuple[Job, float]]) -> None:
        self._plan.want(call, [Candidate(job, probability) for job, probability in jobs])
        self._work()

    def _work(self) -> None:
        if self._running is not None:
            return
        if self._waiting:
            self._running = self._waiting.popleft()
        else:
            while (candidate := self._plan.next(self.now)) is not None:
                job = candidate.key
                assert isinstance(job, Job)
                self._plan.done(job)
                if self._key(job) not in self._store:
                    self._running = _Work(job, self._key(job), None)
                    break
            else:
                return
        assert self._running is not None
        seconds = self._times.seconds(self._running.job.text)
        if self._running.done is None:
            self.result.ahead_s += seconds
            self.result.ahead += 1
            self._unspent[self._running.key] = seconds
            self._plan.budget.spend(seconds, self.now)
        else:
            self.result.live_s += seconds
        self._at(self.now + seconds, self._made)

    def _made(self) -> None:
        work = self._running
        assert work is not None
        self._running = None
        samples = min(len(_SOUND), int(len(work.job.text) / CHARS_PER_S * ENGINE.sample_rate_hz))
        voice = work.job.voice
        self._store.put(
            CachedSpeech(work.key, work.job.text, voice.name, voice.language, ENGINE.identity, 24_000, _SOUND[:samples])
        )
        if work.done is not None:
            self._unspent.pop(work.key, None)
            work.done()
        self._work()

    def _job(self, dialogue: Dialogue, clause: Clause) -> Job:
        return Job(clause.spoken, Voice(dialogue.voice), STYLE)

    def _key(self, job: Job) -> SpeechKey:
        return speech_key(job.text, job.voice, job.style, ENGINE)

    def _at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._count), action))


def play(
    calls: Sequence[Dialogue],
    times: EngineTimes,
    system: str,
    settings: CacheSettings,
    *,
    seed: int,
) -> LineResult:
    """Play the calls against one system.

    Args:
        system: `none`, `lru`, `learned` (ours, but hooks that say nothing of what they expect), `ours`, `oracle`.
    """
    size = settings.memory_mb * 1_000_000
    store: Store
    match system:
        case "none":
            store = Tiny()
        case "lru" | "oracle":
            store = Lru(size)
        case _:
            store = MemoryTier(size)
    ours = settings if system in ("ours", "learned") else None
    return _Line(store, times, ours, oracle=system == "oracle", expect=system == "ours", seed=seed).run(calls)
