from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from agent.errors import EngineError, ModelMissing
from agent.listening.smartturn import MODEL_FILE, SmartTurn


def graph(folder: Path, answer: float, *, name: str = "input_features") -> Path:
    """A stand-in of the real graph's shape: the mean of its input times nothing, plus the answer."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("ReduceMean", [name], ["mean"], axes=[1, 2], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "answer"], ["flat"]),
        helper.make_node("Unsqueeze", ["flat", "axis"], ["logits"]),
    ]
    constants = [
        helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0]),
        helper.make_tensor("answer", TensorProto.FLOAT, [1], [answer]),
        helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 80, 800])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 1])]
    model = helper.make_model(
        helper.make_graph(nodes, "turn", inputs, outputs, constants), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 8
    file = folder / MODEL_FILE
    onnx.save(model, str(file))
    return file


@pytest.mark.parametrize("samples", [0, 1600, 8 * 16_000, 20 * 16_000])
def test_any_length_of_turn_is_read(tmp_path: Path, samples: int) -> None:
    pcm = np.random.default_rng(1).integers(-3000, 3000, samples).astype(np.int16)
    assert SmartTurn(graph(tmp_path, 0.75)).probability(pcm) == pytest.approx(0.75, abs=1e-4)


@pytest.mark.parametrize("answer", [1.5, -0.2, float("nan")])
def test_an_answer_that_is_no_probability_is_an_error(tmp_path: Path, answer: float) -> None:
    with pytest.raises(EngineError, match="not a probability"):
        SmartTurn(graph(tmp_path, answer)).probability(np.zeros(16_000, np.int16))


def test_a_missing_file_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="rejoinder models fetch turn"):
        SmartTurn(tmp_path / MODEL_FILE)


def test_damage_and_another_graph_are_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no graph")
    with pytest.raises(EngineError, match="cannot be loaded"):
        SmartTurn(broken)
    with pytest.raises(EngineError, match="input_features"):
        SmartTurn(graph(tmp_path, 0.5, name="other"))
