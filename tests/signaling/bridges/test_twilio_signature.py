import subprocess

import pytest

from signaling.bridges.twilio_signature import sign, signed

URL = "wss://agent.example/v1/twilio"


def test_it_is_what_openssl_makes_of_it() -> None:
    made = subprocess.run(
        ["openssl", "dgst", "-sha1", "-hmac", "12345", "-binary"], input=URL.encode(), capture_output=True, check=True
    ).stdout
    encoded = subprocess.run(["openssl", "base64"], input=made, capture_output=True, check=True).stdout
    assert sign("12345", URL) == encoded.decode().strip()


@pytest.mark.parametrize("told", [URL, URL + "/", URL + "?a=1", URL + "/?a=1"])
def test_a_slash_at_the_end_of_the_path_makes_no_difference(told: str) -> None:
    ours = URL + ("?a=1" if "?" in told else "")
    assert signed("12345", ours, sign("12345", told))


@pytest.mark.parametrize("signature", ["", "x", "\u00e9\ud800", sign("54321", URL), sign("12345", URL)[:-1]])
def test_any_other_is_refused(signature: str) -> None:
    assert not signed("12345", URL, signature)
