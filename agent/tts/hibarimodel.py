"""The blocking half of the hibari engine: text to wave and word times, in one thread. No asyncio here.

Drives the parts of the hibari-tts package (its pronunciation, its vocoder) with an onnxruntime session of our own:
single-threaded, never spinning, without a memory arena, and with the model's phoneme durations as an extra output,
from which the word times come.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agent.asr.protocol import Word
from agent.errors import EngineError, EnvironmentFault, UnsupportedVoice
from agent.media.frames import SPEAKING_HZ
from agent.tts.english import EnglishReader
from agent.tts.onnxgraph import with_output

__all__ = ["HibariModel", "installed_voices"]

DURATIONS = "/Cast_32_output_0"
"""Integer length of each phoneme, before the encoder's output is spread over frames, in hibari-tts 0.2.1."""

MAX_PHONEMES = 400
"""What the model was trained on; longer runs lose their melody and take quadratic time."""

SEED = 0
"""The breath noise of the vocoder: the same text always gives the same samples, so that caches and tests agree."""

log = logging.getLogger(__name__)


def installed_voices() -> tuple[str, ...]:
    """Voices whose model file is on this machine. Nothing is downloaded."""
    from hibari import voices

    return tuple(name for name in voices.VOICES if _voice_path(name) is not None)


def _voice_path(name: str) -> Path | None:
    from hibari import voices

    try:
        return Path(voices.voice_path(name, download_missing=False))
    except (ValueError, FileNotFoundError):
        return None


class HibariModel:
    """One voice. Safe to call from several threads at once: it keeps no state between calls.

    Raises UnsupportedVoice if the voice's file is not here, EnvironmentFault if the package is missing or damaged.
    """

    def __init__(self, voice: str) -> None:
        try:
            import onnxruntime as ort
            from hibari import dsp, tts, voices
        except ImportError as exc:
            raise EnvironmentFault(f"the voice engine is missing ({exc}); install it: pip install hibari-tts") from exc
        path = _voice_path(voice)
        if path is None:
            raise UnsupportedVoice(f"voice {voice!r} is not installed; there is {', '.join(installed_voices())}")
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.log_severity_level = 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.voice = voice
        model = path.read_bytes()
        try:
            self._session = ort.InferenceSession(with_output(model, DURATIONS), options, ["CPUExecutionProvider"])
            self._timed = True
        except Exception as exc:
            # Another build of the voice may name its tensors otherwise: it still speaks, words are timed by letters.
            log.warning("voice %s tells no phoneme durations: %s", voice, type(exc).__name__)
            try:
                self._session = ort.InferenceSession(model, options, ["CPUExecutionProvider"])
            except Exception as broken:
                raise EnvironmentFault(f"{path} is not a usable model ({broken}); reinstall hibari-tts") from broken
            self._timed = False
        self._vocabulary: dict[str, int] = json.loads((Path(tts.ASSETS) / "vocab.json").read_text(encoding="utf-8"))
        self._reader = EnglishReader(british=voices.VOICES[voice]["british"])
        self._vocode = dsp.synth

    def speak(self, text: str, rate: float) -> list[tuple[npt.NDArray[np.float32], list[Word] | None]]:
        """Synthesise plain text.

        Returns one (wave, words) for each run of at most 400 phonemes, usually one: wave float32 [n] at 24 kHz, full
        scale 1.0; words are timed from the start of that wave, and together name all words of `text` in order. Words
        is None when they must be timed by letters. Text that the voice cannot read gives an empty list.

        Raises EngineError: the package failed on this text.
        """
        try:
            return [self._render(run, rate) for run in _runs(self._reader.read(text))]
        except Exception as exc:
            raise EngineError(f"hibari failed on a text of {len(text)} characters: {type(exc).__name__}") from exc

    def _render(self, run: list[tuple[str, str]], rate: float) -> tuple[npt.NDArray[np.float32], list[Word] | None]:
        ids = [0]
        spans: list[tuple[int, int]] = []
        for number, (_, phonemes) in enumerate(run):
            if number and phonemes:
                ids.append(self._vocabulary[" "])
            first = len(ids)
            ids.extend(self._vocabulary[p] for p in phonemes if p in self._vocabulary)
            spans.append((first, len(ids)))
        ids.append(0)
        if len(ids) < 3:
            return np.zeros(0, np.float32), [Word(word, 0.0, 0.0) for word, _ in run]
        feed = {"ids": np.asarray([ids], np.int64), "speed": np.asarray([rate], np.float32)}
        outputs: list[Any] = self._session.run(None, feed)
        spectrum = [o[0] for o in outputs[:6]]
        wave: npt.NDArray[np.float32] = self._vocode(*spectrum, np.random.default_rng(SEED))
        if not self._timed:
            return wave, None
        edges = np.concatenate(([0.0], np.cumsum(np.ravel(outputs[6]), dtype=np.float64)))
        edges *= len(wave) / SPEAKING_HZ / edges[-1]
        words = [Word(w, float(edges[a]), float(edges[b])) for (w, _), (a, b) in zip(run, spans, strict=True)]
        return wave, words


def _runs(units: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Split into runs the model can take, at words. Words without a phoneme join the run before them."""
    runs: list[list[tuple[str, str]]] = [[]]
    length = 0
    for word, phonemes in units:
        phonemes = phonemes[:MAX_PHONEMES]
        if phonemes and length and length + len(phonemes) + 1 > MAX_PHONEMES:
            runs.append([])
            length = 0
        runs[-1].append((word, phonemes))
        length += len(phonemes) + 1 if phonemes else 0
    return [run for run in runs if any(p for _, p in run)]
