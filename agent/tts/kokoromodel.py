"""The blocking half of the Kokoro engine: Kokoro-82M int8 on onnxruntime, in one thread. No asyncio here.

Mandarin is read with jieba (words), pypinyin (tones) and misaki (sounds); English, also inside Mandarin, with the
reader of the embedded voice, whose alphabet is the same.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agent.asr.protocol import Word
from agent.errors import EngineError, EnvironmentFault, ModelMissing
from agent.media.frames import SPEAKING_HZ
from agent.tts.english import EnglishReader
from agent.tts.onnxgraph import with_output
from agent.tts.plain import word_spans

__all__ = ["LANGUAGE_OF_PREFIX", "KokoroModel"]

DURATIONS = "/encoder/Round_output_0"
"""Length of each phoneme in frames, in the export the manifest names."""

MAX_PHONEMES = 500
"""The style table has 510 rows, one for each length."""

STYLE_VALUES = 256

LANGUAGE_OF_PREFIX = {"z": "zh", "a": "en", "b": "en"}
"""A voice's name begins with its language and accent; Japanese voices (`j`) need a reader that is not installed."""

_HAN = re.compile(r"[\u4e00-\u9fff]+")
_MARKS = str.maketrans("，、。！？；：（）“”‘’《》「」『』…—", ',,.!?;:()""\'\'""""""…—')

log = logging.getLogger(__name__)


MODEL_VERSION = "1.0"


class KokoroModel:
    """All voices over one session. Safe to call from several threads at once.

    Args:
        folder: holds kokoro.onnx, vocab.json and voices/*.bin.

    Raises ModelMissing or EnvironmentFault, saying what to install.
    """

    def __init__(self, folder: Path) -> None:
        try:
            import jieba
            from misaki.zh import ZHG2P
            from pypinyin import Style, lazy_pinyin
        except ImportError as exc:
            raise EnvironmentFault(f"Kokoro needs the zh extra ({exc}): pip install 'rejoinder[zh]'") from exc
        import onnxruntime as ort

        self.version = f"{MODEL_VERSION}-{importlib.metadata.version('misaki')}"
        """Of the weights, and of what turns text into phonemes: both make the sound."""
        jieba.setLogLevel(logging.WARNING)
        self._cut = jieba.lcut
        self._pinyin = lazy_pinyin
        self._tone_style = Style.TONE3
        self._ipa = ZHG2P.py2ipa
        self._english = EnglishReader()
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.log_severity_level = 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            model = (folder / "kokoro.onnx").read_bytes()
            vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
            self._styles = {path.stem: _style(path) for path in sorted((folder / "voices").glob("*.bin"))}
            self._session = ort.InferenceSession(with_output(model, DURATIONS), options, ["CPUExecutionProvider"])
        except Exception as exc:
            raise ModelMissing(f"Kokoro's files in {folder} are unusable ({exc}); rejoinder models fetch zh") from exc
        self._vocabulary: dict[str, int] = vocabulary.get("vocab", vocabulary)
        self.voices = {name: LANGUAGE_OF_PREFIX[name[0]] for name in self._styles if name[0] in LANGUAGE_OF_PREFIX}
        """Voice name to language."""

    def speak(self, text: str, voice: str, rate: float) -> tuple[npt.NDArray[np.float32], list[Word]]:
        """Synthesise plain text of at most a clause.

        Returns (wave, words): float32 [n] at 24 kHz, full scale 1.0; all words of `text` in order, timed from the
        start of the wave. The wave is empty if nothing of the text can be read.

        Raises EngineError: the engine failed on this text.
        """
        try:
            units = self._read(text, self.voices[voice])
            return self._render(units, self._styles[voice], rate)
        except Exception as exc:
            raise EngineError(f"Kokoro failed on a text of {len(text)} characters: {type(exc).__name__}") from exc

    def _read(self, text: str, language: str) -> list[tuple[str, str]]:
        """(word, its phonemes with the blank before it), for each word as `word_spans` cuts them."""
        if language == "en":
            return [(word, f" {sounds}" if sounds else "") for word, sounds in self._english.read(text)]
        sounds, heads = self._mandarin(text)
        units: list[tuple[str, str]] = []
        for start, end in word_spans(text):
            word = text[start:end]
            if start in sounds:
                blank = " " if start in heads else ""
                marks = "".join(c for c in word[1:].translate(_MARKS) if c in self._vocabulary)
                units.append((word, blank + sounds[start] + marks))
            else:
                read = " ".join(p for _, p in self._english.read(word.translate(_MARKS)) if p)
                units.append((word, f" {read}" if read else ""))
        return units

    def _mandarin(self, text: str) -> tuple[dict[int, str], set[int]]:
        """Phonemes of each ideograph by its place, and the places where words begin."""
        sounds: dict[int, str] = {}
        heads: set[int] = set()
        for run in _HAN.finditer(text):
            at = run.start()
            for word in self._cut(run.group(), cut_all=False):
                heads.add(at)
                syllables = self._pinyin(word, style=self._tone_style, neutral_tone_with_five=True)
                if len(syllables) != len(word):
                    raise ValueError("pypinyin gave another number of syllables than characters")
                for i, syllable in enumerate(syllables):
                    sounds[at + i] = self._ipa(syllable).replace("\u032f", "")
                at += len(word)
        return sounds, heads

    def _render(
        self, units: list[tuple[str, str]], style: npt.NDArray[np.float32], rate: float
    ) -> tuple[npt.NDArray[np.float32], list[Word]]:
        ids = [0]
        spans: list[tuple[int, int]] = []
        for _, phonemes in units:
            known = [self._vocabulary[p] for p in phonemes if p in self._vocabulary]
            if len(ids) == 1 and known[:1] == [self._vocabulary[" "]]:
                known = known[1:]
            known = known[: MAX_PHONEMES + 1 - len(ids)]
            spans.append((len(ids), len(ids) + len(known)))
            ids.extend(known)
        ids.append(0)
        if len(ids) < 3:
            return np.zeros(0, np.float32), [Word(word, 0.0, 0.0) for word, _ in units]
        feed = {
            "tokens": np.asarray([ids], np.int64),
            "style": style[min(len(ids) - 2, len(style) - 1)][None],
            "speed": np.asarray([rate], np.float32),
        }
        outputs: list[Any] = self._session.run(None, feed)
        wave: npt.NDArray[np.float32] = np.ravel(outputs[0]).astype(np.float32)
        edges = np.concatenate(([0.0], np.cumsum(np.maximum(np.ravel(outputs[1]), 1.0), dtype=np.float64)))
        edges *= len(wave) / SPEAKING_HZ / edges[-1]
        return wave, [Word(w, float(edges[a]), float(edges[b])) for (w, _), (a, b) in zip(units, spans, strict=True)]


def _style(path: Path) -> npt.NDArray[np.float32]:
    return np.fromfile(path, np.float32).reshape(-1, STYLE_VALUES)
