"""Last-resort voices: stand-in programs show how failures end; the real ones, where installed, must speak."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest

from agent.errors import EngineError, EnvironmentFault, UnsupportedLanguage, UnsupportedVoice
from agent.tts import process
from agent.tts.process import ProcessSynthesizer
from agent.tts.protocol import Speech, Style, Voice

ESPEAK = """#!{python}
import io, sys, time, os, wave
args = sys.argv[1:]
if "--version" in args:
    print("eSpeak NG text-to-speech: 9.9  Data at: /x"); sys.exit()
if "--voices" in args:
    print("Pty Language Age/Gender VoiceName File Other")
    for tag in ("en-gb", "en-us", "cmn", "fr-fr"):
        print(f" 5  {{tag}}  --/M  Name  file")
    sys.exit()
text = sys.stdin.buffer.read().decode()
open({log!r}, "a").write(" ".join(args) + "|" + text + "\\n")
if "hang" in text:
    open({pid!r}, "w").write(str(os.getpid())); time.sleep(60)
if "crash" in text:
    sys.exit(3)
if "flood" in text:
    while True: sys.stdout.buffer.write(b"x" * 65536)
if "noise" in text:
    sys.stdout.buffer.write(b"not a wave file at all, not even nearly so"); sys.exit()
import math, array
out = io.BytesIO()
with wave.open(out, "wb") as w:
    w.setnchannels(1); w.setsampwidth(2); w.setframerate(22050)
    w.writeframes(array.array("h", [int(8000 * math.sin(i / 10)) for i in range(22050)]).tobytes())
sys.stdout.buffer.write(out.getvalue())
"""


class StandIn:
    def __init__(self, folder: Path) -> None:
        import sys

        self.log = folder / "log"
        self.pid = folder / "pid"
        program = folder / "espeak-ng"
        program.write_text(ESPEAK.format(python=sys.executable, log=str(self.log), pid=str(self.pid)))
        program.chmod(0o755)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.setenv("PATH", str(tmp_path))
    return StandIn(tmp_path)


async def speak(engine: ProcessSynthesizer, text: str, language: str = "en", voice: str = "") -> list[Speech]:
    return [piece async for piece in engine.stream(text, Voice(voice, language), Style())]


async def test_it_learns_version_voices_and_languages(stand_in: StandIn) -> None:
    assert process.installed() == ("espeak",)
    info = (await ProcessSynthesizer.load("espeak")).info
    assert info.version.startswith("9.9")
    assert set(info.languages) == {"en", "zh", "fr"}
    assert info.voices[0] == "en-us"


async def test_text_goes_by_standard_input_and_comes_back_at_24_khz(stand_in: StandIn) -> None:
    engine = await ProcessSynthesizer.load("espeak")
    (piece,) = await speak(engine, "--help me; $(rm -rf /) 'quoted' [[fO@]]", "en")
    argv, _, text = stand_in.log.read_text().strip().partition("|")
    assert "help" not in argv
    assert text == "--help me; $(rm -rf /) 'quoted' fO@"
    assert len(piece.pcm) == pytest.approx(24_000, rel=0.08)
    assert [word.text for word in piece.words] == text.split()


async def test_the_default_voice_of_a_language_is_used(stand_in: StandIn) -> None:
    engine = await ProcessSynthesizer.load("espeak")
    await speak(engine, "你好", "zh-CN")
    assert "-v cmn" in stand_in.log.read_text()
    with pytest.raises(UnsupportedLanguage):
        await speak(engine, "hola", "es")
    with pytest.raises(UnsupportedVoice):
        await speak(engine, "hello", "en", "heart")
    with pytest.raises(UnsupportedLanguage):
        await speak(engine, "hello", "en", "fr-fr")


@pytest.mark.parametrize("text", ["crash", "noise", "flood"])
async def test_a_program_that_misbehaves_is_an_engine_error(stand_in: StandIn, text: str) -> None:
    engine = await ProcessSynthesizer.load("espeak")
    with pytest.raises(EngineError):
        await speak(engine, text)
    assert await speak(engine, "fine")


async def test_a_program_that_hangs_is_killed_at_the_deadline(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await ProcessSynthesizer.load("espeak")
    monkeypatch.setattr(process, "DEADLINE_S", 2.0)
    with pytest.raises(EngineError, match="longer than"):
        await speak(engine, "hang")
    with pytest.raises(ProcessLookupError):
        os.kill(int(stand_in.pid.read_text()), 0)


async def test_a_cancelled_clause_kills_its_program(stand_in: StandIn) -> None:
    engine = await ProcessSynthesizer.load("espeak")
    os.mkfifo(stand_in.pid)
    task = asyncio.create_task(speak(engine, "hang"))
    pid = int(await asyncio.to_thread(stand_in.pid.read_text))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_nothing_to_say_starts_nothing(stand_in: StandIn) -> None:
    engine = await ProcessSynthesizer.load("espeak")
    assert await speak(engine, "🎉 …") == []
    assert not stand_in.log.exists()


async def test_a_missing_program_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert process.installed() == ()
    with pytest.raises(EnvironmentFault, match="apt-get install flite"):
        await ProcessSynthesizer.load("flite")


async def test_installed_programs_really_speak() -> None:
    for kind in process.installed():
        engine = await ProcessSynthesizer.load(kind)
        pieces = await speak(engine, "Thank you for calling. How can I help you?")
        seconds = sum(len(piece.pcm) for piece in pieces) / engine.info.sample_rate_hz
        assert 1.5 < seconds < 6, kind
        for piece in pieces:
            assert int(np.argmax(np.abs(piece.pcm) > 104)) < 360, kind
