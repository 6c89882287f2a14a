"""Settings of the ways in beside a browser's own network: relays, bridges of telephone systems, SIP."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from agent.media.addresses import parse_server
from agent.settings.group import Group

__all__ = ["BridgeSettings", "SipSettings", "TurnSettings"]


class TurnSettings(Group):
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


class BridgeSettings(Group):
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


class SipSettings(Group):
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
