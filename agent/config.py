"""One typed settings tree: defaults, then `rejoinder.toml`, then the environment (`REJOINDER_SERVER__PORT=8081`).

Secrets come only from the environment. A wrong value raises ConfigError, naming the setting and what was expected.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from agent.core.address import parse_core_address
from agent.errors import ConfigError
from agent.media.addresses import parse_advertised, parse_interfaces, parse_server

__all__ = [
    "AdmissionSettings",
    "AsrSettings",
    "AuthSettings",
    "BridgeSettings",
    "CacheSettings",
    "ConversationSettings",
    "CoreSettings",
    "ListeningSettings",
    "MediaSettings",
    "ModelSettings",
    "NluSettings",
    "PhraseSettings",
    "RecordingSettings",
    "ServerSettings",
    "Settings",
    "SipSettings",
    "TtsSettings",
    "TurnSettings",
    "load_settings",
]

DEFAULT_FILE = Path("rejoinder.toml")


def default_cache_dir() -> Path:
    """Where models and cached speech live: `$XDG_CACHE_HOME/rejoinder`, else `~/.cache/rejoinder`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rejoinder"


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True)


def _redis_address(value: str, secret: str) -> str:
    """An address of Redis without its password, or nothing."""
    if not value:
        return value
    parts = urlsplit(value)
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise ValueError("expected redis://host:port/db, rediss:// or unix://")
    if parts.password:
        raise ValueError(f"holds a password; set {secret} instead")
    return value


class ServerSettings(_Group):
    """The HTTP door."""

    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535)
    origins: tuple[str, ...] = ()
    """Origins (`https://shop.example`) allowed beside our own page. `*` is refused: name them."""
    max_calls: int = Field(40, ge=1)
    """Above this a new call is answered 503 with Retry-After."""
    max_body_bytes: int = Field(256 * 1024, ge=1024)
    """Largest request body; an SDP offer is about 10 KB."""
    rate_per_minute: int = Field(120, ge=1)
    """Requests a client address may make to /v1 in a minute."""
    trust_proxy: bool = False
    """Take the client's address from the last X-Forwarded-For entry; only behind a proxy that sets it."""
    drain_s: float = Field(10.0, ge=0)
    """How long live calls may finish after SIGTERM."""
    workers: int = Field(1, ge=1, le=64)
    """Media processes; `max_calls` counts for each. 1 is a single process that does all."""
    max_lag_ms: float = Field(20.0, ge=0)
    """A process that has calls takes no more while its media clock is later than this (99th percentile of the last
    three seconds); a frame's length by default. 0 turns it off."""


class AuthSettings(_Group):
    """Tokens: JWT, signed with a shared secret (HS256) or checked with a public key (RS256)."""

    algorithm: Literal["HS256", "RS256"] = "HS256"
    secret: SecretStr | None = None
    """HS256 secret, at least 32 bytes: `REJOINDER_AUTH__SECRET`."""
    public_key_file: Path | None = None
    private_key_file: Path | None = None
    """Only needed to mint tokens (`rejoinder token`)."""
    audience: str = "rejoinder"
    token_ttl_s: int = Field(3600, ge=10, le=30 * 86400)
    leeway_s: int = Field(5, ge=0, le=60)


class MediaSettings(_Group):
    """The audio path."""

    opus_bitrate: int = Field(44_000, ge=6_000, le=128_000)
    opus_complexity: int = Field(1, ge=0, le=10)
    """1 at 44 kbit/s is about as close to the voice as 5 at 32 kbit/s, for half of the CPU (bench/voice_quality.py)."""
    expected_loss_pct: int = Field(5, ge=0, le=50)
    """What in-band FEC prepares for until the peer reports a clean path (agent/media/fec.py)."""
    stun_servers: tuple[str, ...] = ()
    """None are contacted unless named."""
    turn_server: str | None = None
    """`turn:host:3478?transport=udp` or `tcp`, or `turns:host:5349`."""
    turn_username: str | None = None
    turn_password: SecretStr | None = None
    """Neither is needed where `turn.secret` is set: short-lived credentials are made for each call then."""
    ice_policy: Literal["all", "relay"] = "all"
    """relay: media goes through `turn_server` only, and no address of this machine is offered (docs/turn.md)."""
    interfaces: tuple[str, ...] = ()
    """Names, addresses or networks (`eth0`, `10.0.0.5`, `10.0.0.0/8`) that media uses; empty: all but loopback."""
    advertised_addresses: tuple[str, ...] = ()
    """Behind 1:1 NAT: offered in place of our own. `203.0.113.7` for all, or `10.0.0.5=203.0.113.7` one by one."""
    udp_port_min: int | None = Field(None, ge=1, le=65535)
    udp_port_max: int | None = Field(None, ge=1, le=65535)
    """Ports that media uses, both included, one a call and address; unset: any that the system gives."""
    jitter_min_ms: int = Field(20, ge=20, le=200)
    jitter_start_ms: int = Field(40, ge=20, le=200)
    jitter_max_ms: int = Field(120, ge=20, le=400)
    rtp_silence_s: float = Field(2.0, gt=0)
    """No RTP for this long is reported; consent failure ends the call."""
    consent_interval_s: float = Field(1.0, gt=0)
    consent_failures: int = Field(4, ge=1)
    priority: Literal["auto", "off"] = "auto"
    """auto: the media thread is scheduled before all others as far as the system allows (agent/media/priority.py)."""

    @field_validator("stun_servers", "turn_server", "interfaces", "advertised_addresses")
    @classmethod
    def _parses(cls, value: Any, info: ValidationInfo) -> Any:
        match info.field_name:
            case "stun_servers":
                for url in value:
                    parse_server(url, turn=False)
            case "turn_server" if value is not None:
                parse_server(value, turn=True)
            case "interfaces":
                parse_interfaces(value)
            case "advertised_addresses":
                parse_advertised(value)
        return value

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if (self.udp_port_min is None) != (self.udp_port_max is None):
            raise ValueError("udp_port_min and udp_port_max are set together or not at all")
        if self.udp_port_min is not None and self.udp_port_max is not None and self.udp_port_min > self.udp_port_max:
            raise ValueError(
                f"udp_port_min must not be above udp_port_max, got {self.udp_port_min} to {self.udp_port_max}"
            )
        if (self.turn_username is None) != (self.turn_password is None):
            raise ValueError(
                "turn_username and turn_password (REJOINDER_MEDIA__TURN_PASSWORD) are set together or not at all"
            )
        if self.ice_policy == "relay" and self.turn_server is None:
            raise ValueError("ice_policy relay needs turn_server")
        if not self.jitter_min_ms <= self.jitter_start_ms <= self.jitter_max_ms:
            raise ValueError("expected jitter_min_ms <= jitter_start_ms <= jitter_max_ms")
        return self


class ListeningSettings(_Group):
    """When the caller is speaking, and when they are done."""

    start_probability: float = Field(0.5, gt=0, lt=1)
    stop_probability: float = Field(0.35, gt=0, lt=1)
    start_ms: int = Field(64, ge=20, le=1000)
    """Speech this long opens a segment."""
    floor_dbfs: float = Field(-75.0, ge=-96, le=0)
    """Speech fainter than this (RMS of 160 ms) is nobody's; nor is what lies 22 dB below the caller's own level."""
    stop_ms: int = Field(96, ge=60, le=2000)
    """Silence this long closes a segment (not yet the turn)."""
    preroll_ms: int = Field(300, ge=0, le=1000)
    """Audio before the detected start that the recogniser gets too."""
    endpoint_silence_ms: int = Field(500, ge=100, le=5000)
    """Silence this long ends the turn."""
    endpoint: Literal["fused", "silence"] = "fused"
    """fused: the wait follows from sound, words and the caller's own pauses; silence: always `endpoint_silence_ms`."""
    endpoint_min_ms: int = Field(120, ge=60, le=2000)
    """fused: the wait after a turn that is surely over."""
    endpoint_max_ms: int = Field(1600, ge=200, le=5000)
    """fused: the wait after one that is surely not."""
    turn_model: Literal["auto", "on", "off"] = "auto"
    """The end-of-turn model on sound; auto: when it is installed."""
    min_segment_ms: int = Field(250, ge=0, le=2000)
    """Shorter segments are noise; recognisers invent words on them."""
    max_segment_s: float = Field(20.0, ge=2, le=30)
    """Speech without a pause of `stop_ms` is reported as long each time this has passed; it goes on."""


class ConversationSettings(_Group):
    """Timing defaults; the reason for each is in docs/architecture.md."""

    greet: bool = True
    barge_in: bool = True
    barge_in_ms: int = Field(120, ge=0, le=2000)
    """Caller's speech this long during playout stops the agent."""
    barge_in_min_words: int = Field(1, ge=1, le=10)
    """As many words over the agent as take the floor."""
    dtmf_barge_in: bool = True
    """A key stops what is being said."""
    greeting_interruptible: bool = True
    echo_guard: bool = True
    """Words over the agent that are its own, coming back, are not the caller's."""
    speculate: bool = True
    """Begin a likely reply before the turn is surely over."""
    speculate_from: float = Field(0.3, ge=0, le=1)
    """Probability of the end from which a reply is begun."""
    speculations_per_turn: int = Field(3, ge=1, le=10)
    speculate_max_load: float = Field(0.7, gt=0, le=1)
    """Share of the engines' time in use above which nothing is begun ahead."""
    filler_after_s: float = Field(0.7, ge=0)
    """Zero turns fillers off."""
    hold_after_s: float = Field(4.0, gt=0)
    apologise_after_s: float = Field(10.0, gt=0)
    max_call_s: float = Field(3600.0, gt=0)
    max_turn_s: float = Field(60.0, ge=5)
    """A caller's turn is taken as it stands after this long: a television in the room must not hold the floor."""
    max_reply_chars: int = Field(20_000, ge=100)
    """A hook that writes more is closed."""
    end_warning_s: float = Field(60.0, ge=0)
    """How long before `max_call_s` the caller is told; zero tells nothing."""
    still_there_after_s: float = Field(20.0, ge=0)
    """Silence of both sides after which the agent asks whether somebody is there; zero never asks."""
    still_there_times: int = Field(2, ge=1, le=10)
    """Asked this often in a row without an answer, the agent says goodbye and hangs up."""
    on_silence: Literal["phrase", "hook"] = "phrase"
    """Who asks: a stored phrase, or the hook with a turn of kind `silence`."""
    idle_s: float = Field(600.0, gt=0)
    """No speech, typing or key for this long ends the call, whatever else is set."""
    resume_s: float = Field(30.0, ge=0, le=300)
    """How long a call whose connection was lost waits for its caller to come back; zero ends it at once."""
    resume_policy: Literal["continue", "repeat", "silent"] = "continue"
    """The reply that was broken off goes on at the word, has its clause repeated, or is dropped."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.filler_after_s < self.hold_after_s < self.apologise_after_s:
            raise ValueError("expected filler_after_s < hold_after_s < apologise_after_s")
        return self


class PhraseTexts(_Group):
    """Phrases in one language; those left out are ours."""

    filler: str = ""
    hold: str = ""
    apology: str = ""
    still_there: str = ""
    goodbye: str = ""
    time_warning: str = ""


class PhraseSettings(_Group):
    """Phrases synthesised at start-up, so that a dead engine still speaks; these in `tts.language`."""

    filler: str = "One moment, please."
    hold: str = "I'm still looking into that. Please stay on the line."
    apology: str = "I'm sorry, something went wrong on my side. Could you say that again?"
    still_there: str = "Are you still there?"
    goodbye: str = "I'll hang up now. Goodbye."
    time_warning: str = "We have about a minute left on this call."
    languages: dict[str, PhraseTexts] = Field(default_factory=dict)
    """`[phrases.languages.zh]`: made in this language, too, with these words or with ours."""


class AsrSettings(_Group):
    engine: Literal["moonshine", "whisper"] = "moonshine"
    language: str = "en"
    threads: int = Field(0, ge=0, le=64)
    """Worker threads; 0 means one a core."""
    partial_every_ms: int = Field(320, ge=100, le=2000)


class TtsSettings(_Group):
    engine: Literal["hibari", "kokoro", "espeak", "flite"] = "hibari"
    voice: str = "heart"
    voices: tuple[str, ...] = ()
    """Others that calls change to: phrases are made in each of them at start-up."""
    language: str = "en"
    rate: float = Field(1.0, ge=0.5, le=2.0)
    fallback: Literal["espeak", "flite", "auto", "none"] = "auto"
    """The last-resort voice when the engine fails."""


class ModelSettings(_Group):
    cache_dir: Path = Field(default_factory=default_cache_dir)
    offline_dir: Path | None = None
    """A folder that already holds the model files; nothing is downloaded then."""


class NluSettings(_Group):
    """Which hook answers. `kind` picks the adapter; `target` is its subject."""

    kind: Literal["function", "echo", "rules", "http", "openai_chat"] = "rules"
    target: str = ""
    """function: `package.module:object`; rules: a YAML file (empty: the shop example); http, openai_chat: a URL."""
    api_key: SecretStr | None = None
    """For http and openai_chat: `REJOINDER_NLU__API_KEY`."""
    model: str = ""
    system_prompt: str = ""
    timeout_s: float = Field(10.0, gt=0)
    """Longest wait for the remote end's next piece."""


class CacheSettings(_Group):
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
        return _redis_address(value, "REJOINDER_CACHE__REDIS_PASSWORD")


class AdmissionSettings(_Group):
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
        return _redis_address(value, "REJOINDER_ADMISSION__REDIS_PASSWORD")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.mode == "redis" and not self.redis_url:
            raise ValueError("redis_url: mode redis needs one")
        if self.memory_low > self.memory_high:
            raise ValueError("memory_low: expected not above memory_high")
        if self.first_packet_low_ms > self.first_packet_high_ms:
            raise ValueError("first_packet_low_ms: expected not above first_packet_high_ms")
        return self


class CoreSettings(_Group):
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


class RecordingSettings(_Group):
    """Which calls are recorded, and where to. What is written is in docs/recording.md."""

    mode: Literal["off", "asked", "always"] = "off"
    """asked: the calls whose client asks for it (`"record": true`, or `?record=1` on the WebSocket)."""
    folder: Path = Path("recordings")
    format: Literal["ogg", "wav"] = "ogg"
    """ogg: Opus, about 20 MB an hour; wav: 230 MB an hour."""
    max_hours: float = Field(4.0, gt=0, le=12)
    """A call's recording ends here; the call goes on."""
    min_free_mb: int = Field(500, ge=0)
    """Nothing is recorded while the disk has less room than this."""
    announcement: str = Field("", max_length=1000)
    """Spoken before the greeting of a call that is recorded, until it was heard in full; empty says nothing."""
    key: SecretStr | None = None
    """32 bytes in base64, `REJOINDER_RECORDING__KEY`: recordings are encrypted with it (AES-256-GCM)."""


class TurnSettings(_Group):
    """Relays for callers behind firewalls: what callers are told, and the coturn of `rejoinder turn` (docs/turn.md)."""

    urls: tuple[str, ...] = ()
    """What callers are told: `turn:relay.example.org:3478?transport=udp` or `tcp`, `turns:` for TLS, `stun:`."""
    secret: SecretStr | None = None
    """Shared with the relay, 32 characters or more: `REJOINDER_TURN__SECRET`."""
    ttl_s: int = Field(600, ge=30, le=86_400)
    """How long a caller's credentials allow new allocations; live ones go on."""
    program: str = "turnserver"
    folder: Path | None = None
    """Where coturn's configuration is written. Unset: `turn` in `models.cache_dir`."""
    realm: str = Field("rejoinder", pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]{0,126}$")
    listen: tuple[str, ...] = ()
    """Addresses to listen on; empty: all (test profile: 127.0.0.1)."""
    relay_addresses: tuple[str, ...] = ()
    """Addresses to relay from; empty: those of `listen`."""
    external_address: str | None = None
    """Behind 1:1 NAT: the address that the world sees."""
    port: int = Field(3478, ge=1, le=65535)
    """UDP and TCP."""
    tls_port: int = Field(5349, ge=1, le=65535)
    """TLS over TCP, once `cert_file` and `key_file` are set."""
    cert_file: Path | None = None
    key_file: Path | None = None
    relay_port_min: int = Field(49_152, ge=1024, le=65535)
    relay_port_max: int = Field(65_535, ge=1024, le=65535)
    user_quota: int = Field(24, ge=1)
    """Allocations of one caller's token. A browser makes one for each URL and local address, four to six a call."""
    total_quota: int = Field(1200, ge=1)
    session_kbps: int = Field(256, ge=64, le=1_000_000)
    """kbit/s each way of one allocation; a call needs about 100."""
    total_kbps: int = Field(400_000, ge=64)
    """kbit/s of all. coturn counts `session_kbps` against it for each allocation, whether used or not."""
    allowed_peers: tuple[str, ...] = ()
    """Exceptions to the denied networks: a media server on a private address (`10.0.0.5`, `10.0.8.0/24`)."""
    denied_peers: tuple[str, ...] = ()
    """Networks that nobody may reach through the relay, beside those of docs/turn.md."""

    @field_validator("urls")
    @classmethod
    def _parses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for url in value:
            parse_server(url, turn=not url.startswith("stun:"))
        return value

    @model_validator(mode="after")
    def _has_secret(self) -> Self:
        if self.secret is None:
            if any(not url.startswith("stun:") for url in self.urls):
                raise ValueError("urls name a relay but there is no secret; set REJOINDER_TURN__SECRET")
            return self
        if not re.fullmatch(r"[A-Za-z0-9+/=_.~-]{32,256}", self.secret.get_secret_value()):
            raise ValueError(
                "secret: expected 32 to 256 letters, digits or +/=_.~- (REJOINDER_TURN__SECRET; openssl rand -hex 32)"
            )
        return self


class BridgeSettings(_Group):
    """Calls that a telephone system brings over a stream of its own (docs/bridges.md). All off unless set."""

    parameters: tuple[str, ...] = Field((), max_length=32)
    """Names of what the other side may tell about a call, for the hook's `session.metadata`; `caller` and `language`
    need no entry."""
    twilio_auth_token: SecretStr | None = None
    """`REJOINDER_BRIDGES__TWILIO_AUTH_TOKEN`: opens /v1/twilio for the account that has this token."""
    twilio_url: str = ""
    """The address in the TwiML (`wss://agent.example/v1/twilio`), which is what Twilio signs; empty: wss and the Host
    header."""
    asterisk: bool = False
    """Open /v1/asterisk for Asterisk's WebSocket channel; each call needs a token."""
    audiosocket_host: str = "127.0.0.1"
    audiosocket_port: int | None = Field(None, ge=0, le=65535)
    """Where AudioSocket is listened for; unset: nowhere."""
    audiosocket_sources: tuple[str, ...] = ("127.0.0.0/8", "::1")
    """Addresses and networks whose connections are taken."""
    audiosocket_calls: Literal["announced", "any"] = "announced"
    """announced: only UUIDs that POST /v1/audiosocket gave out; any: whatever an allowed source sends."""

    @field_validator("audiosocket_sources")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            try:
                ipaddress.ip_network(entry)
            except ValueError as exc:
                raise ValueError(f"expected an address or a network such as 10.0.0.0/8, got {entry!r}") from exc
        return value

    @field_validator("twilio_url")
    @classmethod
    def _address(cls, value: str) -> str:
        parts = urlsplit(value)
        if value and (parts.scheme not in ("ws", "wss") or not parts.hostname or parts.query or parts.fragment):
            raise ValueError("expected wss://host/path without a query")
        return value


class SipSettings(_Group):
    """The telephone door (docs/telephony.md)."""

    enabled: bool = False
    host: str = "127.0.0.1"
    """Address to listen on, for signalling and RTP."""
    port: int = Field(5060, ge=1, le=65535)
    """Of UDP and TCP."""
    tls_port: int = Field(5061, ge=1, le=65535)
    transports: tuple[Literal["udp", "tcp", "tls"], ...] = ("udp", "tcp")
    tls_certificate: Path | None = None
    """PEM; with its key in the same file or in `tls_key`."""
    tls_key: Path | None = None
    tls_authorities: Path | None = None
    """PEM of those whose certificates are taken when we connect; unset: the system's."""
    advertised_address: str | None = None
    """The address that peers reach us at, behind NAT or when `host` is 0.0.0.0."""
    trusted: tuple[str, ...] = ()
    """Addresses and networks of trunks and PBXs (`203.0.113.7`, `10.0.0.0/8`) that call without a password."""
    users: dict[str, SecretStr] = Field(default_factory=dict)
    """Who may call with a password: `REJOINDER_SIP__USERS={"alice": "secret"}`."""
    realm: str = Field("rejoinder", min_length=1, max_length=128)
    open: bool = False
    """Take the calls of everybody. Only in a network of your own: on the Internet scanners call within minutes."""
    stance: Literal["silence", "forbid"] = "silence"
    """What strangers get: no answer, or 403."""
    codecs: tuple[Literal["PCMU", "PCMA", "G722", "opus"], ...] = ("PCMU", "PCMA", "G722", "opus")
    rtp_port_min: int | None = Field(None, ge=1, le=65535)
    rtp_port_max: int | None = Field(None, ge=1, le=65535)
    """UDP ports of RTP and RTCP, two a call; unset: any that the system gives."""
    srtp: Literal["off", "tls", "any", "required"] = "tls"
    """SDES is taken: never, when the signalling is encrypted, always, always and nothing else."""
    dial: tuple[str, ...] = ()
    """Where calls and transfers may go, with `*` for anything: `+4930*`, `sip:*@pbx.example`. Empty: nowhere."""
    destinations: dict[str, str] = Field(default_factory=dict)
    """Names for numbers and SIP URIs, which may always be called: `sales = "sip:200@pbx.example"`."""
    number_domain: str | None = None
    """Host, or host:port, that plain numbers are called at; unset: `proxy`."""
    proxy: str | None = None
    """First hop of what we send, as `sip:proxy.example:5060;transport=tcp`."""
    registrars: tuple[str, ...] = ()
    """Providers' registrars, tried in this order: `sip:provider.example;transport=tcp`. `username` is registered."""
    register_s: int = Field(600, ge=30, le=86_400)
    """How long a registration is asked for; it is refreshed at three quarters of what is granted."""
    username: str = "agent"
    """Of our own address, and of the account."""
    password: SecretStr | None = None
    """For challenges to our requests: `REJOINDER_SIP__PASSWORD`."""
    ringing_s: float = Field(60.0, ge=1, le=180)
    """A call that nobody has answered by then is given up."""
    transfer_s: float = Field(45.0, ge=1, le=300)
    """A transfer whose outcome is not known by then has failed."""
    session_headers: tuple[str, ...] = ()
    """Header fields of the INVITE that the hook gets in `session.metadata`, as `X-Customer`."""
    rtp_first_s: float = Field(30.0, gt=0)
    rtp_silence_s: float = Field(60.0, gt=0)
    hold_s: float = Field(1800.0, gt=0)
    """A call ends without RTP for this long: from the answer, in conversation, on hold."""

    @field_validator("trusted")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            ipaddress.ip_network(text, strict=False)
        return value

    @field_validator("host", "advertised_address")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None:
            ipaddress.ip_address(value)
        return value

    @model_validator(mode="after")
    def _can_serve(self) -> Self:
        if not self.enabled:
            return self
        if self.advertised_address is None and ipaddress.ip_address(self.host).is_unspecified:
            raise ValueError("advertised_address is needed when host is every address of this machine")
        if not (self.open or self.trusted or self.users):
            raise ValueError("nobody may call: set trusted, users (REJOINDER_SIP__USERS) or open")
        if "tls" in self.transports and self.tls_certificate is None:
            raise ValueError("tls_certificate is needed for the transport tls")
        if not self.transports or not self.codecs:
            raise ValueError("transports and codecs must each name at least one")
        low, high = self.rtp_port_min, self.rtp_port_max
        if (low is None) != (high is None) or (low is not None and high is not None and high - low < 1):
            raise ValueError("rtp_port_min and rtp_port_max are set together, and hold at least two ports")
        return self


class Settings(BaseSettings):
    """The whole tree."""

    model_config = SettingsConfigDict(
        env_prefix="REJOINDER_", env_nested_delimiter="__", extra="forbid", validate_default=True
    )

    server: ServerSettings = Field(default_factory=ServerSettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    media: MediaSettings = Field(default_factory=MediaSettings)
    listening: ListeningSettings = Field(default_factory=ListeningSettings)
    conversation: ConversationSettings = Field(default_factory=ConversationSettings)
    phrases: PhraseSettings = Field(default_factory=PhraseSettings)
    asr: AsrSettings = Field(default_factory=AsrSettings)
    tts: TtsSettings = Field(default_factory=TtsSettings)
    models: ModelSettings = Field(default_factory=ModelSettings)
    nlu: NluSettings = Field(default_factory=NluSettings)
    recording: RecordingSettings = Field(default_factory=RecordingSettings)
    cache: CacheSettings = Field(default_factory=CacheSettings)
    turn: TurnSettings = Field(default_factory=TurnSettings)
    bridges: BridgeSettings = Field(default_factory=BridgeSettings)
    sip: SipSettings = Field(default_factory=SipSettings)
    core: CoreSettings = Field(default_factory=CoreSettings)
    admission: AdmissionSettings = Field(default_factory=AdmissionSettings)
    clips: dict[str, Path] = Field(default_factory=dict)
    """Recordings by name, for the hook's `Play`: WAV files, any rate, mono or stereo."""

    @model_validator(mode="after")
    def _one_process_has_the_telephone(self) -> Self:
        if self.server.workers == 1:
            return self
        bridges = self.bridges
        if bridges.asterisk or bridges.twilio_auth_token is not None or bridges.audiosocket_port is not None:
            raise ValueError("bridges: expected server.workers = 1; calls over a bridge are not given to workers")
        if self.sip.enabled:
            raise ValueError("sip.enabled needs server.workers = 1: start one process a SIP port instead")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # `load_settings` merges file, environment and flags itself: the library's order cannot put flags on top.
        return (init_settings,)


def load_settings(file: Path | None = None, overrides: dict[str, Any] | None = None) -> Settings:
    """Read settings.

    Args:
        file: a TOML file; None takes `rejoinder.toml` of the working directory if it is there.
        overrides: nested mapping that wins over everything (command-line flags).

    Raises:
        ConfigError: the file cannot be read, or a setting is unknown or has a wrong value.
    """
    values: dict[str, Any] = {}
    source = file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    if source is not None:
        try:
            values = tomllib.loads(source.read_text(encoding="utf-8"))
        except OSError as exc:
            raise ConfigError(f"cannot read {source}: {exc.strerror}") from exc
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
            raise ConfigError(f"{source} is not valid TOML: {exc}") from exc
        for path in SECRETS:
            node: Any = values
            for key in path[:-1]:
                node = node.get(key, {}) if isinstance(node, dict) else {}
            if isinstance(node, dict) and path[-1] in node:
                env = "REJOINDER_" + "__".join(path).upper()
                raise ConfigError(f"{source}: {'.'.join(path)} is a secret; set {env} in the environment instead")
    try:
        environment = _Environment(Settings)()
        return Settings(**_merge(_merge(values, environment), overrides or {}))
    except ValidationError as exc:
        raise ConfigError(_explain(exc, source)) from exc
    except SettingsError as exc:
        # A mapping in the environment must be JSON; the cause holds the value, so it is not told.
        raise ConfigError(f"settings (environment): {exc}") from exc


SECRETS = (
    ("auth", "secret"),
    ("media", "turn_password"),
    ("nlu", "api_key"),
    ("recording", "key"),
    ("cache", "redis_password"),
    ("turn", "secret"),
    ("bridges", "twilio_auth_token"),
    ("sip", "users"),
    ("sip", "password"),
    ("admission", "redis_password"),
)


class _Environment(EnvSettingsSource):
    """Variables of the environment; a list is JSON or its items with commas between."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Raises ValueError where JSON was begun and is none."""
        if isinstance(value, str) and not value.lstrip().startswith(("[", "{")):
            return [item.strip() for item in value.split(",")]
        return super().decode_complex_value(field_name, field, value)


def _merge(base: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in extra.items():
        out[key] = _merge(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
    return out


def _explain(exc: ValidationError, source: Path | None) -> str:
    parts = []
    for error in exc.errors(include_url=False, include_input=False):
        where = ".".join(str(part) for part in error["loc"])
        what = "unknown setting" if error["type"] == "extra_forbidden" else error["msg"]
        parts.append(f"{where}: {what}")
    return f"settings ({source or 'environment'}): " + "; ".join(parts)
