"""Last-resort voices: espeak-ng and flite, each clause one short-lived process.

Robotic, instant and independent of all that can break in this process. The text goes in by standard input, never as
an argument; what comes out is bounded in size and time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import soxr

from agent.asr.protocol import EngineInfo
from agent.errors import EngineError, EnvironmentFault, UnsupportedLanguage, UnsupportedVoice
from agent.language import primary_language
from agent.media.frames import SPEAKING_HZ
from agent.tts.pieces import split_pieces
from agent.tts.plain import plain_text, speakable
from agent.tts.protocol import Speech, Style, Voice
from agent.tts.shaping import SHAPING_VERSION, shape
from agent.tts.wav import read_wav

__all__ = ["ProcessSynthesizer", "installed"]

Kind = Literal["espeak", "flite"]

DEADLINE_S = 5.0
"""For one clause; both take about 10 ms."""

KILL_DEADLINE_S = 1.0
MAX_PROCESSES = 4
MAX_OUTPUT_BYTES = 16 * 1024 * 1024
"""Six minutes of 22,050 Hz mono; a clause has at most 30 s."""

FIRST_CHARS = 160
LATER_CHARS = 240
WORDS_PER_MINUTE = 165

TARGET_RMS = 10 ** (-21 / 20)
"""The level of the embedded voice over a whole piece, so that a change of engine is not a change of loudness."""

MIN_RATE, MAX_RATE = 0.5, 2.0

_BINARIES: Mapping[Kind, str] = {"espeak": "espeak-ng", "flite": "flite"}
_PACKAGES: Mapping[Kind, str] = {"espeak": "espeak-ng", "flite": "flite"}
_ESPEAK_NAMES = {"en": "en-us", "zh": "cmn"}
"""Where espeak-ng's name of a language is not its ISO 639-1 code."""


@dataclass(frozen=True, slots=True)
class _Program:
    """One installed program and what it offers: voice name to language, the first of a language being its default."""

    kind: Kind
    path: str
    version: str
    voices: Mapping[str, str]


def installed() -> tuple[Kind, ...]:
    """Which of the two are on this machine, the better understood first."""
    return tuple(kind for kind in ("espeak", "flite") if shutil.which(_BINARIES[kind]))


class ProcessSynthesizer:
    """A synthesiser over one such program. Make one with `load`."""

    def __init__(self, program: _Program) -> None:
        self._program = program
        self._slots = asyncio.Semaphore(MAX_PROCESSES)
        languages = tuple(dict.fromkeys(program.voices.values()))
        version = f"{program.version}+{SHAPING_VERSION}"
        self._info = EngineInfo(program.kind, version, SPEAKING_HZ, languages, True, tuple(program.voices))

    @classmethod
    async def load(cls, kind: Kind) -> ProcessSynthesizer:
        """Ask the installed program for its version and voices.

        Raises EnvironmentFault if it is not installed or does not answer.
        """
        path = shutil.which(_BINARIES[kind])
        if path is None:
            raise EnvironmentFault(f"{_BINARIES[kind]} is not installed; apt-get install {_PACKAGES[kind]}")
        try:
            if kind == "espeak":
                version = _version(await _output([path, "--version"]))
                voices = _espeak_voices(await _output([path, "--voices"]))
            else:
                version = _version(await _output([path, "--version"]))
                voices = dict.fromkeys(_flite_voices(await _output([path, "-lv"])), "en")
        except EngineError as exc:
            raise EnvironmentFault(f"{path} does not work ({exc}); reinstall {_PACKAGES[kind]}") from exc
        if not voices:
            raise EnvironmentFault(f"{path} has no voices; reinstall {_PACKAGES[kind]}")
        return cls(_Program(kind, path, version, voices))

    @property
    def info(self) -> EngineInfo:
        """What the engine is."""
        return self._info

    async def stream(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
        """Speak a clause; see `Synthesizer.stream`. An empty voice name takes the language's default.

        Raises UnsupportedLanguage, UnsupportedVoice, EngineError.
        """
        name = self._voice(voice)
        rate = min(max(style.rate, MIN_RATE), MAX_RATE)
        began_s = 0.0
        for piece in split_pieces(plain_text(text), first_chars=FIRST_CHARS, later_chars=LATER_CHARS):
            if not speakable(piece):
                continue
            async with self._slots:
                wav = await self._run(piece, name, rate)
            speech = _shaped(wav, piece, rate, began_s)
            if speech is not None:
                began_s += len(speech.pcm) / SPEAKING_HZ
                yield speech

    async def close(self) -> None:
        """Nothing is kept between clauses."""

    def _voice(self, voice: Voice) -> str:
        language = primary_language(voice.language)
        voices = self._program.voices
        if voice.name:
            if voice.name not in voices:
                raise UnsupportedVoice(f"{self._program.kind} has no voice {voice.name!r}")
            if voices[voice.name] != language:
                raise UnsupportedLanguage(f"voice {voice.name!r} does not speak {voice.language!r}")
            return voice.name
        for name, spoken in voices.items():
            if spoken == language:
                return name
        raise UnsupportedLanguage(f"{self._program.kind} does not speak {voice.language!r}")

    async def _run(self, text: str, voice: str, rate: float) -> bytes:
        path = self._program.path
        if self._program.kind == "espeak":
            speed = str(round(WORDS_PER_MINUTE * rate))
            return await _output([path, "--stdin", "--stdout", "-b", "1", "-z", "-v", voice, "-s", speed], text)
        # flite seeks in its output to write the length, so it needs a file.
        with tempfile.TemporaryDirectory(prefix="rejoinder-") as folder:
            out = Path(folder) / "speech.wav"
            stretch = f"duration_stretch={1 / rate:.3f}"
            await _output([path, "-voice", voice, "--setf", stretch, "-f", "-", "-o", str(out)], text)
            return await asyncio.to_thread(_read_bounded, out)


def _shaped(wav: bytes, text: str, rate: float, began_s: float) -> Speech | None:
    wave, hz = read_wav(wav)
    if hz != SPEAKING_HZ:
        wave = soxr.resample(wave, hz, SPEAKING_HZ)
    rms = float(np.sqrt(np.mean(np.square(wave)))) if len(wave) else 0.0
    gain = TARGET_RMS / rms if rms > 1e-4 else 1.0
    return shape(_float32(wave), text, None, gain=gain, rate=rate, began_s=began_s)


def _float32(wave: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(wave, dtype=np.float32)


def _read_bounded(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_OUTPUT_BYTES:
            raise EngineError(f"flite wrote more than {MAX_OUTPUT_BYTES} bytes")
        return path.read_bytes()
    except OSError as exc:
        raise EngineError(f"flite wrote no speech: {exc.strerror}") from exc


async def _output(argv: list[str], text: str = "") -> bytes:
    """Run a program with `text` as its standard input and return its standard output. It never outlives the call.

    Raises EngineError: it cannot be started, fails, takes longer than 5 s or writes more than 16 MiB.
    """
    name = Path(argv[0]).name
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"},
        )
    except OSError as exc:
        raise EngineError(f"{name} cannot be started: {exc.strerror}") from exc
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(text.encode())
                await process.stdin.drain()
            process.stdin.close()
            parts: list[bytes] = []
            size = 0
            while part := await process.stdout.read(65536):
                size += len(part)
                if size > MAX_OUTPUT_BYTES:
                    raise EngineError(f"{name} wrote more than {MAX_OUTPUT_BYTES} bytes")
                parts.append(part)
            status = await process.wait()
    except TimeoutError as exc:
        raise EngineError(f"{name} took longer than {DEADLINE_S:g} s") from exc
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(KILL_DEADLINE_S):
                    await process.wait()
    if status != 0 and not (parts and argv[-1] in ("--version", "-lv")):
        raise EngineError(f"{name} ended with status {status}")
    return b"".join(parts)


def _version(answer: bytes) -> str:
    words = answer.decode("utf-8", "replace").replace(":", " ").split()
    for before, word in itertools.pairwise(words):
        if before in ("text-to-speech", "version"):
            return word
    return "unknown"


def _flite_voices(answer: bytes) -> list[str]:
    _, _, names = answer.decode("utf-8", "replace").partition(":")
    found = names.split()
    # slt is a grown-up 16 kHz voice; kal, the first, is 8 kHz.
    return sorted(found, key=lambda name: (name != "slt", name == "kal"))


def _espeak_voices(answer: bytes) -> dict[str, str]:
    """Voice name (espeak's own language tag) to ISO 639-1 language, the default of each language first."""
    tags = [line.split()[1] for line in answer.decode("utf-8", "replace").splitlines()[1:] if len(line.split()) > 3]
    named = {ours: theirs for ours, theirs in _ESPEAK_NAMES.items() if theirs in tags}
    voices = {theirs: ours for ours, theirs in named.items()}
    for tag in sorted(set(tags), key=lambda tag: (len(tag), tag)):
        language = next((ours for ours, theirs in named.items() if tag == theirs), primary_language(tag))
        voices.setdefault(tag, language)
    return voices
