import pytest

from signaling.tokens import Claims, Unauthorized
from signaling.workers.passport import CALL_HEADER, PassportVerifier, passport_headers


def token(claims: Claims) -> str:
    headers = passport_headers(claims, "call_1")
    assert headers[CALL_HEADER] == "call_1"
    return headers["Authorization"].removeprefix("Bearer ")


@pytest.mark.parametrize("channels", [None, frozenset({"browser"}), frozenset({"widget", "websocket"})])
def test_what_was_checked_arrives(channels: frozenset[str] | None) -> None:
    claims = PassportVerifier().verify(token(Claims("Zoë at the desk", 99, "j", 3, channels)))
    assert claims.subject == "Zoë at the desk"
    assert claims.channels == channels
    # What credentials for a relay are made of.
    assert (claims.token_id, claims.expires_at) == ("j", 99)
    # Counted where all workers are seen.
    assert claims.max_calls is None


def test_a_token_that_opens_no_channel_still_opens_none() -> None:
    claims = PassportVerifier().verify(token(Claims("alice", 99, "j", None, frozenset())))
    assert not claims.allows("browser")


@pytest.mark.parametrize("text", ["", "abc", "e30=", "bnVsbA==", "W10="])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(Unauthorized):
        PassportVerifier().verify(text)
