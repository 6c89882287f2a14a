"""coturn's configuration out of `[turn]`: what may be relayed, by whom, how much, and above all to whom not.

Two profiles. `production` denies every peer that is not on the public Internet (`peers.DENIED`), and the relay's own
addresses. `test` listens on loopback and lets callers reach this machine and its private networks. All else is one.
The options are those that coturn 4.6 knows; later versions ignore what they no longer need.
"""

from __future__ import annotations

import ipaddress
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agent.config import Settings, TurnSettings
from agent.errors import ConfigError, EnvironmentFault
from turn.peers import DENIED, DENIED_IN_TESTS, Network, parse_networks, spell

__all__ = ["CONFIG_FILE", "Profile", "Relay", "folder_of", "plan", "render", "write"]

Profile = Literal["production", "test"]

CONFIG_FILE = "turnserver.conf"
LOOPBACK = "127.0.0.1"

STALE_NONCE_S = 600
"""A captured request can be replayed for no longer (RFC 8656 section 21)."""

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""TLS 1.2 with forward secrecy and authenticated encryption only; 1.3 has nothing else."""

CALL_ALLOCATIONS = 4
"""What one browser takes for one call at least: three URLs and a second address."""


@dataclass(frozen=True, slots=True)
class Relay:
    """A configuration that was checked."""

    settings: TurnSettings
    profile: Profile
    secret: str
    listen: tuple[str, ...]
    relay: tuple[str, ...]
    external: str | None
    denied: tuple[Network, ...]
    allowed: tuple[Network, ...]
    tls: bool

    @property
    def ports(self) -> Iterator[tuple[str, int]]:
        """(transport, port) of everything that is listened on."""
        yield "udp", self.settings.port
        yield "tcp", self.settings.port
        if self.tls:
            yield "tcp", self.settings.tls_port


def folder_of(settings: Settings) -> Path:
    """Where the configuration is kept."""
    return settings.turn.folder or settings.models.cache_dir / "turn"


def plan(settings: TurnSettings, profile: Profile, *, own: Sequence[str] = ()) -> Relay:
    """Check the settings against each other. Raises ConfigError: one line that names the setting.

    Args:
        own: addresses of this machine; production denies them as peers.
    """
    if settings.secret is None:
        raise ConfigError("turn.secret: needed for a relay; set REJOINDER_TURN__SECRET (openssl rand -hex 32)")
    _ports(settings)
    if settings.user_quota > settings.total_quota:
        raise ConfigError(f"turn.user_quota: expected at most turn.total_quota ({settings.total_quota})")
    if settings.user_quota < CALL_ALLOCATIONS:
        raise ConfigError(f"turn.user_quota: expected at least {CALL_ALLOCATIONS}; one call of a browser takes as many")
    if settings.session_kbps > settings.total_kbps:
        raise ConfigError(f"turn.session_kbps: expected at most turn.total_kbps ({settings.total_kbps})")
    tls = _certificate(settings)
    listen = _addresses(settings.listen, "turn.listen")
    if profile == "test" and not listen:
        listen = (LOOPBACK,)
    relay = _addresses(settings.relay_addresses, "turn.relay_addresses") or listen
    try:
        allowed = tuple(parse_networks(settings.allowed_peers, "turn.allowed_peers", exception=True))
        denied = list(parse_networks(settings.denied_peers, "turn.denied_peers"))
    except ValueError as exc:
        raise ConfigError(str(exc)) from exc
    denied += [ipaddress.ip_network(text) for text, _ in (DENIED if profile == "production" else DENIED_IN_TESTS)]
    if profile == "production":
        denied += [
            network
            for network in map(ipaddress.ip_network, dict.fromkeys((*own, *relay)))
            if not any(network.version == wide.version and network.subnet_of(wide) for wide in denied)  # type: ignore[arg-type]
        ]
    external = _external(settings.external_address, relay)
    return Relay(
        settings, profile, settings.secret.get_secret_value(), listen, relay, external, tuple(denied), allowed, tls
    )


def _ports(settings: TurnSettings) -> None:
    low, high = settings.relay_port_min, settings.relay_port_max
    if low > high:
        raise ConfigError(f"turn.relay_port_min: expected at most turn.relay_port_max ({high}), got {low}")
    if high - low + 1 < settings.total_quota:
        raise ConfigError(
            f"turn.total_quota: {settings.total_quota} allocations take as many ports, and turn.relay_port_min to "
            f"relay_port_max are {high - low + 1}"
        )
    for name, port in (("port", settings.port), ("tls_port", settings.tls_port)):
        if low <= port <= high:
            raise ConfigError(f"turn.{name}: expected one outside the relay's own ports {low} to {high}, got {port}")
    if settings.port == settings.tls_port:
        raise ConfigError(f"turn.tls_port: expected another than turn.port ({settings.port})")


def _certificate(settings: TurnSettings) -> bool:
    if (settings.cert_file is None) != (settings.key_file is None):
        raise ConfigError("turn.cert_file: turn.cert_file and turn.key_file are set together or not at all")
    for name, path in (("cert_file", settings.cert_file), ("key_file", settings.key_file)):
        if path is None:
            continue
        if not str(path).isprintable():
            raise ConfigError(f"turn.{name}: expected a path of printable characters")
        try:
            text = path.read_text(encoding="ascii")
        except OSError as exc:
            raise ConfigError(f"turn.{name}: cannot read {path}: {exc.strerror}") from exc
        except UnicodeDecodeError as exc:
            raise ConfigError(f"turn.{name}: expected a PEM file, got {path}") from exc
        if "-----BEGIN " not in text:
            raise ConfigError(f"turn.{name}: expected a PEM file, got {path}")
    return settings.cert_file is not None


def _addresses(entries: Sequence[str], field: str) -> tuple[str, ...]:
    for entry in entries:
        try:
            address = ipaddress.ip_address(entry)
        except ValueError as exc:
            raise ConfigError(f"{field}: expected addresses such as 203.0.113.7, got {entry!r}") from exc
        if address.is_unspecified or address.is_multicast:
            raise ConfigError(f"{field}: expected addresses of this machine, got {entry}; leave it empty for all")
    return tuple(entries)


def _external(text: str | None, relay: Sequence[str]) -> str | None:
    if text is None:
        return None
    if "/" in text:
        # coturn takes the own part of such a pair for one that every caller may reach, whatever is denied.
        raise ConfigError(f"turn.external_address: expected the public address alone, got {text!r}")
    if len(relay) > 1:
        raise ConfigError(
            "turn.external_address: stands for one address, and turn.relay_addresses (or turn.listen) name "
            f"{len(relay)}"
        )
    return _addresses((text,), "turn.external_address")[0]


def render(relay: Relay, folder: Path) -> str:
    """The text of turnserver.conf. It holds the secret."""
    return "".join(f"{line}\n" for line in _lines(relay, folder))


def _lines(relay: Relay, folder: Path) -> Iterator[str]:
    settings = relay.settings
    yield f"# Written by `rejoinder turn` (profile {relay.profile}), anew at each start: change [turn] instead."
    yield "use-auth-secret"
    yield f"static-auth-secret={relay.secret}"
    yield f"realm={settings.realm}"
    yield "fingerprint"
    yield f"stale-nonce={STALE_NONCE_S}"
    for address in relay.listen:
        yield f"listening-ip={address}"
    for address in relay.relay:
        yield f"relay-ip={address}"
    if relay.external:
        yield f"external-ip={relay.external}"
    yield f"listening-port={settings.port}"
    if relay.tls:
        yield f"tls-listening-port={settings.tls_port}"
        yield f"cert={_absolute(settings.cert_file)}"
        yield f"pkey={_absolute(settings.key_file)}"
        yield "no-tlsv1"
        yield "no-tlsv1_1"
        yield f'cipher-list="{CIPHERS}"'
    else:
        yield "no-tls"
    yield "no-dtls"
    yield f"min-port={settings.relay_port_min}"
    yield f"max-port={settings.relay_port_max}"
    yield f"user-quota={settings.user_quota}"
    yield f"total-quota={settings.total_quota}"
    yield f"max-bps={settings.session_kbps * 1000 // 8}"
    yield f"bps-capacity={settings.total_kbps * 1000 // 8}"
    yield "no-multicast-peers"
    yield "no-tcp-relay"
    yield "no-cli"
    yield "no-software-attribute"
    yield "no-rfc5780"
    yield "no-stun-backward-compatibility"
    yield "response-origin-only-with-rfc5780"
    # The database of the system's own coturn may hold users, secrets and peers of others.
    yield f"userdb={folder / 'turndb'}"
    yield "no-dynamic-ip-list"
    yield "no-dynamic-realms"
    yield "no-auth-pings"
    yield f"pidfile={folder / 'turnserver.pid'}"
    yield "log-file=stdout"
    yield "simple-log"
    if relay.profile == "test":
        yield "allow-loopback-peers"
    for network in relay.allowed:
        yield f"allowed-peer-ip={spell(network)}"
    for network in relay.denied:
        yield f"denied-peer-ip={spell(network)}"


def _absolute(path: Path | None) -> Path:
    assert path is not None
    return path.absolute()


def write(text: str, path: Path) -> None:
    """Put `text` in place of the file, whole and readable by its owner only. Raises EnvironmentFault."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # created as 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(made).replace(path)
        except BaseException:
            Path(made).unlink(missing_ok=True)
            raise
    except OSError as exc:
        raise EnvironmentFault(f"cannot write {path}: {exc.strerror}; choose another place (turn.folder)") from exc
