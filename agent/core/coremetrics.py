"""What a core counts, as Prometheus metrics. Shards are settings, so that their names cannot grow in number."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from agent.core.messages import FaultCode

__all__ = ["CoreMetrics"]

TICK_BUCKETS_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)


class CoreMetrics:
    """One core's numbers. `registry` may be given to share one; otherwise a fresh one is made."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        self._links = Gauge("voice_core_links", "Edges that are linked.", registry=self.registry)
        self._streams = Gauge(
            "voice_core_active_streams", "Turns and clauses being served.", ("shard",), registry=self.registry
        )
        self._capacity = Gauge(
            "voice_core_capacity_streams", "How many there may be.", ("shard",), registry=self.registry
        )
        self._refused = Counter(
            "voice_core_refused_total", "Streams that were refused.", ("shard", "reason"), registry=self.registry
        )
        self._factor = Gauge(
            "voice_core_real_time_factor", "Time per second of audio, measured at start.", ("shard",),
            registry=self.registry,
        )  # fmt: skip
        self._tick = Histogram(
            "voice_core_tick_seconds", "What telling an edge its news took.", buckets=TICK_BUCKETS_S,
            registry=self.registry,
        )  # fmt: skip

    def links(self, count: int) -> None:
        """So many edges are linked now."""
        self._links.set(count)

    def streams(self, shard: str, count: int) -> None:
        """So many streams of a shard are open now."""
        self._streams.labels(shard).set(count)

    def capacity(self, shard: str, count: int) -> None:
        """So many may be."""
        self._capacity.labels(shard).set(count)

    def refused(self, shard: str, code: FaultCode) -> None:
        """A stream was refused."""
        self._refused.labels(shard, code.value).inc()

    def real_time_factor(self, shard: str, factor: float) -> None:
        """What the probe at start measured."""
        self._factor.labels(shard).set(factor)

    def tick(self, seconds: float) -> None:
        """What one tick of a link took."""
        self._tick.observe(seconds)

    def value(self, name: str, **labels: str) -> float:
        """One sample by its exposed name; 0.0 when it was never touched."""
        found = self.registry.get_sample_value(name, labels)
        return 0.0 if found is None else found

    def render(self) -> bytes:
        """Prometheus text exposition format 0.0.4."""
        return generate_latest(self.registry)
