"""`rejoinder cache`, with the embedded voice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.cli import run
from agent.voicecache.journal import Foreseen, Journal, TurnRecord
from agent.voicecache.learning import journal_folder

LINES = """# openings of the shop
Of course, one moment please. Let me look.

Thank you, Anna Kowalski.
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REJOINDER_CACHE__FOLDER", str(tmp_path / "voice"))
    monkeypatch.setenv("REJOINDER_TTS__FALLBACK", "none")


def told(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, object]:
    assert run(["cache", *args, "--json"]) == 0
    values: dict[str, object] = json.loads(capsys.readouterr().out)
    return values


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert run(["cache", *args]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    return out.err


def test_what_is_warmed_is_there_and_moves_to_another_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lines.txt").write_text(LINES)
    first = told(capsys, "warm", "lines.txt")
    assert first["made"] == 2
    assert first["left_out_as_private"] == 1
    again = told(capsys, "warm", "lines.txt")
    assert (again["made"], again["there_already"]) == (0, 2)
    assert told(capsys, "stats")["entries_on_disk"] == 2
    assert told(capsys, "export", "speech.rjv")["entries"] == 2
    monkeypatch.setenv("REJOINDER_CACHE__FOLDER", str(tmp_path / "other"))
    assert told(capsys, "stats")["entries_on_disk"] == 0
    assert told(capsys, "import", "speech.rjv")["entries_on_disk"] == 2
    assert told(capsys, "warm", "lines.txt")["made"] == 0
    assert told(capsys, "clear")["removed_from_disk"] == 2
    assert told(capsys, "stats")["entries_on_disk"] == 0


def test_a_damaged_export_is_told_with_the_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines.txt").write_text("One moment.\nLet me look.\n")
    told(capsys, "warm", "lines.txt")
    told(capsys, "export", "speech.rjv")
    data = (tmp_path / "speech.rjv").read_bytes()
    (tmp_path / "speech.rjv").write_bytes(data[:-1])
    assert "entry 2 cannot be used" in refused(capsys, "import", "speech.rjv")
    assert "cannot import" in refused(capsys, "import", "none.rjv")


def test_a_file_that_is_no_text_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines.txt").write_bytes(b"\xff\xfe")
    assert "UTF-8" in refused(capsys, "warm", "lines.txt")
    assert "cannot read" in refused(capsys, "warm", "none.txt")


def test_without_a_disk_there_is_nothing_to_fill(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REJOINDER_CACHE__DISK_MB", "0")
    assert "cache.disk_mb" in refused(capsys, "export", "speech.rjv")
    assert "entries_on_disk" not in told(capsys, "stats")


def test_a_call_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = [Foreseen("Let me look.", 0.5, "last clause 'Hi.': 2.0 of 4.0", True)]
    Journal(journal_folder(tmp_path / "voice")).add(
        "call-1", TurnRecord(1, "start", "Hi.", "Let me look.", seen, True, True)
    )
    assert run(["cache", "explain", "call-1"]) == 0
    out = capsys.readouterr().out
    assert "after 'start' the agent began 'Let me look.': predicted, and ready" in out
    assert "50.0% * 'Let me look.': last clause 'Hi.': 2.0 of 4.0" in out
    assert told(capsys, "explain", "call-1")["used"] is True
    assert "call-1" in refused(capsys, "explain", "unknown")
