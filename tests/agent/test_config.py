"""Settings: ten wrong files, and who wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.config import load_settings
from agent.errors import ConfigError


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_setting_has_a_default() -> None:
    assert load_settings().server.port == 8080


def test_a_file_in_the_working_directory_is_found() -> None:
    Path("rejoinder.toml").write_text("[server]\nport = 9000\n")
    assert load_settings().server.port == 9000


def test_the_environment_wins_over_the_file_and_a_flag_over_both(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("rejoinder.toml").write_text('[server]\nport = 9000\nhost = "127.0.0.9"\n[tts]\nrate = 1.5\n')
    monkeypatch.setenv("REJOINDER_SERVER__PORT", "9001")
    settings = load_settings()
    assert (settings.server.port, settings.server.host, settings.tts.rate) == (9001, "127.0.0.9", 1.5)
    settings = load_settings(overrides={"server": {"port": 9002}})
    assert (settings.server.port, settings.server.host, settings.tts.rate) == (9002, "127.0.0.9", 1.5)


def test_a_secret_comes_from_the_environment_and_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_AUTH__SECRET", "s" * 40)
    settings = load_settings(overrides={"server": {"port": 1}})
    assert settings.auth.secret is not None
    assert settings.auth.secret.get_secret_value() == "s" * 40
    assert "sss" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[server]\nport = 99999", ["server.port", "65535"]),
        ('[server]\nport = "many"', ["server.port", "integer"]),
        ("[server]\nprot = 1", ["server.prot", "unknown"]),
        ("[sever]\nport = 1", ["sever", "unknown"]),
        ("server = 3", ["server"]),
        ("[server\nport = 1", ["TOML", "line 1"]),
        ('[asr]\nengine = "kaldi"', ["asr.engine", "moonshine"]),
        ("[listening]\nstart_probability = 1.5", ["listening.start_probability", "less than 1"]),
        ('[auth]\nsecret = "abc"', ["auth.secret", "REJOINDER_AUTH__SECRET"]),
        ('[nlu]\napi_key = "abc"', ["nlu.api_key", "REJOINDER_NLU__API_KEY"]),
        ("[media]\njitter_min_ms = true", ["media.jitter_min_ms"]),
        ("[tts]\nrate = nan", ["tts.rate"]),
        ('[server]\norigins = "https://shop.example"', ["server.origins"]),
        ("[clips]\njingle = 3", ["clips.jingle"]),
        ("[media]\njitter_min_ms = 100", ["media", "jitter_start_ms"]),
        ("[conversation]\nhold_after_s = 20", ["conversation", "apologise_after_s"]),
    ],
)
def test_a_wrong_file_is_refused_by_the_name_of_the_setting(text: str, names: list[str]) -> None:
    Path("rejoinder.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    message = str(caught.value)
    assert "\n" not in message
    assert "abc" not in message
    for name in names:
        assert name in message


@pytest.mark.parametrize("make", [lambda p: p.mkdir(), lambda p: None, lambda p: p.write_bytes(b"\xff\xfe\x00")])
def test_a_file_that_cannot_be_read_is_named(make: object) -> None:
    path = Path("other.toml")
    make(path)  # type: ignore[operator]
    with pytest.raises(ConfigError, match=r"other\.toml"):
        load_settings(path)


def test_a_wrong_environment_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_SERVER__PORT", "high")
    with pytest.raises(ConfigError, match=r"server\.port"):
        load_settings()


def test_an_unknown_setting_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_SERVER__PROT", "1")
    with pytest.raises(ConfigError, match=r"server\.prot: unknown"):
        load_settings()


def test_a_list_in_the_environment_is_json_or_has_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ('["203.0.113.7", "2001:db8::7"]', "203.0.113.7, 2001:db8::7"):
        monkeypatch.setenv("REJOINDER_MEDIA__ADVERTISED_ADDRESSES", value)
        assert list(load_settings().media.advertised_addresses) == ["203.0.113.7", "2001:db8::7"]


def test_a_wrong_list_in_the_environment_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_MEDIA__ADVERTISED_ADDRESSES", "no address")
    with pytest.raises(ConfigError, match=r"media\.advertised_addresses"):
        load_settings()


def test_a_mapping_in_the_environment_that_is_no_json_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_CLIPS", "hold=music.wav")
    with pytest.raises(ConfigError, match="clips"):
        load_settings()


def test_a_list_that_was_begun_as_json_and_is_none_names_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_SERVER__ORIGINS", '["https://shop.example"')
    with pytest.raises(ConfigError, match="server"):
        load_settings()


def test_bridges_are_shut_unless_opened() -> None:
    bridges = load_settings().bridges
    assert (bridges.asterisk, bridges.twilio_auth_token, bridges.audiosocket_port) == (False, None, None)
    assert bridges.audiosocket_calls == "announced"


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"bridges": {"audiosocket_sources": ["10.0.0.0/33"]}}, r"bridges\.audiosocket_sources: .*10\.0\.0\.0/33"),
        ({"bridges": {"audiosocket_sources": ["pbx.example"]}}, r"bridges\.audiosocket_sources: .*pbx\.example"),
        ({"bridges": {"twilio_url": "https://x/y"}}, r"bridges\.twilio_url: .*wss://host/path"),
        ({"bridges": {"twilio_url": "wss://x/y?z=1"}}, r"bridges\.twilio_url"),
        ({"bridges": {"asterisk": True}, "server": {"workers": 2}}, r"server\.workers = 1"),
    ],
)
def test_a_bridge_that_cannot_be_opened_so_is_refused_by_field(changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_settings(overrides=changed)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('[core]\nurl = "core:1"', ["core.url", "shm:/PATH"]),
        ('[core]\nlisten = ["unix:relative"]', ["core.listen", "not absolute"]),
        ('[core]\nshards = ["vad:en"]', ["core.shards", "asr:LANGUAGE"]),
        ('[core]\nmetrics = "localhost"', ["core.metrics", "HOST:PORT"]),
        ("[core]\nring_slots = 10", ["core.ring_slots", "256"]),
        ('[core]\nurl = "tcp://10.1.2.3:8090"', ["core", "url", "tls_ca", "insecure"]),
        ('[core]\nlisten = ["tcp://0.0.0.0:8090"]', ["core", "listen", "tls_certificate"]),
    ],
)
def test_a_wrong_core_setting_is_named(text: str, names: list[str]) -> None:
    Path("rejoinder.toml").write_text(text + "\n")
    with pytest.raises(ConfigError) as caught:
        load_settings()
    for name in names:
        assert name in str(caught.value)


def test_certificates_or_consent_let_a_core_be_far_away() -> None:
    Path("rejoinder.toml").write_text('[core]\nurl = "tcp://10.1.2.3:8090"\ntls_ca = "ca.pem"\n')
    assert load_settings().core.tls_ca == Path("ca.pem")
    Path("rejoinder.toml").write_text('[core]\nurl = "tcp://10.1.2.3:8090"\ninsecure = true\n')
    assert load_settings().core.insecure
