"""Digest: the RFCs' own examples, and both sides against each other."""

from __future__ import annotations

import pytest

from signaling.sip.digest import Account, Challenge, DigestClient, DigestServer, Proof, digest_response, parse_digest
from signaling.sip.errors import SipError

ALICE = Account("alice", "alicepw")
USERS = {"alice": "alicepw"}


def server() -> DigestServer:
    return DigestServer("example.org", USERS.get)


def answer(to: DigestServer, client: DigestClient, now: float, *, algorithm: str = "MD5", body: bytes = b"") -> str:
    challenges = [value for value in to.challenges(now) if f"algorithm={algorithm}," in value]
    challenge = client.choose(challenges, "WWW-Authenticate")
    assert challenge is not None
    return client.authorize(challenge, "INVITE", "sip:1@h", body)


def check(to: DigestServer, value: str, now: float, *, method: str = "INVITE", body: bytes = b"") -> Proof:
    return to.check([value], method, "sip:1@h", body, now)[0]


@pytest.mark.parametrize(
    ("algorithm", "response"),
    [
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ],
)
def test_the_example_of_rfc_7616(algorithm: str, response: str) -> None:
    params = {
        "realm": "http-auth@example.org",
        "uri": "/dir/index.html",
        "algorithm": algorithm,
        "nonce": "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
        "nc": "00000001",
        "cnonce": "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
        "qop": "auth",
    }
    assert digest_response(Account("Mufasa", "Circle of Life"), params, "GET", b"") == response


def test_the_example_of_rfc_2617_without_qop() -> None:
    params = {"realm": "testrealm@host.com", "uri": "/dir/index.html", "nonce": "dcd98b7102dd2f0e8b11d0f600bfb0c093"}
    account = Account("Mufasa", "CircleOfLife")
    assert digest_response(account, params, "GET", b"") == "1949323746fe6a43ef61f9606e7febea"


@pytest.mark.parametrize("algorithm", ["MD5", "SHA-256"])
def test_the_right_password_is_taken_once_a_count(algorithm: str) -> None:
    to, client = server(), DigestClient(ALICE)
    first = answer(to, client, 10.0, algorithm=algorithm)
    assert check(to, first, 10.5) is Proof.GOOD
    assert check(to, first, 10.6) is Proof.STALE
    challenge = Challenge.parse(
        "Digest "
        + ", ".join(f'{k}="{v}"' for k, v in parse_digest(first, "x").items() if k in ("realm", "nonce", "algorithm"))
        + ', qop="auth"',
        "x",
    )
    assert challenge is not None
    assert check(to, client.authorize(challenge, "INVITE", "sip:1@h", b""), 11.0) is Proof.GOOD


def test_wrong_passwords_unknown_users_and_changed_requests_are_wrong() -> None:
    to = server()
    for account in (Account("alice", "guess"), Account("mallory", "alicepw")):
        assert check(to, answer(to, DigestClient(account), 0.0), 0.0) is Proof.WRONG
    good = answer(to, DigestClient(ALICE), 0.0)
    assert check(to, good, 0.0, method="BYE") is Proof.WRONG
    assert to.check([good], "INVITE", "sip:900123@h", b"", 0.0)[0] is Proof.WRONG


def test_a_nonce_that_is_old_or_not_ours_asks_for_another_try_unpunished() -> None:
    to = server()
    assert check(to, answer(to, DigestClient(ALICE), 0.0), 61.0) is Proof.STALE
    assert check(to, answer(server(), DigestClient(ALICE), 0.0), 0.0) is Proof.STALE
    assert check(to, 'Digest realm="example.org", username="alice"', 0.0) is Proof.STALE


def test_credentials_for_another_realm_or_scheme_do_not_count() -> None:
    to = server()
    assert check(to, 'Digest realm="other", username="alice"', 0.0) is Proof.MISSING
    assert check(to, "Basic YTpi", 0.0) is Proof.MISSING
    assert to.check([], "INVITE", "sip:1@h", b"", 0.0)[0] is Proof.MISSING


def test_auth_int_covers_the_body() -> None:
    to, client = server(), DigestClient(ALICE)
    value = next(v for v in to.challenges(0.0) if "MD5" in v).replace('qop="auth,auth-int"', 'qop="auth-int"')
    challenge = client.choose([value], "WWW-Authenticate")
    assert challenge is not None
    signed = client.authorize(challenge, "INVITE", "sip:1@h", b"v=0")
    assert "qop=auth-int" in signed
    assert check(to, signed, 0.0, body=b"v=1") is Proof.WRONG
    assert check(to, signed, 0.0, body=b"v=0") is Proof.GOOD


def test_the_stronger_algorithm_is_chosen_and_others_are_ignored() -> None:
    values = [
        'Digest realm="r", nonce="1", algorithm=SHA-512-256, qop="auth"',
        'Digest realm="r", nonce="2", algorithm=MD5',
        'Digest realm="r", nonce="3", algorithm=SHA-256, qop="auth"',
        'NTLM realm="r"',
        'Digest realm="r", nonce="4", algorithm=SHA-256-sess, qop="auth-conf"',
    ]
    challenge = DigestClient(ALICE).choose(values, "WWW-Authenticate")
    assert challenge is not None
    assert challenge.nonce == "3"
    assert DigestClient(ALICE).choose(values[:1], "WWW-Authenticate") is None


def test_malformed_values_are_refused() -> None:
    for value in ("Digest realm", 'Digest realm="a", realm="b"', 'Digest realm="a'):
        with pytest.raises(SipError):
            parse_digest(value, "Authorization")
    with pytest.raises(SipError):
        Challenge.parse('Digest realm="x"', "WWW-Authenticate")


def test_no_password_shows_in_a_log() -> None:
    assert "alicepw" not in repr(ALICE)
