"""What Rejoinder counts and times, as Prometheus metrics. Base units, `_total` for counters, never a call id as label.

One `Metrics` a process, with a registry of its own: tests and embedders make a fresh one and see only their numbers.
Methods are cheap (microseconds) and may be called on the event loop; label values outside the known set become `other`,
so that no caller can make the number of time series grow.
"""

from __future__ import annotations

from typing import Literal, get_args

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from agent.events import TurnTimings
from agent.media.stats import PortStats
from agent.nlu.hook import Channel

__all__ = [
    "CONTENT_TYPE",
    "FrameKind",
    "InterruptionKind",
    "Metrics",
    "Outcome",
    "SpeculationResult",
    "process_metrics",
]

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""Media type of `Metrics.render()`."""

Outcome = Literal["completed", "hung_up", "transferred", "lost", "failed", "refused", "drained"]
"""How a call ended: by the agent, by the caller, to a person, peer vanished, our fault, never taken, at shutdown."""

InterruptionKind = Literal["barge_in", "backchannel", "typed", "client"]
SpeculationResult = Literal["used", "wasted", "declined"]
"""What became of a reply begun ahead: it became the answer, was for nothing, or was not begun (load, hook, state)."""
FrameKind = Literal["received", "fec", "concealed", "late", "duplicate", "discarded", "sent", "silence", "send_late"]

LATENCY_BUCKETS_S = (0.02, 0.04, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 3.0)

LAG_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.075, 0.15, 0.5)
"""The ticker is due every 20 ms: everything of interest lies below the first latency buckets."""

_CHANNELS = frozenset(get_args(Channel))
_OUTCOMES = frozenset(get_args(Outcome))
_INTERRUPTIONS = frozenset(get_args(InterruptionKind))
_SPECULATIONS = frozenset(get_args(SpeculationResult))
_FRAMES = frozenset(get_args(FrameKind))
_CACHE = frozenset({"hit", "predicted", "miss"})
_TIERS = frozenset({"memory", "disk", "redis", "engine", "joined"})
_LOOKUPS = frozenset({"hit", "miss", "late", "error", "off", "stored", "refused"})
_PREDICTIONS = frozenset({"used", "wasted"})
_PARTS = frozenset(
    {"asr", "nlu", "tts", "vad", "media", "signaling", "call", "listening", "conversation", "cache", "recording"}
)
_DECISIONS = frozenset({"admit", "queue", "refuse"})
_REFUSALS = frozenset({"", "streams", "memory", "queue_full", "waited"})
_VOICE_CLASSES = frozenset({"stock", "cloned", "fallback"})

MAX_ERROR_TYPES = 64
"""Exception classes told apart; further ones count as `other`."""


def _known(value: str, known: frozenset[str]) -> str:
    return value if value in known else "other"


class Metrics:
    """The process's numbers. `registry` may be given to share one; otherwise a fresh one is made."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        self._error_types: set[str] = set()

        def histogram(
            name: str, text: str, labels: tuple[str, ...] = (), buckets: tuple[float, ...] = LATENCY_BUCKETS_S
        ) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

        self._response = histogram(
            "voice_response_seconds",
            "From the last sample the caller spoke to the first audible sample sent.",
            ("channel", "cache"),
        )
        self._endpoint = histogram(
            "voice_endpoint_seconds", "From the end of speech to the decision that the turn ended."
        )
        self._asr_final = histogram("voice_asr_final_seconds", "From that decision to the final transcript.")
        self._nlu_first = histogram("voice_nlu_first_text_seconds", "From the question to the hook's first text.")
        self._tts_first = histogram(
            "voice_tts_first_audio_seconds",
            "From a clause's text to its first samples.",
            ("voice_class", "cache"),
        )
        self._playout = histogram("voice_playout_seconds", "From queued samples to their leaving on the wire.")
        self._lag = histogram("voice_ticker_lag_seconds", "How late the 20 ms ticker fired.", buckets=LAG_BUCKETS_S)
        self._active = Gauge("voice_calls_active", "Calls going on.", ("channel",), registry=self.registry)
        self._calls = Counter(
            "voice_calls_total", "Calls ended or refused.", ("channel", "outcome"), registry=self.registry
        )
        self._interruptions = Counter(
            "voice_interruptions_total", "Times the agent was spoken over.", ("kind",), registry=self.registry
        )
        self._speculations = Counter(
            "voice_speculations_total",
            "Replies to a turn that was likely over, begun before it was, by what became of them.",
            ("result",),
            registry=self.registry,
        )
        self._speculation_s = Counter(
            "voice_speculation_seconds_total",
            "Time for which voices worked on such replies before their turn was over.",
            ("result",),
            registry=self.registry,
        )
        self._frames = Counter(
            "voice_media_frames_total", "20 ms frames, by what became of them.", ("kind",), registry=self.registry
        )
        self._cache_requests = Counter(
            "voice_cache_requests_total",
            "Speech asked of a tier of the voice cache.",
            ("tier", "result"),
            registry=self.registry,
        )
        self._cache_bytes = Gauge("voice_cache_bytes", "What a tier holds.", ("tier",), registry=self.registry)
        self._predictions = Counter(
            "voice_cache_predictions_total",
            "Speech made ahead, by what became of it.",
            ("result",),
            registry=self.registry,
        )
        self._cache_saved = Counter(
            "voice_cache_saved_seconds_total", "Waiting that cached speech spared callers.", registry=self.registry
        )
        self._admissions = Counter(
            "voice_admission_decisions_total",
            "Answers of shared admission; a caller who waits is answered each time it asks.",
            ("decision", "reason"),
            registry=self.registry,
        )
        self._admission_queue = Gauge(
            "voice_admission_queue_length", "Callers waiting for a place, over all who share.", registry=self.registry
        )
        self._tasks = Gauge("voice_tasks", "Tasks of the event loop.", registry=self.registry)
        self._errors = Counter(
            "voice_errors_total", "Failures that were handled.", ("part", "type"), registry=self.registry
        )

    def call_started(self, channel: Channel) -> None:
        """A call began; pair with `call_ended`."""
        self._active.labels(_known(channel, _CHANNELS)).inc()

    def call_ended(self, channel: Channel, outcome: Outcome) -> None:
        """A call that had begun is over."""
        self._active.labels(_known(channel, _CHANNELS)).dec()
        self._calls.labels(_known(channel, _CHANNELS), _known(outcome, _OUTCOMES)).inc()

    def call_refused(self, channel: Channel) -> None:
        """A call was not taken (full, not ready, draining, over the token's limit)."""
        self._calls.labels(_known(channel, _CHANNELS), "refused").inc()

    def turn(self, channel: Channel, timings: TurnTimings, *, voice_class: str = "stock") -> None:
        """Count one answer's timings; parts that did not take place are left out."""
        cache = _known(timings.cache, _CACHE)
        if timings.response_ms is not None:
            self._response.labels(_known(channel, _CHANNELS), cache).observe(timings.response_ms / 1000)
        if timings.tts_first_ms is not None:
            self._tts_first.labels(_known(voice_class, _VOICE_CLASSES), cache).observe(timings.tts_first_ms / 1000)
        for histogram, value_ms in (
            (self._endpoint, timings.endpoint_ms),
            (self._asr_final, timings.asr_final_ms),
            (self._nlu_first, timings.nlu_first_ms),
            (self._playout, timings.playout_ms),
        ):
            if value_ms is not None:
                histogram.observe(value_ms / 1000)

    def interruption(self, kind: InterruptionKind) -> None:
        """The agent was cut or paused."""
        self._interruptions.labels(_known(kind, _INTERRUPTIONS)).inc()

    def cache_request(self, tier: str, result: str) -> None:
        """A tier of the voice cache (memory, disk, redis, engine; joined: a synthesis under way) was asked."""
        self._cache_requests.labels(_known(tier, _TIERS), _known(result, _LOOKUPS)).inc()

    def cache_bytes(self, tier: str, size: int) -> None:
        """What a tier of the voice cache holds now."""
        self._cache_bytes.labels(_known(tier, _TIERS)).set(size)

    def cache_prediction(self, result: str) -> None:
        """Speech that was made ahead was used, or given up unused."""
        self._predictions.labels(_known(result, _PREDICTIONS)).inc()

    def cache_saved(self, seconds: float) -> None:
        """A hit came this much sooner than the engine would have spoken."""
        self._cache_saved.inc(max(0.0, seconds))

    def speculation(self, result: SpeculationResult, voice_s: float = 0.0) -> None:
        """A reply begun ahead was adopted, closed, or not begun; `voice_s` is how long voices had worked on it."""
        self._speculations.labels(_known(result, _SPECULATIONS)).inc()
        self._speculation_s.labels(_known(result, _SPECULATIONS)).inc(voice_s)

    def media_frames(self, kind: FrameKind, count: int = 1) -> None:
        """`count` 20 ms frames met this fate."""
        self._frames.labels(_known(kind, _FRAMES)).inc(count)

    def port(self, stats: PortStats) -> None:
        """All frames of a port that is about to be closed."""
        inbound = stats.inbound
        self.media_frames("received", inbound.received)
        self.media_frames("fec", inbound.fec)
        self.media_frames("concealed", inbound.concealed)
        self.media_frames("late", inbound.late)
        self.media_frames("duplicate", inbound.duplicate)
        self.media_frames("discarded", inbound.dropped)
        self.media_frames("sent", stats.packets_sent)

    def ticker_lag(self, seconds: float) -> None:
        """The ticker fired this late."""
        self._lag.observe(max(0.0, seconds))

    def admission(self, decision: str, reason: str) -> None:
        """Shared admission answered admit, queue, or refuse for a reason."""
        self._admissions.labels(_known(decision, _DECISIONS), _known(reason, _REFUSALS)).inc()

    def admission_queue(self, length: int) -> None:
        """Callers waiting now."""
        self._admission_queue.set(length)

    def tasks(self, count: int) -> None:
        """Tasks of the event loop now; told when somebody asks."""
        self._tasks.set(count)

    def error(self, part: str, error: BaseException | type[BaseException]) -> None:
        """A failure in `part` (asr, nlu, tts, vad, media, signaling, call) that the process survived."""
        name = error.__name__ if isinstance(error, type) else type(error).__name__
        if name not in self._error_types:
            if len(self._error_types) >= MAX_ERROR_TYPES:
                name = "other"
            else:
                self._error_types.add(name)
        self._errors.labels(_known(part, _PARTS), name).inc()

    def value(self, name: str, **labels: str) -> float:
        """One sample by its exposed name, 0.0 when it was never touched. For tests, benches and `doctor`."""
        found = self.registry.get_sample_value(name, labels)
        return 0.0 if found is None else found

    def render(self) -> bytes:
        """Prometheus text exposition format 0.0.4."""
        return generate_latest(self.registry)


_process: Metrics | None = None


def process_metrics() -> Metrics:
    """The one `Metrics` of this process, with the interpreter's own (memory, CPU, garbage collector) beside ours."""
    global _process
    if _process is None:
        _process = Metrics()
        ProcessCollector(registry=_process.registry)
        PlatformCollector(registry=_process.registry)
        GCCollector(registry=_process.registry)
    return _process
