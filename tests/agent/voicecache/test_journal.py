"""What was predicted, written down a call a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import EnvironmentFault
from agent.voicecache import journal as module
from agent.voicecache.journal import Foreseen, Journal, TurnRecord, veiled

RECORD = TurnRecord(1, "start", "Hi.", "Let me look.", [Foreseen("Let me look.", 0.5, "seen", True)], True, True, 2)


def test_turns_are_read_as_they_were_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "calls")
    journal.add("call-1", RECORD)
    journal.add("call-1", RECORD)
    assert journal.read("call-1") == [RECORD, RECORD]
    assert (tmp_path / "calls" / "call-1.jsonl").stat().st_mode & 0o077 == 0


def test_an_unknown_call_names_those_that_are_known(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(EnvironmentFault, match="none"):
        journal.read("x")
    journal.add("call-1", RECORD)
    with pytest.raises(EnvironmentFault, match="call-1"):
        journal.read("x")


@pytest.mark.parametrize("call", ["../../etc/passwd", "a b", "x" * 200, ""])
def test_no_name_of_a_call_leaves_the_folder(tmp_path: Path, call: str) -> None:
    journal = Journal(tmp_path / "calls")
    journal.add(call, RECORD)
    assert journal.read(call) == [RECORD]
    assert [path.parent for path in tmp_path.rglob("*.jsonl")] == [tmp_path / "calls"]


def test_lines_that_are_torn_are_passed_over(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.add("a", RECORD)
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"number": 2, "sta')
    assert journal.read("a") == [RECORD]


def test_it_is_bounded_by_calls_and_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CALLS", 3)
    monkeypatch.setattr(module, "MAX_CALL_BYTES", 1000)
    journal = Journal(tmp_path)
    for number in range(6):
        journal.add(f"c{number}", RECORD)
        os.utime(tmp_path / f"c{number}.jsonl", (number + 10**9, number + 10**9))
    for _ in range(50):
        journal.add("c5", RECORD)
    assert set(journal.calls()) <= {"c3", "c4", "c5"}
    assert (tmp_path / "c5.jsonl").stat().st_size <= 1000
    journal.clear()
    assert journal.calls() == []


def test_a_veiled_text_can_be_told_apart_and_not_read() -> None:
    assert veiled("Anna", False) == "Anna"
    assert veiled("Anna", True) != veiled("Boris", True)
    assert "Anna" not in veiled("Anna", True)


def test_a_veiled_text_cannot_be_found_by_trying() -> None:
    text = "Your code is 4711."
    known = subprocess.run(
        [sys.executable, "-c", f"from agent.voicecache.journal import veiled; print(veiled({text!r}, True))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert veiled(text, True) == veiled(text, True)
    assert veiled(text, True) != veiled("Your code is 4712.", True)
    assert veiled(text, True) != known.stdout.strip(), "another process, another secret"


def test_half_a_surrogate_pair_is_written_too(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.add("call", TurnRecord(1, "\ud800", "", ""))
    assert [record.number for record in journal.read("call")] == [1]
