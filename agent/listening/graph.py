"""The Silero VAD graph, as it really is: names, shapes and what it silently accepts.

Inputs `input` float32 [B, 64 + 512] (64 samples of the window before, then 512 new ones, 16 kHz), `state` float32
[2, B, 128], `sr` int64 scalar; outputs `output` float32 [B, 1], `stateN` float32 [2, B, 128].
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime

from agent.errors import EngineError, ModelMissing
from agent.media.frames import HEARING_HZ

__all__ = ["CONTEXT_SAMPLES", "MODEL_FILE", "STATE_WIDTH", "WINDOW_SAMPLES", "Float32", "SileroGraph", "VadGraph"]

Float32 = npt.NDArray[np.float32]

MODEL_FILE = "silero_vad.onnx"
"""Name of the graph inside the `silero-vad` model folder."""

WINDOW_SAMPLES = 512
"""New samples a run; the graph takes other lengths without complaint and answers nonsense."""

CONTEXT_SAMPLES = 64
"""Samples of the window before, put in front of each window."""

STATE_WIDTH = 128


class VadGraph(Protocol):
    """What the engine's thread runs. Called on that thread only."""

    def run(self, windows: Float32, state: Float32) -> tuple[Float32, Float32]:
        """Windows float32 [B, 576] in -1..1 and state [2, B, 128] to probabilities [B] and the next state."""
        ...


class SileroGraph:
    """The ONNX graph (inputs `input`, `state`, `sr`; outputs `output`, `stateN`), single-threaded, without spinning.

    Raises:
        ModelMissing: the file is not there.
        EngineError: the file is not this graph.
    """

    def __init__(self, file: Path) -> None:
        if not file.is_file():
            raise ModelMissing(f"{file} is missing; run `rejoinder models fetch`")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # Batch sizes change from run to run; an arena would keep the largest of each shape.
        options.enable_cpu_mem_arena = False
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(file), sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as exc:  # the runtime raises a class of its own for every kind of damage
            raise EngineError(f"{file} cannot be loaded: {exc}") from exc
        names = {node.name for node in self._session.get_inputs()}
        if names != {"input", "state", "sr"}:
            raise EngineError(f"{file}: expected inputs input, state, sr; found {', '.join(sorted(names))}")
        self._rate = np.array(HEARING_HZ, dtype=np.int64)

    def run(self, windows: Float32, state: Float32) -> tuple[Float32, Float32]:
        output, after = self._session.run(["output", "stateN"], {"input": windows, "state": state, "sr": self._rate})
        return output[:, 0], after
