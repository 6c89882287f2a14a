"""One typed settings tree: defaults, then `rejoinder.toml`, then the environment (`REJOINDER_SERVER__PORT=8081`).

Secrets come only from the environment. A wrong value raises ConfigError, naming the setting and what was expected.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
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

from agent.errors import ConfigError
from agent.media.addresses import parse_advertised, parse_interfaces, parse_server
from agent.settings.group import Group, default_cache_dir
from agent.settings.plane import AdmissionSettings, CacheSettings, CoreSettings
from agent.settings.telephony import BridgeSettings, SipSettings, TurnSettings

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


class ServerSettings(Group):
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


class AuthSettings(Group):
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


class MediaSettings(Group):
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


class ListeningSettings(Group):
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


class ConversationSettings(Group):
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


class PhraseTexts(Group):
    """Phrases in one language; those left out are ours."""

    filler: str = ""
    hold: str = ""
    apology: str = ""
    still_there: str = ""
    goodbye: str = ""
    time_warning: str = ""


class PhraseSettings(Group):
    """Phrases synthesised at start-up, so that a dead engine still speaks; these in `tts.language`."""

    filler: str = "One moment, please."
    hold: str = "I'm still looking into that. Please stay on the line."
    apology: str = "I'm sorry, something went wrong on my side. Could you say that again?"
    still_there: str = "Are you still there?"
    goodbye: str = "I'll hang up now. Goodbye."
    time_warning: str = "We have about a minute left on this call."
    languages: dict[str, PhraseTexts] = Field(default_factory=dict)
    """`[phrases.languages.zh]`: made in this language, too, with these words or with ours."""


class AsrSettings(Group):
    engine: Literal["moonshine", "whisper"] = "moonshine"
    language: str = "en"
    threads: int = Field(0, ge=0, le=64)
    """Worker threads; 0 means one a core."""
    partial_every_ms: int = Field(320, ge=100, le=2000)


class TtsSettings(Group):
    engine: Literal["hibari", "kokoro", "espeak", "flite"] = "hibari"
    voice: str = "heart"
    voices: tuple[str, ...] = ()
    """Others that calls change to: phrases are made in each of them at start-up."""
    language: str = "en"
    rate: float = Field(1.0, ge=0.5, le=2.0)
    fallback: Literal["espeak", "flite", "auto", "none"] = "auto"
    """The last-resort voice when the engine fails."""


class ModelSettings(Group):
    cache_dir: Path = Field(default_factory=default_cache_dir)
    offline_dir: Path | None = None
    """A folder that already holds the model files; nothing is downloaded then."""


class NluSettings(Group):
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


class RecordingSettings(Group):
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
