"""From the `[sip]` settings to the parts of a user agent. Pure."""

from __future__ import annotations

import ipaddress
import ssl

from agent.config import SipSettings
from agent.errors import ConfigError
from agent.media.codec import CODECS, Codec
from agent.media.rtp_session import RtpSession, SrtpKey, SrtpSuite
from agent.media.rtp_watch import RtpLimits
from signaling.sip.defence import Door, DoorSettings, Stance
from signaling.sip.digest import Account, DigestServer
from signaling.sip.gateway.destinations import parsed_uri, proxy_of
from signaling.sip.message import Request
from signaling.sip.negotiation import Agreement, LocalMedia
from signaling.sip.peer import Peer, TransportName, same_host
from signaling.sip.registration import RegistrationSettings
from signaling.sip.sdp import Crypto
from signaling.sip.stack import AgentSettings
from signaling.sip.transport.endpoint import Listen
from signaling.sip.transport.tls import server_context

__all__ = [
    "advertised",
    "agent_settings",
    "codecs_of",
    "contacts_of",
    "door_of",
    "limits_of",
    "listeners",
    "local_media",
    "registration",
    "rtp_session",
    "server_tls",
    "session_headers",
]

MAX_HEADER_CHARS = 1024
SUITES: dict[str, SrtpSuite] = {suite: suite for suite in ("AES_CM_128_HMAC_SHA1_80", "AES_CM_128_HMAC_SHA1_32")}


def advertised(settings: SipSettings) -> str:
    """The address that peers use for us."""
    return settings.advertised_address or settings.host


def listeners(settings: SipSettings) -> list[Listen]:
    """What to listen on."""
    return [
        Listen(name, settings.host, settings.tls_port if name == "tls" else settings.port)
        for name in settings.transports
    ]


def contacts_of(settings: SipSettings) -> dict[TransportName, tuple[str, int]]:
    """Where peers reach us, by transport."""
    return {item.transport: (advertised(settings), item.port) for item in listeners(settings)}


def agent_settings(settings: SipSettings) -> AgentSettings:
    """How the user agent presents itself and what it allows. Raises ConfigError."""
    account = None
    proxy = proxy_of(settings)
    if settings.password is not None:
        account = Account(settings.username, settings.password.get_secret_value())
    return AgentSettings(
        contacts=contacts_of(settings),
        user=settings.username,
        account=account,
        proxy=proxy,
        ringing_limit_s=settings.ringing_s,
        transfer_limit_s=settings.transfer_s,
    )


def registration(settings: SipSettings) -> RegistrationSettings | None:
    """What to register where, if anything. Raises ConfigError."""
    registrars = tuple(parsed_uri(text, "sip.registrars") for text in settings.registrars)
    if not registrars:
        return None
    return RegistrationSettings(settings.username, registrars, expires_s=settings.register_s)


def server_tls(settings: SipSettings) -> ssl.SSLContext | None:
    """For the TLS listener, if there is one. Raises ConfigError."""
    if "tls" not in settings.transports or settings.tls_certificate is None:
        return None
    return server_context(settings.tls_certificate, settings.tls_key)


def door_of(settings: SipSettings) -> Door:
    """Who may come in."""
    passwords = {name: secret.get_secret_value() for name, secret in settings.users.items()}
    digest = DigestServer(settings.realm, passwords.get) if passwords else None
    networks = tuple(ipaddress.ip_network(text, strict=False) for text in settings.trusted)
    stance = Stance.FORBID if settings.stance == "forbid" else Stance.SILENCE
    return Door(DoorSettings(trusted=networks, open_to_all=settings.open, stance=stance), digest)


def codecs_of(settings: SipSettings) -> tuple[Codec, ...]:
    """In the settings' order. Raises ConfigError on a name that is none."""
    known = {codec.name.lower(): codec for codec in CODECS}
    missing = [name for name in settings.codecs if name.lower() not in known]
    if missing:
        raise ConfigError(f"sip.codecs: expected {', '.join(codec.name for codec in CODECS)}, got {missing[0]}")
    return tuple(known[name.lower()] for name in settings.codecs)


def limits_of(settings: SipSettings) -> RtpLimits:
    """How long RTP may be missing."""
    return RtpLimits(settings.rtp_first_s, settings.rtp_silence_s, settings.hold_s)


def local_media(settings: SipSettings, port: int, *, encrypted: bool) -> LocalMedia:
    """Our side of a negotiation.

    Args:
        port: of RTP.
        encrypted: the signalling is, so that a key in it is a secret.
    """
    takes = settings.srtp in ("any", "required") or (settings.srtp == "tls" and encrypted)
    needs = settings.srtp == "required"
    return LocalMedia(
        advertised(settings), port, codecs_of(settings), offer_secure=needs, take_secure=takes, need_secure=needs
    )


def rtp_session(agreement: Agreement, signalling: Peer | None) -> RtpSession:
    """What the media path needs of an agreement.

    Args:
        signalling: where the peer's messages come from.
    """
    event = None if agreement.event_type is None else (agreement.event_type, agreement.event_clock_hz)
    return RtpSession(
        remote=(agreement.remote_address, agreement.remote_port),
        codec=agreement.codec,
        payload_type=agreement.payload_type,
        event=event,
        sends=agreement.direction in ("sendrecv", "sendonly"),
        hears=agreement.direction in ("sendrecv", "recvonly"),
        known=signalling is not None and same_host(signalling.host, agreement.remote_address),
        rtcp_mux=agreement.rtcp_mux,
        send_key=_key(agreement.local_crypto),
        receive_key=_key(agreement.remote_crypto),
    )


def session_headers(request: Request, allowed: tuple[str, ...]) -> dict[str, str]:
    """The header fields that the hook may see, by the names that the settings give them."""
    found = {name: request.headers.all(name) for name in allowed}
    return {name: ", ".join(values)[:MAX_HEADER_CHARS] for name, values in found.items() if values}


def _key(crypto: Crypto | None) -> SrtpKey | None:
    return None if crypto is None else SrtpKey(SUITES[crypto.suite], crypto.key)
