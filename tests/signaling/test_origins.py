import pytest

from agent.errors import ConfigError
from signaling.origins import OriginPolicy, is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("localhost", True),
        ("LOCALHOST.", True),
        ("::1", True),
        ("[::1]", True),
        ("app.localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("origin", "host", "expected"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080", True),
        ("https://voice.example", "voice.example", True),
        ("https://voice.example:443", "voice.example", True),
        ("http://voice.example", "voice.example:80", True),
        ("https://shop.example", "voice.example", True),
        ("https://SHOP.example", "voice.example", True),
        ("http://shop.example", "voice.example", False),
        ("https://shop.example:8443", "voice.example", False),
        ("https://shop.example.evil", "voice.example", False),
        ("https://evil-shop.example", "voice.example", False),
        ("http://127.0.0.1:8081", "127.0.0.1:8080", False),
        ("https://shop.example/path", "voice.example", False),
        ("https://user@shop.example", "voice.example", False),
        ("null", "voice.example", False),
        ("", "voice.example", False),
        ("file://", "voice.example", False),
        ("https://[::1", "voice.example", False),
        ("https://shop.example:99999", "voice.example", False),
        ("chrome-extension://abc", "voice.example", False),
        ("https://other.example", None, False),
    ],
)
def test_origins(origin: str, host: str | None, expected: bool) -> None:
    policy = OriginPolicy(["https://shop.example"], bind_host="0.0.0.0")
    assert policy.allows(origin, host) is expected


@pytest.mark.parametrize("entry", ["*", "https://*.example", "shop.example", "https://shop.example/x", "null", ""])
def test_a_wrong_entry_is_a_config_error(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.origins"):
        OriginPolicy([entry], bind_host="127.0.0.1")


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1:8080", True),
        ("localhost:3000", True),
        ("[::1]:8080", True),
        ("shop.example", True),
        ("evil.example:8080", False),
        ("127.0.0.1.evil.example", False),
        ("evil.example#127.0.0.1", False),
        ("", False),
        (None, False),
    ],
)
def test_a_loopback_server_knows_its_hosts(host: str | None, known: bool) -> None:
    policy = OriginPolicy(["https://shop.example"], bind_host="127.0.0.1")
    assert policy.knows_host(host) is known


def test_a_public_server_takes_any_host() -> None:
    assert OriginPolicy([], bind_host="0.0.0.0").knows_host("anything.example")
