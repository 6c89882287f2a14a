"""The configuration of coturn: what is in it for each profile, and which settings are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agent.config import Settings, TurnSettings, load_settings
from agent.errors import ConfigError, EnvironmentFault
from turn.coturn import folder_of, plan, render, write

SECRET = "0123456789abcdef0123456789abcdef"


def lines(profile: Any = "production", own: tuple[str, ...] = (), **values: Any) -> list[str]:
    settings = TurnSettings(**{"secret": SECRET, **values})
    return render(plan(settings, profile, own=own), Path("/run/turn")).splitlines()


@pytest.fixture
def pem(tmp_path: Path) -> dict[str, Path]:
    files = {"cert_file": tmp_path / "cert.pem", "key_file": tmp_path / "key.pem"}
    for path in files.values():
        path.write_text("-----BEGIN SOMETHING-----\n")
    return files


def test_production_asks_for_credentials_and_denies_what_is_inside() -> None:
    made = lines()
    for expected in (
        "use-auth-secret",
        f"static-auth-secret={SECRET}",
        "realm=rejoinder",
        "fingerprint",
        "stale-nonce=600",
        "no-multicast-peers",
        "no-tcp-relay",
        "no-cli",
        "no-dtls",
        "no-tls",
        "no-dynamic-ip-list",
        "denied-peer-ip=10.0.0.0-10.255.255.255",
        "denied-peer-ip=127.0.0.0-127.255.255.255",
        "denied-peer-ip=169.254.0.0-169.254.255.255",
        "denied-peer-ip=::1-1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "denied-peer-ip=8000::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "user-quota=24",
        "total-quota=1200",
        "max-bps=32000",
        "bps-capacity=50000000",
        "min-port=49152",
        "max-port=65535",
        "userdb=/run/turn/turndb",
    ):
        assert made.count(expected) == 1, expected
    assert "allow-loopback-peers" not in made
    assert not [line for line in made if line.startswith(("listening-ip", "relay-ip", "allowed-peer-ip"))]


def test_no_range_begins_at_the_unspecified_address() -> None:
    for profile in ("production", "test"):
        assert not [
            line for line in lines(profile) if line.startswith(("denied-peer-ip=::-", "denied-peer-ip=0.0.0.0"))
        ]


def test_production_denies_the_relays_own_public_addresses_too() -> None:
    made = lines(own=("8.8.4.4", "10.0.0.1", "2a00::1"), listen=("8.8.8.8",))
    denied = [line for line in made if line.startswith("denied-peer-ip=") and "-" not in line.split("=")[1]]
    # Its private ones are among the networks already.
    assert denied == ["denied-peer-ip=8.8.4.4", "denied-peer-ip=2a00::1", "denied-peer-ip=8.8.8.8"]


def test_the_test_profile_is_for_loopback() -> None:
    made = lines("test", own=("8.8.4.4",))
    assert "allow-loopback-peers" in made
    assert "listening-ip=127.0.0.1" in made
    assert "relay-ip=127.0.0.1" in made
    assert "denied-peer-ip=169.254.0.0-169.254.255.255" in made
    assert not [line for line in made if "8.8.4.4" in line or line.startswith("denied-peer-ip=127.")]


def test_addresses_exceptions_and_limits_are_passed_on() -> None:
    made = lines(
        listen=("10.0.0.7",),
        relay_addresses=("10.0.0.8",),
        external_address="203.0.113.7",
        allowed_peers=("10.0.0.5", "10.0.8.0/24"),
        denied_peers=("93.184.216.0/24",),
        session_kbps=128,
        total_kbps=1000,
        realm="relay.example.org",
    )
    for expected in (
        "listening-ip=10.0.0.7",
        "relay-ip=10.0.0.8",
        "external-ip=203.0.113.7",
        "allowed-peer-ip=10.0.0.5",
        "allowed-peer-ip=10.0.8.0-10.0.8.255",
        "denied-peer-ip=93.184.216.0-93.184.216.255",
        "max-bps=16000",
        "bps-capacity=125000",
        "realm=relay.example.org",
    ):
        assert expected in made


def test_tls_is_of_today_and_paths_are_absolute(pem: dict[str, Path]) -> None:
    made = lines(**pem, tls_port=443)
    assert "tls-listening-port=443" in made
    assert f"cert={pem['cert_file']}" in made
    assert f"pkey={pem['key_file']}" in made
    assert {"no-tlsv1", "no-tlsv1_1"} <= set(made)
    assert "no-tls" not in made


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"secret": None}, "turn.secret: needed for a relay; set REJOINDER_TURN__SECRET"),
        ({"relay_port_min": 50_000, "relay_port_max": 49_999}, "turn.relay_port_min: expected at most"),
        ({"relay_port_min": 50_000, "relay_port_max": 50_099}, "turn.total_quota: 1200 allocations take as many ports"),
        ({"port": 50_000}, "turn.port: expected one outside the relay's own ports 49152 to 65535"),
        ({"tls_port": 3478}, "turn.tls_port: expected another than turn.port"),
        ({"user_quota": 2000}, "turn.user_quota: expected at most turn.total_quota (1200)"),
        ({"user_quota": 1}, "turn.user_quota: expected at least 4"),
        ({"session_kbps": 5000, "total_kbps": 4000}, "turn.session_kbps: expected at most turn.total_kbps (4000)"),
        ({"cert_file": Path("/x/cert.pem")}, "turn.cert_file and turn.key_file are set together"),
        ({"cert_file": Path("/x/c"), "key_file": Path("/x/k")}, "turn.cert_file: cannot read /x/c: No such file"),
        ({"listen": ("relay.example.org",)}, "turn.listen: expected addresses such as 203.0.113.7"),
        ({"listen": ("0.0.0.0",)}, "leave it empty for all"),
        ({"relay_addresses": ("224.0.0.1",)}, "turn.relay_addresses: expected addresses of this machine"),
        ({"external_address": "203.0.113.7/10.0.0.8"}, "turn.external_address: expected the public address alone"),
        (
            {"external_address": "203.0.113.7", "listen": ("10.0.0.7", "10.0.0.8")},
            "turn.external_address: stands for one address",
        ),
        ({"external_address": "relay.example.org"}, "turn.external_address: expected addresses"),
        ({"allowed_peers": ("169.254.169.254",)}, "turn.allowed_peers: 169.254.169.254 overlaps"),
        ({"denied_peers": ("everyone",)}, "turn.denied_peers: expected an address or a network"),
    ],
)
def test_settings_that_make_no_relay_are_refused_in_one_line(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        lines(**values)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_pem_is_refused(pem: dict[str, Path]) -> None:
    pem["key_file"].write_bytes(b"\x30\x82\xff")
    with pytest.raises(ConfigError, match=r"turn\.key_file: expected a PEM file"):
        lines(**pem)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"urls": ("turn:relay.example.org",)}, "there is no secret; set REJOINDER_TURN__SECRET"),
        ({"urls": ("http://x",), "secret": SECRET}, "expected a TURN server such as"),
        ({"urls": ("turns:x?transport=udp",), "secret": SECRET}, "over UDP"),
        ({"secret": "short"}, "expected 32 to 256 letters"),
        ({"secret": SECRET + "\nuser=x:y"}, "expected 32 to 256 letters"),
        ({"realm": "a b"}, "pattern"),
    ],
)
def test_the_settings_tree_refuses(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=r".*") as caught:
        TurnSettings(**values)
    assert expected in str(caught.value)
    assert "user=x" not in str(caught.value.errors(include_input=False))


def test_the_secret_is_not_taken_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rejoinder.toml"
    file.write_text(f'[turn]\nsecret = "{SECRET}"\n')
    with pytest.raises(ConfigError, match=r"turn\.secret is a secret; set REJOINDER_TURN__SECRET"):
        load_settings(file)


def test_stun_alone_needs_no_secret() -> None:
    assert TurnSettings(urls=("stun:stun.example.org",)).secret is None


def test_the_file_is_its_owners_alone_and_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "turnserver.conf"
    write("one\n", path)
    path.chmod(0o644)
    write("two\n", path)
    assert path.read_text() == "two\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["turnserver.conf"]


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match=r"cannot write .*; choose another place \(turn.folder\)"):
        write("x", tmp_path / "file" / "turnserver.conf")


def test_the_folder_is_beside_the_models_unless_named(tmp_path: Path) -> None:
    settings = Settings(models={"cache_dir": tmp_path})
    assert folder_of(settings) == tmp_path / "turn"
    assert folder_of(Settings(turn={"folder": tmp_path / "x"})) == tmp_path / "x"
