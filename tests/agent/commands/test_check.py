"""`rejoinder check`: a report that a person reads, and an exit code that a machine does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.cli import run

HOOK = "from agent import on_turn\n\n\n@on_turn\nasync def reply(turn):\n    yield 'Good day.'\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hook.py").write_text(HOOK)
    scenarios = tmp_path / "scenarios"
    scenarios.mkdir()
    (scenarios / "good.yaml").write_text("name: Greets\nsteps: [{agent: Good day}]")
    return scenarios


def test_all_met_is_0(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(folder), "--hook", "./hook.py:reply"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("pass  Greets")
    assert out.splitlines()[-1] == "-- 1 of 1 scenarios passed"


def test_one_not_met_is_1_and_shows_what_was_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.yaml").write_text("name: Parts\nsteps: [{agent: Good day}, {caller: bye}, {agent: Farewell}]")
    assert run(["check", str(folder), "--hook", "./hook.py:reply"]) == 1
    out = capsys.readouterr().out
    assert "FAIL  Parts" in out
    assert "FAIL step 3" in out
    assert 'agent: "Farewell": said: "Good day."' in out
    assert "caller says: bye" in out
    assert out.splitlines()[-1] == "-- 1 of 2 scenarios passed"


def test_settings_name_the_hook_too(folder: Path) -> None:
    Path("rejoinder.toml").write_text('[nlu]\nkind = "function"\ntarget = "./hook.py:reply"\n')
    assert run(["check", str(folder / "good.yaml")]) == 0


@pytest.mark.parametrize(
    "argv",
    [
        ["check", "absent.yaml"],
        ["check", "scenarios", "--hook", "./absent.py:reply"],
        ["check", "scenarios", "broken.yaml"],
        ["check", "nothing"],
    ],
)
def test_what_is_wrong_is_one_line_and_2(folder: Path, capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    Path("broken.yaml").write_text("steps: [{agnet: x}]")
    Path("nothing").mkdir()
    assert run(argv) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1


def test_json_is_one_object_a_scenario(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(folder), "--json", "--hook", "./hook.py:reply"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["name"], report["passed"]) == ("Greets", True)
    assert report["checks"][0]["wanted"] == 'agent: "Good day"'
