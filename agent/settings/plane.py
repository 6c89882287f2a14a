"""Settings of what calls of many processes share: cached speech, places for calls, engines elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from agent.core.address import parse_core_address
from agent.settings.group import Group, redis_address

__all__ = ["AdmissionSettings", "CacheSettings", "CoreSettings"]


class CacheSettings(Group):
    """Speech kept for the next time it is said, and made before it is said (docs/voice-cache.md)."""

    enabled: bool = True
    memory_mb: int = Field(64, ge=1, le=65_536)
    """A second of speech takes about 55 KB."""
    disk_mb: int = Field(512, ge=0, le=1_048_576)
    """Zero keeps nothing on disk."""
    folder: Path | None = None
    """Unset: `voice` in `models.cache_dir`."""
    redis_url: str = ""
    """`redis://host:6379/0`, `rediss://` or `unix://`; empty shares nothing. The password is a setting of its own."""
    redis_password: SecretStr | None = None
    """`REJOINDER_CACHE__REDIS_PASSWORD`."""
    redis_deadline_ms: float = Field(5.0, gt=0, le=1000)
    """Longest wait for Redis on a caller's way; later counts as a miss."""
    redis_ttl_s: int = Field(7 * 86_400, ge=60)
    share_wait_ms: float = Field(300.0, ge=0, le=10_000)
    """How long speech that another process is just making is waited for; then it is made here too."""
    private: Literal["none", "digits", "names"] = "names"
    """Text that never leaves memory, beside what the hook marks: none, figures and numbers, or those and names."""
    public_words: tuple[str, ...] = ()
    """Capitalised words that are not people's names: the company, its products, places."""
    predict: bool = True
    """Make likely openings ahead of need."""
    min_probability: float = Field(0.03, gt=0, lt=1)
    """Openings less likely than this are not made ahead."""
    predictions_per_turn: int = Field(12, ge=1, le=32)
    cpu_s_per_hour: float = Field(360.0, ge=0, le=3600 * 64)
    """What making ahead may cost; a tenth of a core by default. Zero makes nothing ahead."""
    half_life_turns: int = Field(4000, ge=10)
    """After this many more turns what was learned counts half."""

    @field_validator("redis_url")
    @classmethod
    def _no_password(cls, value: str) -> str:
        return redis_address(value, "REJOINDER_CACHE__REDIS_PASSWORD")


class AdmissionSettings(Group):
    """Who may start a call, beside `server.max_calls` (docs/admission.md)."""

    mode: Literal["off", "local", "redis"] = "off"
    """`local` adds thresholds and a queue in this process, `redis` shares them among processes and machines."""
    streams: int | None = Field(None, ge=1)
    """Calls at once, over all who share; unset: `server.max_calls`."""
    memory_high: float = Field(0.90, gt=0, le=1)
    """Used share of memory from which on calls are refused, until it is `memory_low`."""
    memory_low: float = Field(0.80, gt=0, le=1)
    first_packet_high_ms: float = Field(400.0, gt=0)
    """Mean time to the voice's first packet above which callers queue, until it is `first_packet_low_ms`."""
    first_packet_low_ms: float = Field(300.0, gt=0)
    queue: int = Field(100, ge=0)
    """Callers that may wait."""
    queue_s: float = Field(30.0, gt=0)
    """How long one waits at most."""
    redis_url: str = ""
    """`redis://host:6379/0`, `rediss://` or `unix://`. The password is a setting of its own."""
    redis_password: SecretStr | None = None
    """`REJOINDER_ADMISSION__REDIS_PASSWORD`."""
    pool: str = Field("calls", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    """Those who share have the same."""

    @field_validator("redis_url")
    @classmethod
    def _no_password(cls, value: str) -> str:
        return redis_address(value, "REJOINDER_ADMISSION__REDIS_PASSWORD")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.mode == "redis" and not self.redis_url:
            raise ValueError("redis_url: mode redis needs one")
        if self.memory_low > self.memory_high:
            raise ValueError("memory_low: expected not above memory_high")
        if self.first_packet_low_ms > self.first_packet_high_ms:
            raise ValueError("first_packet_low_ms: expected not above first_packet_high_ms")
        return self


class CoreSettings(Group):
    """The inference plane (docs/core.md): an edge finds its core by `url`, a core listens by all else."""

    url: str = ""
    """Edge: where the core is, `shm:/PATH`, `unix:/PATH` or `tcp://HOST:PORT`; empty: engines are in this process."""
    evidence: bool = True
    """Edge: the core judges the sound of a turn beside its words; false: this process does."""
    listen: tuple[str, ...] = ()
    """Core: addresses of the same kinds; at least one."""
    shards: tuple[str, ...] = ()
    """Core: what it serves, `asr:LANGUAGE` and `tts:VOICE`."""
    max_streams: int = Field(0, ge=0, le=10_000)
    """Core: turns or clauses a shard takes at once; 0 measures it at start."""
    metrics: str = "127.0.0.1:9464"
    """Core: HOST:PORT of /metrics, /healthz and /readyz; empty for none."""
    drain_s: float = Field(10.0, ge=0)
    """Core: how long turns and clauses may finish after SIGTERM."""
    silence_s: float = Field(2.0, ge=0.5, le=60)
    """Both: a link is lost when nothing comes over it for so long. A dead process or host is noticed sooner."""
    ring_slots: int = Field(1024, ge=256, le=65_536)
    """Core: 1 KiB slots of each shared-memory ring; two rings a linked edge."""
    ring_dir: Path | None = None
    """Core: mount to make rings in (/dev/shm, hugetlbfs); unset takes memory that belongs to no mount."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    """PEM files, for tcp:. Edge: whom the core must be signed by. Core: if set, whom edges must be signed by."""
    tls_server_name: str = ""
    """Edge: the name in the core's certificate, where it is not the address's host."""
    insecure: bool = False
    """Allow tcp: without certificates to or from other machines."""

    @field_validator("url", "listen")
    @classmethod
    def _is_address(cls, value: Any) -> Any:
        for text in (value,) if isinstance(value, str) else value:
            if text:
                parse_core_address(text)
        return value

    @field_validator("shards")
    @classmethod
    def _is_shard(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            kind, _, key = name.partition(":")
            if kind not in ("asr", "tts") or not key:
                raise ValueError(f"expected asr:LANGUAGE or tts:VOICE, got {name!r}")
        return value

    @field_validator("metrics")
    @classmethod
    def _is_door(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if value and not (host and port.isdigit() and int(port) <= 65535):
            raise ValueError(f"expected HOST:PORT, got {value!r}")
        return value

    @model_validator(mode="after")
    def _not_in_the_open(self) -> Self:
        for setting, text in (("url", self.url), *(("listen", text) for text in self.listen)):
            if not text or self.insecure or not parse_core_address(text).leaves_machine:
                continue
            if self.tls_ca is None and self.tls_certificate is None:
                raise ValueError(
                    f"{setting}: {text} reaches other machines: set tls_ca (edge) or tls_certificate and tls_key "
                    "(core), or insecure = true on a network that is safe itself"
                )
        return self
