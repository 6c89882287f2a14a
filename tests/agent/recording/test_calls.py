"""Which calls are recorded, and what is in the files of one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.cli import run
from agent.errors import ConfigError, ProtocolError
from agent.events import CallFault, ReplyFinished, UserTranscript
from agent.nlu.hook import Hangup, SwitchVoice, Turn
from agent.recording.calls import RecordedCall, Recordings
from agent.recording.packets import Kind, read_log
from agent.recording.timeline import read_timeline
from agent.replay.loop import VirtualLoop
from agent.testing import voice
from tests.agent.recording.studio import Line, in_virtual_time, parts, settings, stereo

ANNOUNCEMENT = "This call is recorded."


class Hook:
    """Says `answer`; remembers turns."""

    def __init__(self, *answer: Any) -> None:
        self.answer = answer or ("We open at nine.",)
        self.turns: list[Turn] = []

    async def reply(self, turn: Turn) -> AsyncIterator[Any]:
        self.turns.append(turn)
        if turn.kind == "greeting":
            yield "Hello there."
            return
        for item in self.answer:
            yield item


def rows_of(folder: Path, call_id: str = "call_1") -> list[dict[str, Any]]:
    return read_timeline((folder / f"{call_id}.events.jsonl").read_bytes())[1]


def test_a_recorded_call_leaves_sound_events_and_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(loop: VirtualLoop) -> None:
        async with Recordings(settings(tmp_path, format="wav")) as recordings:
            line = Line(loop, recordings, await parts(Hook(), "what are your hours"))
            await line.quiet(2.0)
            await line.hear(voice(1.5, 24_000))
            await line.quiet(4.0)
            line.call.press("7")
            await line.quiet(0.5)
            await line.hang_up()

    in_virtual_time(work, monkeypatch)
    samples = stereo(tmp_path / "call_1.wav")
    assert len(samples) == round(8.0 * 16_000)
    rows = rows_of(tmp_path)
    loud = [int(np.flatnonzero(np.abs(samples[:, side].astype(int)) > 500)[0]) / 16 for side in (0, 1)]
    begun = next(row["t_ms"] for row in rows if row["event"] == "PlayoutStarted")
    assert loud[1] == pytest.approx(begun, abs=5)
    assert loud[0] == pytest.approx(2_000, abs=5)
    final = next(row for row in rows if row["event"] == "UserTranscript" and row["final"])
    assert final["text"] == "what are your hours"
    heard = [row["heard"] for row in rows if row["event"] == "ReplyFinished"]
    assert heard[:2] == ["Hello there.", "We open at nine."]
    assert [row["event"] for row in rows[-2:]] == ["CallEnded", "RecordingEnded"]
    assert rows[-1]["t_ms"] == 8_000
    log = read_log((tmp_path / "call_1.packets").read_bytes())
    assert log.whole
    assert (log.head["call"], log.head["caller"], log.head["transport"]) == ("call_1", "+49", "pcm")
    kinds = [record.kind for record in log.records]
    assert (kinds.count(Kind.PACKET), kinds.count(Kind.TICK), kinds.count(Kind.COMMAND)) == (400, 400, 1)


def test_only_calls_that_ask_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(loop: VirtualLoop) -> None:
        async with Recordings(settings(tmp_path, mode="asked")) as recordings:
            common = await parts(Hook())
            lines = [
                Line(loop, recordings, common, call_id="call_asks", asked=True),
                Line(loop, recordings, common, call_id="call_silent"),
            ]
            for line in lines:
                await line.quiet(0.5)
                await line.hang_up()

    in_virtual_time(work, monkeypatch)
    assert {path.name.split(".")[0] for path in tmp_path.iterdir()} == {"call_asks"}


def test_recording_that_is_off_cannot_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "never"

    async def work(loop: VirtualLoop) -> None:
        async with Recordings(settings(folder, mode="off")) as recordings:
            common = await parts(Hook())
            with pytest.raises(ProtocolError) as caught:
                Line(loop, recordings, common, asked=True)
            assert caught.value.field == "record"
            line = Line(loop, recordings, common)
            await line.hang_up()
            assert not isinstance(line.call, RecordedCall)

    in_virtual_time(work, monkeypatch)
    assert not folder.exists()


def test_two_calls_at_once_have_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(loop: VirtualLoop) -> None:
        async with Recordings(settings(tmp_path, format="wav")) as recordings:
            first = Line(loop, recordings, await parts(Hook("First answer."), "first"), call_id="call_a")
            second = Line(loop, recordings, await parts(Hook("Second answer."), "second"), call_id="call_b")
            for number in range(300):
                for line, begin in ((first, 60), (second, 90)):
                    speaks = begin <= number < begin + 50
                    await line.hear(voice(0.02, 24_000) if speaks else np.zeros(480, np.int16))
            await first.hang_up()
            await second.quiet(1.0)
            await second.hang_up()

    in_virtual_time(work, monkeypatch)
    for call_id, said in (("call_a", "first"), ("call_b", "second")):
        finals = [
            row["text"] for row in rows_of(tmp_path, call_id) if row["event"] == "UserTranscript" and row["final"]
        ]
        assert finals == [said]
    assert len(stereo(tmp_path / "call_a.wav")) == 300 * 320
    assert len(stereo(tmp_path / "call_b.wav")) == 350 * 320


def test_a_full_disk_leaves_the_call_as_it_is_and_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(loop: VirtualLoop) -> list[Any]:
        async with Recordings(settings(tmp_path, min_free_mb=1 << 40)) as recordings:
            line = Line(loop, recordings, await parts(Hook(), "what are your hours"))
            # The writer's thread has its own time: let it look at the disk.
            while not any(isinstance(event, CallFault) for event in line.events):
                await asyncio.to_thread(time.sleep, 0.01)
            await line.quiet(2.0)
            await line.hear(voice(1.5, 24_000))
            await line.quiet(4.0)
            await line.hang_up()
            return line.events

    events = in_virtual_time(work, monkeypatch)
    (fault,) = [event for event in events if isinstance(event, CallFault)]
    assert fault.part == "recording"
    assert "to stay free" in fault.message
    assert [e.heard for e in events if isinstance(e, ReplyFinished)] == ["Hello there.", "We open at nine."]
    assert list(tmp_path.iterdir()) == []


def test_a_recording_has_its_longest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(loop: VirtualLoop) -> None:
        async with Recordings(settings(tmp_path, format="wav", max_hours=2 / 3600)) as recordings:
            line = Line(loop, recordings, await parts(Hook()))
            await line.quiet(5.0)
            assert line.call.end_reason is None
            await line.hang_up()

    in_virtual_time(work, monkeypatch)
    assert len(stereo(tmp_path / "call_1.wav")) == 2 * 16_000
    assert rows_of(tmp_path)[-1]["reason"] == "recording.max_hours"


def test_a_call_that_crashes_leaves_finished_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(loop: VirtualLoop) -> None:
        async with Recordings(settings(tmp_path)) as recordings:
            line = Line(loop, recordings, await parts(Hook()))
            await line.quiet(1.0)
            monkeypatch.setattr(line.call, "on_replaced", lambda port: 1 / 0)
            line.call.hangup("peer closed")
            with pytest.raises(ZeroDivisionError):
                await line.task

    in_virtual_time(work, monkeypatch)
    assert len(stereo(tmp_path / "call_1.ogg")) == 48_000
    assert read_log((tmp_path / "call_1.packets").read_bytes()).whole


@pytest.mark.parametrize("greet", [True, False])
def test_the_announcement_comes_first_and_until_it_was_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, greet: bool
) -> None:
    hook = Hook()

    async def work(loop: VirtualLoop) -> list[Any]:
        async with Recordings(settings(tmp_path, announcement=ANNOUNCEMENT)) as recordings:
            line = Line(loop, recordings, await parts(hook, "hours", "again", conversation={"greet": greet}))
            await line.quiet(0.4)
            line.call.type_text("I know")
            await line.quiet(6.0)
            line.call.type_text("again")
            await line.quiet(6.0)
            await line.hang_up()
            return line.events

    events = in_virtual_time(work, monkeypatch)
    replies = [event for event in events if isinstance(event, ReplyFinished)]
    assert replies[0].status == "cancelled"
    assert (replies[0].heard + " " + replies[0].unheard).strip().startswith(ANNOUNCEMENT)
    assert replies[1].heard == f"{ANNOUNCEMENT}\nWe open at nine."
    assert replies[2].heard == "We open at nine."
    assert [turn.kind for turn in hook.turns] == [*(["greeting"] if greet else []), "speech", "speech"]


def test_what_the_hook_does_is_no_command_of_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(loop: VirtualLoop) -> None:
        async with Recordings(settings(tmp_path)) as recordings:
            line = Line(loop, recordings, await parts(Hook(SwitchVoice("other"), "Bye.", Hangup()), "hours"))
            await line.quiet(2.0)
            line.call.configure(silence_ms=700)
            line.call.type_text("bye")
            line.call.cancel_reply()
            line.call.respond()
            await line.quiet(4.0)
            await line.task
            assert line.call.voice == "other"

    in_virtual_time(work, monkeypatch)
    log = read_log((tmp_path / "call_1.packets").read_bytes())
    done = [record.body["do"] for record in log.records if record.kind is Kind.COMMAND]
    assert done == ["configure", "type", "cancel", "respond"]
    assert log.records[-1].body == {"reason": "agent hung up"}


def test_words_are_in_the_files_of_the_call_and_never_in_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)

    async def work(loop: VirtualLoop) -> list[Any]:
        async with Recordings(settings(tmp_path)) as recordings:
            line = Line(loop, recordings, await parts(Hook(), "my number is secret"))
            await line.quiet(2.0)
            await line.hear(voice(1.5, 24_000))
            await line.quiet(3.0)
            await line.hang_up()
            return line.events

    events = in_virtual_time(work, monkeypatch)
    assert any(isinstance(event, UserTranscript) for event in events)
    assert "secret" in (tmp_path / "call_1.events.jsonl").read_text()
    assert "secret" not in caplog.text


async def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"recording\.folder"):
        async with Recordings(settings(tmp_path / "file" / "recordings")):
            pass


def test_a_server_with_such_a_folder_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REJOINDER_RECORDING__MODE", "always")
    monkeypatch.setenv("REJOINDER_RECORDING__FOLDER", str(tmp_path / "file" / "recordings"))
    assert run(["serve", "--port", "0"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("error: recording.folder: cannot write to")


def test_a_key_in_the_settings_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rejoinder.toml").write_text('[recording]\nkey = "x"\n')
    assert run(["--config", str(tmp_path / "rejoinder.toml"), "doctor"]) == 2
    assert "REJOINDER_RECORDING__KEY" in capsys.readouterr().err


def test_every_line_of_the_events_is_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(loop: VirtualLoop) -> None:
        async with Recordings(settings(tmp_path)) as recordings:
            line = Line(loop, recordings, await parts(Hook("Line one.\nLine \u2028 two.")))
            line.call.type_text("a \u2028 b \u0085 c")
            await line.quiet(4.0)
            await line.hang_up()

    in_virtual_time(work, monkeypatch)
    for text in (tmp_path / "call_1.events.jsonl").read_bytes().split(b"\n")[:-1]:
        assert isinstance(json.loads(text), dict)
