import os

import pytest

from agent.config import Settings
from signaling.workers.process import Start, resident_bytes
from signaling.workers.supervisor import worker_settings


def test_settings_arrive_as_they_were(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    settings = Settings.model_validate(
        {
            "server": {"origins": ["https://shop.example"], "max_calls": 7},
            "media": {"turn_username": "u", "turn_password": "hunter2"},
            "nlu": {"api_key": "sk-1", "kind": "http", "target": "http://127.0.0.1:9"},
            "clips": {"jingle": str(tmp_path / "a.wav")},
            "models": {"cache_dir": str(tmp_path)},
        }
    )
    # What the environment says by then is not asked again: all workers run on the same settings.
    monkeypatch.setenv("REJOINDER_SERVER__MAX_CALLS", "1")
    sent = Start(settings, tmp_path, log_json=True, log_level="info").message(2)
    assert Settings.model_validate(sent["settings"]) == settings
    assert sent["socket"] == str(tmp_path / "2.sock")


def test_workers_share_the_cores_and_get_no_key() -> None:
    secret = "0123456789abcdef0123456789abcdef"
    settings = Settings.model_validate({"server": {"workers": 2}, "auth": {"secret": secret}})
    theirs = worker_settings(settings)
    assert theirs.auth.secret is None
    assert theirs.asr.threads == max(1, len(os.sched_getaffinity(0)) // 2)
    assert theirs.server.max_calls == settings.server.max_calls
    named = Settings.model_validate({"server": {"workers": 2}, "asr": {"threads": 5}})
    assert worker_settings(named).asr.threads == 5


def test_resident_memory_is_that_of_the_process() -> None:
    assert 10_000_000 < resident_bytes(os.getpid()) < 10_000_000_000
    assert resident_bytes(2**30) == 0


@pytest.mark.parametrize("workers", [0, 65])
def test_a_wrong_number_of_workers_is_named(workers: int) -> None:
    from agent.config import load_settings
    from agent.errors import ConfigError

    with pytest.raises(ConfigError, match=r"server\.workers"):
        load_settings(None, {"server": {"workers": workers}})
