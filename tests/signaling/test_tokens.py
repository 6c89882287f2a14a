import base64
import datetime
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from pydantic import SecretStr

from agent.config import AuthSettings, ServerSettings, Settings
from agent.errors import ConfigError
from signaling.tokens import MAX_TOKEN_CHARS, TokenKeys, TokenMinter, Unauthorized, load_keys

SECRET = "0123456789abcdef0123456789abcdef"


def settings(host: str = "127.0.0.1", **auth: Any) -> Settings:
    return Settings(server=ServerSettings(host=host), auth=AuthSettings(**auth))


@pytest.fixture
def keys() -> TokenKeys:
    return load_keys(settings(secret=SecretStr(SECRET)))


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def rsa_files(rsa_key: rsa.RSAPrivateKey, tmp_path: Path) -> tuple[Path, Path]:
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    private.write_bytes(private_pem(rsa_key))
    public.write_bytes(public_pem(rsa_key))
    return private, public


def private_pem(key: Any) -> bytes:
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem


def public_pem(key: Any) -> bytes:
    pem: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return pem


def claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    base = {"iss": "rejoinder", "sub": "alice", "aud": "rejoinder", "iat": now, "exp": now + 60, "jti": "t1"}
    return {key: value for key, value in (base | changes).items() if value is not ...}


def by_hand(header: dict[str, Any], payload: dict[str, Any], secret: bytes = b"") -> str:
    """A token made without PyJWT, which refuses to make the bad ones."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, payload)]
    signed = b".".join(parts)
    signature = hmac.new(secret, signed, hashlib.sha256).digest() if secret else b""
    return (signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def test_a_minted_token_verifies_with_all_its_claims(keys: TokenKeys) -> None:
    seen = keys.verifier.verify(keys.mint("alice", ttl_s=60, calls=2, channels=["browser"]))
    assert seen.subject == "alice"
    assert seen.max_calls == 2
    assert seen.allows("browser")
    assert not seen.allows("websocket")
    assert 50 < seen.expires_at - time.time() <= 60


def test_without_limits_a_token_opens_every_channel(keys: TokenKeys) -> None:
    seen = keys.verifier.verify(keys.mint("alice"))
    assert seen.max_calls is None
    assert seen.allows("sip")


def test_two_tokens_never_share_an_id(keys: TokenKeys) -> None:
    ids = {keys.verifier.verify(keys.mint("alice")).token_id for _ in range(20)}
    assert len(ids) == 20


def test_expiry_respects_the_leeway(keys: TokenKeys) -> None:
    now = datetime.datetime.now(datetime.UTC)
    inside = keys.mint("alice", now=now - datetime.timedelta(seconds=63), ttl_s=60)
    assert keys.verifier.verify(inside).subject == "alice"
    outside = keys.mint("alice", now=now - datetime.timedelta(seconds=120), ttl_s=60)
    with pytest.raises(Unauthorized, match="expired"):
        keys.verifier.verify(outside)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aud": "other"}, "audience"),
        ({"aud": ...}, "aud"),
        ({"iss": "evil"}, "issuer"),
        ({"iss": ...}, "iss"),
        ({"sub": ...}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": "a" * 129}, "sub"),
        ({"sub": "a\nb"}, "sub"),
        ({"sub": 7}, "valid JWT"),
        ({"exp": ...}, "exp"),
        ({"exp": "soon"}, "valid JWT"),
        ({"exp": 10**400}, "exp"),
        ({"exp": float("inf")}, "valid JWT"),
        ({"iat": ...}, "iat"),
        ({"iat": 2**40}, "not valid yet"),
        ({"jti": ...}, "jti"),
        ({"jti": "x" * 200}, "jti"),
        ({"calls": 0}, "calls"),
        ({"calls": True}, "calls"),
        ({"calls": "many"}, "calls"),
        ({"channels": "browser"}, "channels"),
        ({"channels": ["fax"]}, "channels"),
        ({"channels": [{}]}, "channels"),
    ],
)
def test_a_wrong_claim_is_named(keys: TokenKeys, changes: dict[str, Any], message: str) -> None:
    token = by_hand({"alg": "HS256", "typ": "JWT"}, claims(**changes), SECRET.encode())
    with pytest.raises(Unauthorized, match=message):
        keys.verifier.verify(token)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c",
        "..",
        "Bearer",
        "\x00.\x00.\x00",
        "é.é.é",
        "A" * (MAX_TOKEN_CHARS + 1),
        by_hand({"alg": "none"}, claims()),
        by_hand({"alg": "None", "typ": "JWT"}, claims()),
        by_hand({}, claims(), SECRET.encode()),
        by_hand({"alg": "HS512"}, claims(), SECRET.encode()),
        by_hand({"alg": ["HS256"]}, claims(), SECRET.encode()),
        by_hand({"alg": "HS256", "crit": ["x"]}, claims(), SECRET.encode()),
        by_hand({"alg": "HS256"}, claims(), b"another secret of 32 bytes or more"),
        by_hand({"alg": "HS256"}, [], SECRET.encode()),  # type: ignore[arg-type]
        jwt.encode(claims(), SECRET * 2, algorithm="HS512"),
        base64.urlsafe_b64encode(b"[" * 3000).decode() + ".e30.e30",
    ],
)
def test_a_hostile_token_is_refused(keys: TokenKeys, token: str) -> None:
    with pytest.raises(Unauthorized) as caught:
        keys.verifier.verify(token)
    assert SECRET not in str(caught.value)
    assert caught.value.field == "token"


def test_rs256_verifies_and_mints(rsa_files: tuple[Path, Path]) -> None:
    private, public = rsa_files
    keys = load_keys(settings(algorithm="RS256", private_key_file=private, public_key_file=public))
    assert keys.verifier.verify(keys.mint("bob")).subject == "bob"


def test_with_only_the_public_key_nothing_can_be_minted(rsa_files: tuple[Path, Path]) -> None:
    private, public = rsa_files
    keys = load_keys(settings(algorithm="RS256", public_key_file=public))
    token = load_keys(settings(algorithm="RS256", private_key_file=private)).mint("bob")
    assert keys.verifier.verify(token).subject == "bob"
    with pytest.raises(ConfigError, match="private_key_file"):
        keys.mint("bob")


def test_the_public_key_is_no_hmac_secret(rsa_files: tuple[Path, Path], rsa_key: rsa.RSAPrivateKey) -> None:
    keys = load_keys(settings(algorithm="RS256", public_key_file=rsa_files[1]))
    forged = by_hand({"alg": "HS256", "typ": "JWT"}, claims(), public_pem(rsa_key))
    with pytest.raises(Unauthorized, match="RS256"):
        keys.verifier.verify(forged)
    claimed = by_hand({"alg": "RS256", "typ": "JWT"}, claims(), public_pem(rsa_key))
    with pytest.raises(Unauthorized, match="signature"):
        keys.verifier.verify(claimed)


def test_another_rsa_keys_token_is_refused(rsa_files: tuple[Path, Path]) -> None:
    keys = load_keys(settings(algorithm="RS256", public_key_file=rsa_files[1]))
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with pytest.raises(Unauthorized, match="signature"):
        keys.verifier.verify(jwt.encode(claims(), private_pem(other), algorithm="RS256"))


def test_an_rs256_token_does_not_pass_an_hs256_server(keys: TokenKeys, rsa_key: rsa.RSAPrivateKey) -> None:
    with pytest.raises(Unauthorized, match="HS256"):
        keys.verifier.verify(jwt.encode(claims(), private_pem(rsa_key), algorithm="RS256"))


def test_on_loopback_a_random_development_key_is_made() -> None:
    first, second = load_keys(settings()), load_keys(settings("::1"))
    assert first.development
    assert second.development
    assert first.verifying_key != second.verifying_key
    assert first.verifier.verify(first.mint("me")).subject == "me"
    with pytest.raises(Unauthorized):
        second.verifier.verify(first.mint("me"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org"])
def test_on_a_public_address_a_key_must_be_set(host: str) -> None:
    with pytest.raises(ConfigError, match="REJOINDER_AUTH__SECRET"):
        load_keys(settings(host))
    assert not load_keys(settings(host, secret=SecretStr(SECRET))).development


@pytest.mark.parametrize("secret", ["short", "é" * 15, "-----BEGIN PRIVATE KEY-----" + "A" * 40])
def test_a_weak_or_wrong_secret_is_refused(secret: str) -> None:
    with pytest.raises(ConfigError, match=r"auth\.secret") as caught:
        load_keys(settings(secret=SecretStr(secret)))
    assert secret not in str(caught.value)


def test_wrong_key_files_are_named(tmp_path: Path, rsa_files: tuple[Path, Path]) -> None:
    private, public = rsa_files
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    curve = ec.generate_private_key(ec.SECP256R1())
    for name, data in (("weak", public_pem(weak)), ("curve", public_pem(curve)), ("text", b"hello")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ConfigError, match=r"auth\.public_key_file"):
            load_keys(settings(algorithm="RS256", public_key_file=tmp_path / name))
    with pytest.raises(ConfigError, match="cannot read"):
        load_keys(settings(algorithm="RS256", public_key_file=tmp_path / "absent"))
    with pytest.raises(ConfigError, match="PUBLIC_KEY_FILE"):
        load_keys(settings(algorithm="RS256"))
    with pytest.raises(ConfigError, match=r"auth\.private_key_file"):
        load_keys(settings(algorithm="RS256", private_key_file=public))
    (tmp_path / "other").write_bytes(public_pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)))
    with pytest.raises(ConfigError, match="does not belong"):
        load_keys(settings(algorithm="RS256", private_key_file=private, public_key_file=tmp_path / "other"))


def test_the_minter_needs_a_configured_key(keys: TokenKeys) -> None:
    with pytest.raises(ConfigError, match="REJOINDER_AUTH__SECRET"):
        TokenMinter(AuthSettings())
    token = TokenMinter(AuthSettings(secret=SecretStr(SECRET))).mint("carol", ttl_s=30, calls=1)
    assert keys.verifier.verify(token).max_calls == 1


def test_the_minter_refuses_what_the_verifier_would(keys: TokenKeys) -> None:
    with pytest.raises(ConfigError, match="calls"):
        keys.mint("alice", calls=0)
    with pytest.raises(ConfigError, match="sub"):
        keys.mint("")
