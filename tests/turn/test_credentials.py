"""Short-lived credentials: the draft's form, and nothing that tells who the caller is."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turn.credentials import identity_of, mint

SECRET = "north"


def test_the_name_holds_expiry_and_identity_and_the_password_is_its_hmac() -> None:
    made = mint(SECRET, "alice", now=1_700_000_000.9, ttl_s=600)
    assert made.username == "1700000600:alice"
    assert made.expires_at == 1_700_000_600
    expected = base64.b64encode(hmac.new(b"north", b"1700000600:alice", hashlib.sha1).digest())
    assert made.password.encode() == expected


def test_a_known_value() -> None:
    # printf '1433895918:ninefingers' | openssl dgst -sha1 -hmac my-secret -binary | base64
    assert mint("my-secret", "ninefingers", now=1_433_895_908, ttl_s=10).password == "6kjhNlZTLZS6jpclxT/LVtFghec="


def test_secret_identity_and_expiry_each_change_the_password() -> None:
    base = mint(SECRET, "alice", now=1000, ttl_s=60).password
    assert mint("south", "alice", now=1000, ttl_s=60).password != base
    assert mint(SECRET, "bob", now=1000, ttl_s=60).password != base
    assert mint(SECRET, "alice", now=1001, ttl_s=60).password != base


def test_the_password_is_not_shown_by_accident() -> None:
    made = mint(SECRET, "alice", now=1000, ttl_s=60)
    assert made.password not in repr(made)


@pytest.mark.parametrize("identity", ["", "a:b", "a b", "ü", "x" * 65, "a\n"])
def test_an_identity_that_could_be_misread_is_refused(identity: str) -> None:
    with pytest.raises(ValueError, match="identity: expected"):
        mint(SECRET, identity, now=0, ttl_s=60)


def test_no_secret_and_no_time_are_refused() -> None:
    with pytest.raises(ValueError, match="secret: expected"):
        mint("", "alice", now=0, ttl_s=60)
    with pytest.raises(ValueError, match="ttl_s: expected"):
        mint(SECRET, "alice", now=0, ttl_s=0)


@given(st.text(), st.text())
def test_a_sessions_identity_is_one_can_be_minted_for_and_tells_nothing(session: str, other: str) -> None:
    identity = identity_of(SECRET, session)
    assert identity == identity_of(SECRET, session)
    assert identity != identity_of("south", session)
    assert (identity == identity_of(SECRET, other)) == (session == other)
    assert len(session) < 4 or session not in identity
    assert mint(SECRET, identity, now=0, ttl_s=1).username.endswith(identity)
