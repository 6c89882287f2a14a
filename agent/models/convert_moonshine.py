"""Moonshine base-en, from the carrier's two `.ort` files to three ONNX files that run fast on plain onnxruntime.

In the carrier, the decoder's int8 weights pass through Cast, Mul and Add nodes outside the `If` that chooses between
first and later steps, so every token dequantises all 41 M weights again (36 ms a token on one Zen 4 core). Here those
constants are computed once, the two branches become separate graphs, and the weights are quantised anew in the form
that MatMulInteger takes: about eight times faster.

    encoder.onnx  input_values f32 [1, N] (16 kHz mono) -> hidden states f32 [1, T, 416]
    cross.onnx    encoder_hidden_states f32 [1, T, 416] -> 16 cross-attention keys and values f32 [1, 8, T, 52]
    decoder.onnx  input_ids i64 [1, L], past_* -> logits f32 [1, L, 32768], present_*; L >= 1, the past may be empty

Run as a program, since it needs 600 MB for ten seconds that a server should not keep:
`python -m agent.models.convert_moonshine SOURCE_FOLDER TARGET_FOLDER [--check]`.
`--check` makes nothing and compares TARGET with the source models on a fixed signal; see `check`.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from agent.models.ortfile import read_ort_graph

__all__ = ["check", "convert"]

OPSET = 14
IR_VERSION = 9
"""Old enough for every onnxruntime that pyproject.toml allows."""
HEADS, HEAD_SIZE = 8, 52
BOS = 1
SAMPLE_RATE_HZ = 16_000
LEAST_COSINE = 0.98
"""Requantising moves the outputs a little (0.998 and up was measured); a wrong graph moves them to about 0."""

Constants = dict[str, TensorProto]


def convert(source: Path, target: Path) -> None:
    """Write encoder.onnx, cross.onnx and decoder.onnx into `target`.

    The bytes depend on nothing but the sources and the code of onnx and onnxruntime that writes them.

    Args:
        source: folder with encoder_model.ort and decoder_model_merged.ort.
        target: an existing folder; intermediate files are made and removed there.

    Raises:
        ValueError: the sources are not the graphs this was written for.
        ImportError: this onnxruntime cannot read `.ort` files from Python.
        OSError: a file cannot be read or written.
    """
    encoder = read_ort_graph(source / "encoder_model.ort")
    constants, nodes = _fold(encoder.node, encoder.initializer)
    _write(target / "encoder.onnx", nodes, encoder.input, encoder.output, constants, ["MatMul"])

    merged = read_ort_graph(source / "decoder_model_merged.ort")
    constants, rest = _fold(merged.node, merged.initializer)
    if [node.op_type for node in rest] != ["If"]:
        raise ValueError("decoder_model_merged.ort: expected one If node after folding its constants")
    branches = {attribute.name: attribute.g for attribute in rest[0].attribute}
    inputs = [value for value in merged.input if value.name != "use_cache_branch"]
    cross_outputs = [value for value in merged.output if ".encoder." in value.name]
    decoder_outputs = [value for value in merged.output if ".encoder." not in value.name]

    first_constants, first_nodes = _branch(branches["else_branch"], rest[0], constants)
    cross_nodes = _cross_attention(first_nodes, cross_outputs, first_constants)
    _write(target / "cross.onnx", cross_nodes, inputs, cross_outputs, first_constants, ["MatMul"])

    later_constants, later_nodes = _branch(branches["then_branch"], rest[0], constants)
    _write(target / "decoder.onnx", later_nodes, inputs, decoder_outputs, later_constants, ["MatMul", "Gather"])


def _fold(nodes: Iterable[NodeProto], initializers: Iterable[TensorProto]) -> tuple[Constants, list[NodeProto]]:
    """Compute the nodes that only read constants; the constants, and the nodes that are left."""
    constants = {tensor.name: tensor for tensor in initializers}
    left = []
    for node in nodes:
        if node.op_type in _FOLDABLE and all(name in constants for name in node.input):
            inputs = [numpy_helper.to_array(constants[name]) for name in node.input]
            result = np.ascontiguousarray(_FOLDABLE[node.op_type](node, inputs))
            constants[node.output[0]] = numpy_helper.from_array(result, node.output[0])
        else:
            left.append(node)
    return constants, left


def _cast(node: NodeProto, inputs: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return inputs[0].astype(helper.tensor_dtype_to_np_dtype(node.attribute[0].i))


def _transpose(node: NodeProto, inputs: Sequence[NDArray[Any]]) -> NDArray[Any]:
    # The output head is the embedding table turned round: folding gives it a constant of its own to quantise.
    return inputs[0].transpose(list(node.attribute[0].ints) if node.attribute else None)


_FOLDABLE: dict[str, Callable[[NodeProto, Sequence[NDArray[Any]]], NDArray[Any]]] = {
    "Cast": _cast,
    "Mul": lambda _, inputs: inputs[0] * inputs[1],
    "Add": lambda _, inputs: inputs[0] + inputs[1],
    "Transpose": _transpose,
}


def _branch(branch: GraphProto, choice: NodeProto, outer: Constants) -> tuple[Constants, list[NodeProto]]:
    """One branch of the `If` as nodes of its own, its outputs under the names that the `If` gives them."""
    constants, nodes = _fold(branch.node, [*outer.values(), *branch.initializer])
    names = zip(branch.output, choice.output, strict=True)
    renames = [helper.make_node("Identity", [own.name], [name]) for own, name in names if own.name != name]
    return constants, nodes + renames


def _cross_attention(
    nodes: Iterable[NodeProto], outputs: Iterable[ValueInfoProto], constants: Constants
) -> list[NodeProto]:
    """Keys and values of cross attention straight from the encoder: [1, T, 416] x W -> [1, T, 8, 52] -> [1, 8, T, 52].

    Rebuilt by hand: the original takes the batch size from the decoder's hidden state and so needs all of the decoder.
    """
    makers = {name: node for node in nodes for name in node.output}
    constants["hd"] = numpy_helper.from_array(np.array([0, 0, HEADS, -1], np.int64), "hd")
    built = []
    for output in outputs:
        node = makers[output.name]
        while not (node.op_type == "MatMul" and node.input[0] == "encoder_hidden_states"):
            node = makers[node.input[0]]
        product, split = f"{output.name}/m", f"{output.name}/r"
        built += [
            helper.make_node("MatMul", ["encoder_hidden_states", node.input[1]], [product]),
            helper.make_node("Reshape", [product, "hd"], [split]),
            helper.make_node("Transpose", [split], [output.name], perm=[0, 2, 1, 3]),
        ]
    return built


def _write(
    path: Path,
    nodes: Sequence[NodeProto],
    inputs: Iterable[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    constants: Constants,
    quantised_ops: list[str],
) -> None:
    """Drop what the outputs do not need, quantise the weights to int8 and save."""
    needed = {value.name for value in outputs}
    alive = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            alive.append(node)
            needed.update(node.input)
    alive.reverse()
    read = {name for node in alive for name in node.input}
    graph = helper.make_graph(
        alive,
        "g",
        [value for value in inputs if value.name in read],
        list(outputs),
        [constants[name] for name in sorted(read) if name in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    plain = path.with_suffix(".fp32.onnx")
    try:
        onnx.save(model, plain)
        quantize_dynamic(plain, path, weight_type=QuantType.QInt8, per_channel=True, op_types_to_quantize=quantised_ops)
    finally:
        plain.unlink(missing_ok=True)


def check(source: Path, target: Path) -> None:
    """Compare the converted models with their sources on a fixed signal, encoder and two decoder steps.

    Raises:
        ValueError: an output points elsewhere than the source's (cosine under 0.98).
    """
    signal = _test_signal()
    encoder, merged = _session(source / "encoder_model.ort"), _session(source / "decoder_model_merged.ort")
    want = encoder.run(None, {"input_values": signal})[0]
    got = _session(target / "encoder.onnx").run(None, {"input_values": signal})[0]
    _compare("encoder", got, want)

    # Both decoders read the same hidden states, so that each part is judged alone.
    cross, decoder = _session(target / "cross.onnx"), _session(target / "decoder.onnx")
    empty = np.zeros((1, HEADS, 0, HEAD_SIZE), np.float32)
    past = {item.name: empty for item in merged.get_inputs() if item.name.startswith("past_key_values")}
    ids = np.array([[BOS]], np.int64)
    names = [item.name.replace("present", "past_key_values") for item in merged.get_outputs()]
    wanted = dict(
        zip(
            names,
            merged.run(
                None,
                {"input_ids": ids, "encoder_hidden_states": want, "use_cache_branch": np.array([False]), **past},
            ),
            strict=True,
        )
    )
    made = dict(
        zip(
            (item.name.replace("present", "past_key_values") for item in cross.get_outputs()),
            cross.run(None, {"encoder_hidden_states": want}),
            strict=True,
        )
    )
    for name, value in made.items():
        _compare(name, value, wanted[name])
    own = {item.name: empty for item in decoder.get_inputs() if ".decoder." in item.name}
    _compare("decoder, first step", decoder.run(None, {"input_ids": ids, **made, **own})[0], wanted[names[0]])

    past = {name: value for name, value in wanted.items() if name in past}
    step = np.array([[int(wanted[names[0]][0, -1].argmax())]], np.int64)
    later = merged.run(
        [merged.get_outputs()[0].name],
        {"input_ids": step, "encoder_hidden_states": want, "use_cache_branch": np.array([True]), **past},
    )[0]
    own = {item.name: past[item.name] for item in decoder.get_inputs() if ".decoder." in item.name}
    _compare("decoder, later step", decoder.run(None, {"input_ids": step, **made, **own})[0], later)


def _test_signal() -> NDArray[np.float32]:
    """Two seconds that sound a little like a vowel: harmonics of a gliding pitch with syllables; f32 [1, 32000]."""
    time = np.arange(2 * SAMPLE_RATE_HZ) / SAMPLE_RATE_HZ
    phase = 2 * np.pi * (120 * time + 15 * time**2)
    voiced = sum(np.sin(k * phase) / k for k in range(1, 12))
    return np.asarray(0.1 * voiced * np.sin(np.pi * 4 * time) ** 2, np.float32)[None]


def _session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _compare(what: str, got: NDArray[Any], want: NDArray[Any]) -> None:
    if got.shape != want.shape:
        raise ValueError(f"{what}: shape {got.shape}, expected {want.shape}")
    a, b = got.ravel().astype(np.float64), want.ravel().astype(np.float64)
    cosine = float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b) + 1e-12))
    if not cosine >= LEAST_COSINE:
        raise ValueError(f"{what}: cosine with the source model is {cosine:.3f}, expected at least {LEAST_COSINE}")


def _not_preprocessed(record: logging.LogRecord) -> bool:
    # The advice to preprocess first: shapes here are dynamic on purpose, and preprocessing would change the bytes.
    return "pre-processing before quantization" not in record.getMessage()


def main(argv: Sequence[str] | None = None) -> int:
    """Convert, then check if asked; one line on stderr and exit code 1 when it cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m agent.models.convert_moonshine")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--check", action="store_true", help="only compare what is in TARGET with SOURCE")
    args = parser.parse_args(argv)
    logging.getLogger().addFilter(_not_preprocessed)
    try:
        if args.check:
            check(args.source, args.target)
        else:
            convert(args.source, args.target)
    except (ValueError, ImportError, OSError, KeyError) as exc:
        sys.stderr.write(f"{type(exc).__name__}: {exc}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
