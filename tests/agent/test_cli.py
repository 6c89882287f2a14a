"""The command line: one line and exit code 2 for what is wrong, the promised output for what is right."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agent.speech.clips import read_wav, write_wav
from agent.testing import voice

ROOT = Path(__file__).resolve().parents[2]


def rejoinder(*args: str, stdin: str = "", cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agent", *args],
        cwd=cwd or ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
    )


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a request that was wrong."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    return lines[0]


def test_a_taken_port_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refused(rejoinder("serve", "--port", str(port)))
    assert f"127.0.0.1:{port}" in line
    assert "--port" in line


def test_missing_models_are_one_line(tmp_path: Path) -> None:
    line = refused(rejoinder("serve", "--port", "0", REJOINDER_MODELS__CACHE_DIR=str(tmp_path)))
    assert "rejoinder models fetch" in line


def test_a_cache_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = rejoinder("models", "fetch", REJOINDER_MODELS__CACHE_DIR=str(tmp_path / "file" / "cache"))
    assert done.returncode == 2
    assert "cache" in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_an_unknown_setting_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "rejoinder.toml").write_text("[server]\nprot = 1\n")
    assert "server.prot" in refused(rejoinder("doctor", cwd=tmp_path))


def test_a_public_address_without_a_key_is_one_line() -> None:
    assert "REJOINDER_AUTH__SECRET" in refused(rejoinder("serve", "--host", "0.0.0.0", "--port", "0"))


def test_a_hook_that_is_not_there_is_one_line() -> None:
    assert "nowhere" in refused(rejoinder("serve", "--port", "0", "--hook", "nowhere:reply"))


def test_a_token_without_a_key_is_one_line() -> None:
    assert "REJOINDER_AUTH__SECRET" in refused(rejoinder("token"))


@pytest.mark.parametrize("name", ["absent.wav", "text.wav", "stereo8.wav", "."])
def test_a_recording_that_cannot_be_read_is_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("no sound in here")
    (tmp_path / "stereo8.wav").write_bytes(
        b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x02\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x08\0data\0\0\0\0"
    )
    assert name.strip(".") in refused(rejoinder("listen", str(tmp_path / name)))


def test_saying_into_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    assert "nowhere" in refused(rejoinder("say", "hello", "-o", str(tmp_path / "nowhere" / "out.wav")))


def test_a_token_is_minted() -> None:
    done = rejoinder("token", "--json", "--subject", "shop", "--ttl", "60", REJOINDER_AUTH__SECRET="s" * 40)
    told = json.loads(done.stdout)
    assert told["expires_in_s"] == 60
    assert told["token"].count(".") == 2


def test_text_is_spoken_and_understood_again(tmp_path: Path) -> None:
    out = tmp_path / "out.wav"
    told = json.loads(rejoinder("say", "We open at nine in the morning.", "-o", str(out), "--json").stdout)
    pcm, rate_hz = read_wav(out)
    assert told["seconds"] == pytest.approx(len(pcm) / rate_hz, abs=0.01)
    heard = json.loads(rejoinder("listen", str(out), "--json").stdout)
    assert "in the morning" in heard["text"].lower()


def test_a_dry_run_shows_what_would_be_spoken() -> None:
    done = rejoinder("say", "--dry-run", "--json", "It costs $3.50. Order 4271 is here!")
    clauses = [json.loads(line) for line in done.stdout.splitlines()]
    assert "three dollars" in clauses[0]["spoken"]
    assert "".join(clause["text"] for clause in clauses) == "It costs $3.50. Order 4271 is here!"


def test_a_dry_run_names_the_source_of_each_word() -> None:
    text = "**It** is $3.50."
    (clause,) = [json.loads(line) for line in rejoinder("say", "--dry-run", "--json", text).stdout.splitlines()]
    assert [text[word["start"] : word["end"]] for word in clause["words"]] == ["It", "is", *["$3.50"] * 5]


def test_a_dry_run_reads_a_pipe_in_the_language_asked_for() -> None:
    done = rejoinder("say", "--dry-run", "--language", "zh", stdin="你好！价格是¥5。")
    assert done.stdout.splitlines() == ["[0:3] 你好！", "[3:9] 价格是五元。"]


def test_a_dry_run_says_what_is_silent() -> None:
    assert rejoinder("say", "--dry-run", "-", stdin="🎉").stdout.splitlines() == ["[0:1] (silent)"]


def test_a_pipe_that_is_no_text_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agent", "say", "--dry-run"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8:strict"},
        input=b"\xff\xfe",
        capture_output=True,
        timeout=100,
    )
    assert done.returncode == 2
    assert done.stderr.decode().startswith("error: standard input: expected utf-8 text")


def test_noise_is_heard_as_nothing(tmp_path: Path) -> None:
    write_wav(tmp_path / "buzz.wav", voice(2.0), 16_000)
    assert json.loads(rejoinder("listen", str(tmp_path / "buzz.wav"), "--json").stdout)["text"] == ""


def test_a_typed_conversation_from_a_pipe() -> None:
    done = rejoinder("console", stdin="Where is order 4271?\ngoodbye\n")
    assert "four two seven one is on its way" in done.stdout
    assert done.stdout.strip().endswith("-- agent hung up")
    assert done.returncode == 0


def test_models_and_doctor_speak_json() -> None:
    names = {model["name"]: model for model in json.loads(rejoinder("models", "--json").stdout)}
    assert names["moonshine-base-en"]["installed"]
    checks = {check["name"]: check for check in json.loads(rejoinder("doctor", "--testing", "--json").stdout)}
    assert checks["chromium"]["state"] == "ok"


def test_an_old_python_is_one_line(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo "Python 3.9.2" && exit 0\nexit 1\n')
    old.chmod(0o755)
    done = subprocess.run(
        ["make", "--no-print-directory", "serve", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    first = done.stderr.strip().splitlines()[0]
    assert "3.11" in first
    assert "Python 3.9.2" in first
