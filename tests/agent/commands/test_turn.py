"""`rejoinder turn` and `rejoinder doctor --turn`: one line and exit code 2 for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.cli import run

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REJOINDER_TURN__FOLDER", str(tmp_path / "turn"))
    monkeypatch.setenv("REJOINDER_TURN__SECRET", SECRET)
    return tmp_path


def test_the_configuration_can_be_written_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "out.conf"
    assert run(["turn", "--write", str(file), "--json"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"config": str(file)}
    assert SECRET not in printed
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    assert f"static-auth-secret={SECRET}" in text
    assert "(profile production)" in text
    assert "allow-loopback-peers" not in text


def test_the_test_profile_is_asked_for(folder: Path) -> None:
    assert run(["turn", "--profile", "test", "--write", str(folder / "out.conf")]) == 0
    assert "allow-loopback-peers" in (folder / "out.conf").read_text()


def test_without_a_secret_nothing_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("REJOINDER_TURN__SECRET")
    assert run(["turn"]) == 2
    assert capsys.readouterr().err.startswith("error: turn.secret: needed for a relay; set REJOINDER_TURN__SECRET")
    assert not (folder / "turn").exists()


def test_without_coturn_it_says_how_to_install_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REJOINDER_TURN__PROGRAM", "no-such-turnserver")
    assert run(["turn"]) == 2
    assert "no-such-turnserver is not installed: apt-get install coturn" in capsys.readouterr().err
    assert not (folder / "turn").exists()


def test_the_doctor_says_when_callers_are_told_of_no_relay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--turn"]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("FAIL  relay: callers are told of none  ->  set turn.urls")
