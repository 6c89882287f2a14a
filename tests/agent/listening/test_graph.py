from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from agent.errors import EngineError, ModelMissing
from agent.listening.graph import SileroGraph
from tests.agent.listening.hearing import Clip


def test_a_batch_gives_bit_for_bit_what_each_gives_alone(model_file: Path, clips: dict[str, Clip]) -> None:
    graph = SileroGraph(model_file)
    windows = np.stack([clip.pcm[3000 : 3000 + 576] for clip in clips.values()]).astype(np.float32) / 32768
    state = np.random.default_rng(5).standard_normal((2, len(windows), 128)).astype(np.float32) * 0.1
    together, after = graph.run(windows, state)
    assert len(np.unique(together)) > len(windows) // 2
    for i in range(len(windows)):
        alone, after_alone = graph.run(windows[i : i + 1], state[:, i : i + 1])
        assert alone[0] == together[i]
        assert np.array_equal(after_alone[:, 0], after[:, i])


def test_speech_is_told_from_silence(model_file: Path, clips: dict[str, Clip]) -> None:
    graph = SileroGraph(model_file)

    def highest(source: np.ndarray) -> float:
        state, best = np.zeros((2, 1, 128), np.float32), 0.0
        for at in range(0, len(source) - 576, 512):
            probability, state = graph.run(source[None, at : at + 576].astype(np.float32) / 32768, state)
            best = max(best, float(probability[0]))
        return best

    assert highest(clips["jfk"].pcm) > 0.95
    assert highest(np.zeros(32_000, np.int16)) < 0.2


def test_a_missing_file_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="rejoinder models fetch"):
        SileroGraph(tmp_path / "silero_vad.onnx")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "silero_vad.onnx"
    file.write_bytes(b"not a graph")
    with pytest.raises(EngineError, match=r"silero_vad\.onnx cannot be loaded"):
        SileroGraph(file)


def test_another_graph_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.onnx"
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        "other",
        [value("x", onnx.TensorProto.FLOAT, [1])],
        [value("y", onnx.TensorProto.FLOAT, [1])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 16)])
    model.ir_version = 8
    onnx.save(model, file)
    with pytest.raises(EngineError, match="expected inputs input, state, sr; found x"):
        SileroGraph(file)
