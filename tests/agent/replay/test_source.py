"""Recorded calls on disk: found, decrypted, and refused with one line."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from agent.cli import run
from agent.config import RecordingSettings
from agent.errors import ConfigError
from agent.recording.packets import Kind, head_of, record, tick_record
from agent.replay.source import export, load
from tests.agent.recording.studio import ogg_samples, wav_samples
from tests.agent.replay.test_replay import record_call

KEY = base64.b64encode(bytes(range(32))).decode()


def sealed(folder: Path, monkeypatch: pytest.MonkeyPatch, **how: Any) -> RecordingSettings:
    record_call(folder, monkeypatch, key=KEY, **how)
    return RecordingSettings(key=KEY)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["call_1", "call_1.ogg", "call_1.packets", "call_1.events.jsonl"])
def test_any_file_of_a_call_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    record_call(tmp_path, monkeypatch)
    call = load(tmp_path / name, RecordingSettings())
    assert call.log.head["call"] == "call_1"
    assert call.events is not None


def test_a_call_without_its_events_is_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record_call(tmp_path, monkeypatch)
    (tmp_path / "call_1.events.jsonl").unlink()
    assert load(tmp_path / "call_1", RecordingSettings()).events is None


@pytest.mark.parametrize("fmt", ["ogg", "wav"])
def test_an_encrypted_call_is_replayed_and_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fmt: str) -> None:
    recording = sealed(tmp_path, monkeypatch, format=fmt)
    for path in tmp_path.iterdir():
        assert b"one more thing" not in path.read_bytes()
    assert load(tmp_path / f"call_1.{fmt}.sealed", recording).log.whole
    written = export(tmp_path / "call_1.packets.sealed", recording, tmp_path / "open")
    assert [path.name for path in written] == ["call_1.packets", "call_1.events.jsonl", f"call_1.{fmt}"]
    data = written[-1].read_bytes()
    samples = wav_samples(data) if fmt == "wav" else ogg_samples(data)
    ended = json.loads(written[1].read_text().splitlines()[-1])["t_ms"]
    assert len(samples) == ended * (16 if fmt == "wav" else 48)
    with pytest.raises(ConfigError, match="cannot write"):
        export(tmp_path / "call_1", recording, tmp_path / "open")


def test_a_missing_or_other_key_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed(tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match="set REJOINDER_RECORDING__KEY"):
        load(tmp_path / "call_1", RecordingSettings())
    other = base64.b64encode(bytes(32)).decode()
    with pytest.raises(ConfigError, match="another key"):
        load(tmp_path / "call_1", RecordingSettings(key=other))  # type: ignore[arg-type]


def test_a_recording_that_was_cut_off_is_refused_unless_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record_call(tmp_path, monkeypatch)
    path = tmp_path / "call_1.packets"
    path.write_bytes(path.read_bytes()[:-5_000])
    with pytest.raises(ConfigError, match="cut short after"):
        load(path, RecordingSettings())
    assert not load(path, RecordingSettings(), partial=True).log.whole


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("call_1.packets", b""),
        ("call_1.packets", b"RIFF\x00\x00\x00\x00WAVE"),
        ("call_1.packets", b"RJPACKET\x00\x01\x00\x00"),
        ("call_1.packets", b"RJSEALED\x01"),
        ("song.mp3", b"ID3"),
        ("nowhere/call_1.packets", None),
    ],
)
def test_a_foreign_file_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert run(["replay", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert path.name.split(".")[0] in said.err


def test_the_command_prints_what_would_have_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record_call(tmp_path, monkeypatch, format="wav")
    hook = tmp_path / "hook.py"
    hook.write_text("from agent import on_turn\n\n\n@on_turn\nasync def reply(turn):\n    yield 'Good day.'\n")
    outputs = []
    for _ in range(2):
        assert run(["replay", str(tmp_path / "call_1.wav"), "--json", "--hook", f"{hook}:reply"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    told = json.loads(outputs[0])
    assert told["call"] == "call_1"
    # The buzz that stands for speech holds no words for the real recogniser; what was typed and pressed comes again.
    texts = [(entry["who"], entry["text"]) for entry in told["replayed"]]
    assert ("caller", "one more thing") in texts
    assert ("agent", "Good day.") in texts
    assert ("key", "#") in texts
    assert told["differences"]
    assert run(["replay", str(tmp_path / "call_1.wav"), "--hook", f"{hook}:reply"]) == 0
    assert "Good day." in capsys.readouterr().out


HEAD: dict[str, Any] = {
    "version": 1, "call": "call_1", "channel": "browser", "language": "en", "caller": None, "transport": "rtp",
    "rate_hz": 24_000, "encoding": "opus/48000/2", "payload_type": 111, "events": {}, "announcement": "", "clock": 0.0,
}  # fmt: skip


def forge(folder: Path, head: dict[str, Any], events: str = "", *commands: dict[str, Any]) -> Path:
    """A recording that nobody recorded: ten ticks and what `commands` ask for."""
    records = [tick_record(tick, tick * 0.02) for tick in range(10)]
    records += [record(Kind.COMMAND, 0.2, json.dumps(command).encode()) for command in commands]
    records.append(record(Kind.END, 0.3, b'{"reason": "peer closed"}'))
    (folder / "call_1.packets").write_bytes(head_of({**HEAD, **head}) + b"".join(records))
    if events:
        (folder / "call_1.events.jsonl").write_text('{"format": "rejoinder.events", "version": 1}\n' + events + "\n")
    return folder / "call_1.packets"


@pytest.mark.parametrize(
    ("head", "events"),
    [
        ({"clock": "abc"}, ""),
        ({"clock": None}, ""),
        ({"clock": float("nan")}, ""),
        ({"clock": float("inf")}, ""),
        ({"rate_hz": float("inf")}, ""),
        ({"channel": {}}, ""),
        ({"channel": "fax"}, ""),
        ({"language": "tlh"}, ""),
        ({}, '{"event": "DtmfPressed", "t_ms": "abc", "digit": "1"}'),
        ({}, '{"event": "DtmfPressed", "t_ms": 1e999, "digit": "1"}'),
        ({}, '{"event": "TurnTimings", "t_ms": 1, "response_id": "r", "response_ms": [1]}'),
    ],
)
def test_a_forged_recording_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], head: dict[str, Any], events: str
) -> None:
    assert run(["replay", str(forge(tmp_path, head, events))]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_what_a_caller_typed_does_nothing_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: tuple[str, ...]
) -> None:
    told = json.dumps({"event": "CallEnded", "t_ms": 1, "reason": "\x1b[2J\ud800"})
    path = forge(tmp_path, {}, told, {"do": "type", "text": "\x1b]0;gotcha\x07\ud83d"})
    assert run(["replay", str(path), *how]) == 0
    said = capsys.readouterr().out
    assert "gotcha" in said
    assert all(char.isprintable() or char == "\n" for char in said)


@pytest.mark.parametrize("value", ["-1", "nan", "x", "1e9"])
def test_a_stated_time_has_bounds(value: str) -> None:
    with pytest.raises(SystemExit) as caught:
        run(["replay", "call_1", f"--hook-ms={value}"])
    assert caught.value.code == 2
