"""Moonshine base-en on onnxruntime: English, with partials by verified re-reading.

The encoder reads the whole segment each time; the decoder does not: it checks the previous text in one pass and writes
on from the first token that the new audio changed. Reading five seconds again costs about 80 ms of a core, 75 of them
the encoder's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from agent.asr.protocol import EngineInfo
from agent.asr.reading import Reader, Reading, StopSignal
from agent.asr.rereading import RereadingRecognizer
from agent.asr.segment import RATE_HZ
from agent.config import Settings
from agent.core.pool import WorkerPool
from agent.errors import ModelMissing
from agent.models import require
from agent.odds import log_odds, probability

__all__ = ["MoonshineModel", "MoonshineRecognizer"]

MODEL = "moonshine-base-en"
VERSION = "base-en-0.1.4-int8"

BOS, EOS = 1, 2
HEADS, HEAD_SIZE = 8, 52

MAX_TOKENS_PER_S = 6.5
"""Faster than anybody speaks; stops a decoder that repeats itself."""
MIN_TOKENS = 6

NO_SPEECH = 0.9
"""Probability of an empty text above which any text is an invention. Measured: 0.94 and more on noise, hum, line tones
and clicks that were read as words (whole sentences, some of them obscene); 0.08 and less on single spoken digits, about
0.5 and less on whole clips. Chosen on the same clips."""

PIECE_SPACE = "\u2581".encode()
CLAUSE_MARKS = (b",", b";", b":", b"-", b"...")
USUAL_CLAUSE_ODDS = -3.0
"""Log odds of such a mark after the last word, in the middle over the pauses of bench/turns: no evidence either way."""

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Decoded:
    tokens: list[int]
    confidence: float
    end_of_turn: float
    no_speech: float


class MoonshineModel:
    """The three sessions and the tokens; a Reader that any number of threads may share.

    Args:
        folder: holds encoder.onnx, cross.onnx, decoder.onnx and tokens.bin.

    Raises:
        ModelMissing: a file is absent or not what it should be.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self._tokens = _read_tokens(folder / "tokens.bin")
            self._encoder, self._cross, self._decoder = (
                ort.InferenceSession(folder / f"{name}.onnx", _options(), providers=["CPUExecutionProvider"])
                for name in ("encoder", "cross", "decoder")
            )
        except Exception as exc:  # onnxruntime raises its own types, one an error code
            raise ModelMissing(f"{folder} is unusable ({exc}): run `rejoinder models fetch`") from exc
        self._cross_names = [_as_input(out.name) for out in self._cross.get_outputs()]
        self._past_names = [_as_input(out.name) for out in self._decoder.get_outputs()[1:]]
        self._clause_marks = [n for n, token in enumerate(self._tokens) if token.strip(PIECE_SPACE) in CLAUSE_MARKS]

    def read(self, pcm: npt.NDArray[np.int16], known: Reading, stop: StopSignal) -> Reading:
        """Read int16 [n], 16 kHz mono, n from 4,000 to 400,000. See `Reader`."""
        options = ort.RunOptions()
        options.log_severity_level = 4  # an interrupted run is not an error worth a line on stderr

        def interrupt() -> None:
            options.terminate = True

        stop.on_set(interrupt)
        try:
            decoded = self._decode(pcm.astype(np.float32) / 32768.0, known.tokens, options, stop)
        except Exception:
            # An interrupted run raises the same error as a broken one.
            stop.check()
            raise
        text = self.text(decoded.tokens)
        if _invented(text, decoded.no_speech):
            return Reading()
        return Reading(text, tuple(decoded.tokens), decoded.confidence, decoded.end_of_turn)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of token ids. A character spread over several tokens is whole, or left out while it is not."""
        spelled = b"".join(self._tokens[token] for token in tokens)
        return spelled.replace(PIECE_SPACE, b" ").decode("utf-8", errors="ignore").strip()

    def _decode(self, samples: Array, known: Sequence[int], options: ort.RunOptions, stop: StopSignal) -> _Decoded:
        limit = max(MIN_TOKENS, int(len(samples) / RATE_HZ * MAX_TOKENS_PER_S))
        (hidden,) = self._encoder.run(None, {"input_values": samples[None]}, options)
        keys = self._cross.run(None, {"encoder_hidden_states": hidden}, options)
        cross = dict(zip(self._cross_names, keys, strict=True))
        past = {name: np.zeros((1, HEADS, 0, HEAD_SIZE), np.float32) for name in self._past_names}

        def step(ids: Sequence[int]) -> tuple[Array, list[Array]]:
            stop.check()
            logits, *present = self._decoder.run(
                None, {"input_ids": np.array([ids], np.int64), **cross, **past}, options
            )
            return logits[0], present

        # One pass over the known text: row i holds what follows its first i tokens.
        kept = list(known[:limit])
        logits, present = step([BOS, *kept])
        no_speech = float(_softmax(logits[0])[EOS])
        # A segment is only read when a detector heard speech in it, and the model is quick to find nothing.
        logits[0, EOS] = -np.inf
        best = logits.argmax(axis=-1)
        agreed = next((n for n, token in enumerate(kept) if best[n] != token), len(kept))
        tokens = kept[:agreed]
        scores = [self._score(row) for row in logits[: agreed + 1]]
        past = {name: value[:, :, : agreed + 1] for name, value in zip(self._past_names, present, strict=True)}
        token = int(best[agreed])
        while token != EOS and len(tokens) < limit:
            tokens.append(token)
            logits, present = step([token])
            past = dict(zip(self._past_names, present, strict=True))
            scores.append(self._score(logits[-1]))
            token = int(logits[-1].argmax())
        spoken = len(tokens)
        while spoken and not any(char.isalnum() for char in self.text(tokens[spoken - 1 : spoken])):
            spoken -= 1
        confidence = float(np.mean([score[0] for score in scores[: max(1, len(tokens))]]))
        # The text ends where its audio does, so that a full stop is likely behind any word; a comma is not.
        end_of_turn = probability(USUAL_CLAUSE_ODDS - log_odds(scores[spoken][1]))
        return _Decoded(tokens, confidence, end_of_turn, no_speech)

    def _score(self, logits: Array) -> tuple[float, float]:
        """Probability of the likeliest token, and of a comma or another mark inside sentences."""
        shares = _softmax(logits)
        return float(shares.max()), float(shares[self._clause_marks].sum())


class MoonshineRecognizer(RereadingRecognizer):
    """The Recognizer over MoonshineModel. English only; `hints` are not used, the model takes none.

    `Hypothesis.end_of_turn` falls with the probability of a comma after the last word: uncalibrated evidence, to be
    fused with others. Over the pauses of bench/turns its AUC is 0.70; that of a full stop's probability is 0.64.
    """

    info = EngineInfo("moonshine", VERSION, RATE_HZ, ("en",), streams=True)

    def __init__(self, model: MoonshineModel, pool: WorkerPool, *, partial_every_ms: int) -> None:
        super().__init__(pool, partial_every_ms=partial_every_ms)
        self._model = model

    @classmethod
    async def load(cls, settings: Settings, pool: WorkerPool) -> Self:
        """Load the model in a thread of the pool and read a second of noise, so that no caller waits for either.

        Raises:
            ModelMissing: the model files are absent or damaged.
        """
        model = await pool.run(_load, settings, owner=MODEL)
        return cls(model, pool, partial_every_ms=settings.asr.partial_every_ms)

    def reader(self, language: str, hints: Sequence[str]) -> Reader:  # noqa: ARG002
        """The model, which all streams share."""
        return self._model


def _load(settings: Settings) -> MoonshineModel:
    model = MoonshineModel(require(MODEL, settings.models))
    noise = np.random.default_rng(0).integers(-300, 300, RATE_HZ, np.int16)
    model.read(noise, Reading(), StopSignal())
    return model


def _options() -> ort.SessionOptions:
    options = ort.SessionOptions()
    # One thread: the second core is better spent on another call. Spinning would steal it from the media loop.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Every segment has a shape of its own, and an arena keeps the largest of each: 715 MB against 250.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    return options


def _as_input(output: str) -> str:
    return output.replace("present", "past_key_values")


def _read_tokens(path: Path) -> list[bytes]:
    """Tokens, each after its length: one byte below 128, else two, low seven bits first."""
    packed = path.read_bytes()
    tokens: list[bytes] = []
    at = 0
    while at < len(packed):
        length = packed[at]
        at += 1
        if length >= 128:
            length += packed[at] * 128 - 128
            at += 1
        tokens.append(packed[at : at + length])
        at += length
    return tokens


def _softmax(logits: Array) -> Array:
    shares: Array = np.exp(logits - logits.max())
    shares /= shares.sum()
    return shares


def _invented(text: str, no_speech: float) -> bool:
    """Whether the text was made of noise: nothing was said, music notes, or no word at all."""
    return no_speech > NO_SPEECH or "\u266a" in text or not any(char.isalnum() for char in text)
