"""Tokens: JWT (RFC 7519) by PyJWT, HS256 or RS256. The algorithm comes from the settings, never from the token."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

from agent.config import AuthSettings, Settings
from agent.errors import ConfigError, ProtocolError
from agent.nlu.hook import Channel
from signaling.origins import is_loopback

__all__ = ["Claims", "TokenKeys", "TokenMinter", "TokenVerifier", "Unauthorized", "Verifier", "load_keys"]

ISSUER = "rejoinder"

MIN_SECRET_BYTES = 32
"""RFC 7518 section 3.2: an HS256 key is at least as long as its hash."""

MIN_RSA_BITS = 2048
"""RFC 7518 section 3.3."""

MAX_TOKEN_CHARS = 8192
MAX_SUBJECT_CHARS = 128

MAX_UNIX_TIME = 2**40
"""36,000 years on: beyond it a number is no date."""

_SET_SECRET = f"set REJOINDER_AUTH__SECRET to at least {MIN_SECRET_BYTES} random bytes (openssl rand -base64 48)"

Algorithm = Literal["HS256", "RS256"]


class Unauthorized(ProtocolError):
    """The token is missing, malformed, expired, not meant for us or not signed by our key (HTTP 401)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, field="token", code="unauthorized")


@dataclass(frozen=True, slots=True)
class Claims:
    """What a verified token says."""

    subject: str
    """Whose calls these are."""
    expires_at: int
    """Unix time in seconds."""
    token_id: str
    max_calls: int | None = None
    """Calls the subject may have at once; None means no limit but the server's."""
    channels: frozenset[str] | None = None
    """Channels the token opens; None means all."""

    def allows(self, channel: Channel) -> bool:
        return self.channels is None or channel in self.channels


class Verifier(Protocol):
    """Whatever tells who a caller is."""

    def verify(self, token: str) -> Claims:
        """The token's claims. Raises Unauthorized with a reason that is safe to show."""
        ...


@dataclass(frozen=True, slots=True)
class TokenVerifier:
    """Checks tokens: signature by the pinned algorithm, audience, expiry, and the shape of every claim we use."""

    key: str | bytes | RSAPublicKey
    algorithm: Algorithm
    audience: str
    leeway_s: int = 5

    def verify(self, token: str) -> Claims:
        """The token's claims. Raises Unauthorized with a reason that is safe to show."""
        if not token:
            raise Unauthorized("a token is required: send Authorization: Bearer <token>")
        if len(token) > MAX_TOKEN_CHARS:
            raise Unauthorized(f"the token is longer than {MAX_TOKEN_CHARS} characters")
        if not token.isascii():
            raise Unauthorized("the token is not a JWT: it has characters outside ASCII")
        try:
            claims = jwt.decode(
                token,
                self.key,
                algorithms=[self.algorithm],
                audience=self.audience,
                issuer=ISSUER,
                leeway=self.leeway_s,
                options={"require": ["iss", "sub", "aud", "exp", "iat", "jti"]},
            )
        except jwt.ExpiredSignatureError as exc:
            raise Unauthorized("the token has expired") from exc
        except jwt.InvalidAlgorithmError as exc:
            raise Unauthorized(f"the token must be signed with {self.algorithm}") from exc
        except jwt.InvalidSignatureError as exc:
            raise Unauthorized("the token's signature does not match this server's key") from exc
        except jwt.InvalidAudienceError as exc:
            raise Unauthorized(f"the token's audience must be {self.audience!r}") from exc
        except jwt.InvalidIssuerError as exc:
            raise Unauthorized(f"the token's issuer must be {ISSUER!r}") from exc
        except jwt.ImmatureSignatureError as exc:
            raise Unauthorized("the token is not valid yet") from exc
        except jwt.MissingRequiredClaimError as exc:
            raise Unauthorized(f"the token lacks the claim {exc.claim!r}") from exc
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError) as exc:
            raise Unauthorized("the token is not a valid JWT") from exc
        return _claims(claims)


def _claims(claims: dict[str, Any]) -> Claims:
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_CHARS or not subject.isprintable():
        raise Unauthorized(f"the token's claim 'sub' must be 1 to {MAX_SUBJECT_CHARS} printable characters")
    token_id = claims["jti"]
    if not isinstance(token_id, str) or not 0 < len(token_id) <= MAX_SUBJECT_CHARS:
        raise Unauthorized(f"the token's claim 'jti' must be a string of 1 to {MAX_SUBJECT_CHARS} characters")
    expires_at = int(claims["exp"])
    if expires_at > MAX_UNIX_TIME:
        raise Unauthorized("the token's claim 'exp' must be a date")
    max_calls = claims.get("calls")
    if max_calls is not None and (not isinstance(max_calls, int) or isinstance(max_calls, bool) or max_calls < 1):
        raise Unauthorized("the token's claim 'calls' must be a whole number of at least 1")
    channels = claims.get("channels")
    if channels is not None and (
        not isinstance(channels, list) or not all(isinstance(c, str) and c in get_args(Channel) for c in channels)
    ):
        raise Unauthorized(f"the token's claim 'channels' must list channels out of {', '.join(get_args(Channel))}")
    return Claims(
        subject=subject,
        expires_at=expires_at,
        token_id=token_id,
        max_calls=max_calls,
        channels=None if channels is None else frozenset(channels),
    )


@dataclass(frozen=True, slots=True, repr=False)
class TokenKeys:
    """The keys of this server. `signing_key` is None where only the public half is known."""

    algorithm: Algorithm
    verifying_key: str | bytes | RSAPublicKey
    signing_key: str | bytes | RSAPrivateKey | None
    auth: AuthSettings
    development: bool = False
    """True when the key was made up for this process: tokens die with it."""

    @property
    def verifier(self) -> TokenVerifier:
        return TokenVerifier(self.verifying_key, self.algorithm, self.auth.audience, self.auth.leeway_s)

    def mint(
        self,
        subject: str,
        *,
        now: datetime.datetime | None = None,
        ttl_s: int | None = None,
        calls: int | None = None,
        channels: Sequence[Channel] | None = None,
    ) -> str:
        """A signed token for `subject`, valid `ttl_s` seconds (by default `auth.token_ttl_s`) from `now`.

        Raises ConfigError when no signing key is configured or a claim would not pass our own check.
        """
        if self.signing_key is None:
            raise ConfigError("auth.private_key_file: needed to mint RS256 tokens (REJOINDER_AUTH__PRIVATE_KEY_FILE)")
        issued = int((datetime.datetime.now(datetime.UTC) if now is None else now).timestamp())
        payload: dict[str, Any] = {
            "iss": ISSUER,
            "sub": subject,
            "aud": self.auth.audience,
            "iat": issued,
            "exp": issued + (self.auth.token_ttl_s if ttl_s is None else ttl_s),
            "jti": secrets.token_urlsafe(12),
        }
        if calls is not None:
            payload["calls"] = calls
        if channels is not None:
            payload["channels"] = list(channels)
        try:
            _claims(payload)
        except Unauthorized as exc:
            raise ConfigError(f"cannot mint this token: {exc}") from exc
        return jwt.encode(payload, self.signing_key, algorithm=self.algorithm)


def load_keys(settings: Settings, *, bind_host: str | None = None) -> TokenKeys:
    """The keys that `settings.auth` names.

    When none is named and the server binds a loopback address, a random key is made for this process only.

    Args:
        bind_host: the address the server will listen on; `settings.server.host` by default.

    Raises:
        ConfigError: no key on a public address, a secret too short, a key file unreadable or of the wrong kind.
    """
    keys = _configured_keys(settings.auth)
    if keys is not None:
        return keys
    host = settings.server.host if bind_host is None else bind_host
    if not is_loopback(host):
        raise ConfigError(
            f"auth.secret: no key is set and the server would listen on {host}, which others can reach; {_SET_SECRET}"
        )
    made = secrets.token_bytes(MIN_SECRET_BYTES)
    return TokenKeys("HS256", made, made, settings.auth, development=True)


class TokenMinter:
    """Mints tokens with the configured key, apart from any server. Raises ConfigError when there is none."""

    def __init__(self, auth: AuthSettings) -> None:
        keys = _configured_keys(auth)
        if keys is None:
            raise ConfigError(
                f"auth.secret: no key is set; {_SET_SECRET} here and for the server "
                "(a server on loopback without one prints a token of its own)"
            )
        self._keys = keys

    def mint(
        self,
        subject: str,
        *,
        ttl_s: int | None = None,
        calls: int | None = None,
        channels: Sequence[Channel] | None = None,
    ) -> str:
        """A token that is valid from now on. Raises ConfigError for a claim that no server would accept."""
        return self._keys.mint(subject, ttl_s=ttl_s, calls=calls, channels=channels)


def _configured_keys(auth: AuthSettings) -> TokenKeys | None:
    if auth.algorithm == "RS256":
        return _rsa_keys(auth)
    if auth.secret is None:
        return None
    secret = auth.secret.get_secret_value().encode()
    if len(secret) < MIN_SECRET_BYTES:
        raise ConfigError(f"auth.secret: expected at least {MIN_SECRET_BYTES} bytes, got {len(secret)}; {_SET_SECRET}")
    if secret.lstrip().startswith((b"-----BEGIN", b"ssh-")):
        raise ConfigError("auth.secret: this is a key file's text; for RSA set auth.algorithm to RS256")
    return TokenKeys("HS256", secret, secret, auth)


def _rsa_keys(auth: AuthSettings) -> TokenKeys:
    private: RSAPrivateKey | None = None
    if auth.private_key_file is not None:
        pem = _read(auth.private_key_file, "auth.private_key_file")
        try:
            loaded = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as exc:
            raise ConfigError("auth.private_key_file: expected an unencrypted PEM private key") from exc
        if not isinstance(loaded, RSAPrivateKey):
            raise ConfigError("auth.private_key_file: expected an RSA key")
        private = loaded
    if auth.public_key_file is not None:
        pem = _read(auth.public_key_file, "auth.public_key_file")
        try:
            public = serialization.load_pem_public_key(pem)
        except (ValueError, TypeError, UnsupportedAlgorithm) as exc:
            raise ConfigError("auth.public_key_file: expected a PEM public key") from exc
        if not isinstance(public, RSAPublicKey):
            raise ConfigError("auth.public_key_file: expected an RSA key")
    elif private is not None:
        public = private.public_key()
    else:
        raise ConfigError("auth.public_key_file: needed for RS256 (REJOINDER_AUTH__PUBLIC_KEY_FILE)")
    if public.key_size < MIN_RSA_BITS:
        raise ConfigError(f"auth.public_key_file: expected at least {MIN_RSA_BITS} bits, got {public.key_size}")
    if private is not None and private.public_key().public_numbers() != public.public_numbers():
        raise ConfigError("auth.private_key_file: does not belong to auth.public_key_file")
    return TokenKeys("RS256", public, private, auth)


def _read(path: Path, field: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"{field}: cannot read {path}: {exc.strerror}") from exc
