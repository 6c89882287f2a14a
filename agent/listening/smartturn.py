"""Smart Turn v3: the end of a turn from its sound, by a small Whisper encoder.

Input `input_features` float32 [1, 80, 800], the log-mel of the last 8 s, padded with silence in front; output
`logits` float32 [1, 1], which despite its name is a probability already. Optional: everything works without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from agent.errors import EngineError, ModelMissing
from agent.listening.logmel import log_mel
from agent.media.frames import HEARING_HZ, Pcm

__all__ = ["MODEL_FILE", "WINDOW_SAMPLES", "SmartTurn"]

MODEL_FILE = "smart-turn.onnx"
"""Name of the graph inside the `smart-turn` model folder."""

WINDOW_SAMPLES = 8 * HEARING_HZ
"""What the graph reads: the last 8 s."""

TAIL_SAMPLES = HEARING_HZ // 10
"""Silence put behind what was heard: the graph knows turns with 200 ms of it, and is asked after 100. Over the pauses
of bench/turns this lifts the AUC by up to 0.06."""

VARIANCE_FLOOR = 1e-7


class SmartTurn:
    """The graph, single-threaded. `probability` may be called from any number of threads.

    Raises:
        ModelMissing: the file is not there.
        EngineError: the file is not this graph.
    """

    def __init__(self, file: Path) -> None:
        if not file.is_file():
            raise ModelMissing(f"{file} is missing; run `rejoinder models fetch turn`")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(file), sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as exc:  # the runtime raises a class of its own for every kind of damage
            raise EngineError(f"{file} cannot be loaded: {exc}") from exc
        names = [node.name for node in self._session.get_inputs()]
        if names != ["input_features"]:
            raise EngineError(f"{file}: expected the input input_features; found {', '.join(names)}")

    def probability(self, pcm: Pcm) -> float:
        """That a turn which sounds like this is over, 0 to 1.

        Args:
            pcm: int16 [n] at 16 kHz, the turn so far with the pause after it; only the last 8 s are read.

        Raises:
            EngineError: the graph failed or answered with something that is not a number.
        """
        samples = np.zeros(WINDOW_SAMPLES, np.float32)
        newest = pcm[-(WINDOW_SAMPLES - TAIL_SAMPLES) :].astype(np.float32) / np.float32(32768)
        end = WINDOW_SAMPLES - TAIL_SAMPLES
        samples[end - len(newest) : end] = newest
        samples = (samples - samples.mean()) / np.sqrt(samples.var() + np.float32(VARIANCE_FLOOR))
        try:
            logits = self._session.run(None, {"input_features": log_mel(samples)[np.newaxis]})[0]
        except Exception as exc:  # see above
            raise EngineError(f"the end-of-turn model failed: {exc}") from exc
        probability = float(logits[0, 0])
        if not 0.0 <= probability <= 1.0:
            raise EngineError(f"the end-of-turn model answered {probability}, not a probability")
        return probability
