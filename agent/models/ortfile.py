"""Reading a model in ONNX Runtime's own file format (`.ort`) back into an ONNX graph.

onnxruntime writes such files and runs them, but offers no way back. Its Python package does contain the accessors
generated from the format's flatbuffer schema (`onnxruntime/core/flatbuffers/schema/ort.fbs`), which this module uses.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

__all__ = ["read_ort_graph"]

DIM_VALUE = 1
"""`DimensionValueType.VALUE` of the schema: the dimension is a number."""


def read_ort_graph(path: Path) -> GraphProto:
    """The main graph of an `.ort` file, its nodes in an order in which they can run.

    Raises:
        ImportError: this onnxruntime has no accessors for the format.
        OSError: the file cannot be read.
    """
    # The accessors import each other by a top-level name; importing this package puts their folder on the path.
    importlib.import_module("onnxruntime.tools.ort_format_model")
    session = importlib.import_module("ort_flatbuffers_py.fbs.InferenceSession").InferenceSession
    tensor_type = importlib.import_module("ort_flatbuffers_py.fbs.TensorTypeAndShape").TensorTypeAndShape
    data = bytearray(path.read_bytes())
    return _Reader(tensor_type).graph(session.GetRootAsInferenceSession(data, 0).Model().Graph(), "main")


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


def _each(count: int, item: Callable[[int], Any]) -> Iterable[Any]:
    return (item(index) for index in range(count))


class _Reader:
    def __init__(self, tensor_type: type[Any]) -> None:
        self._tensor_type = tensor_type

    def graph(self, source: Any, name: str) -> GraphProto:
        graph = GraphProto(name=name)
        values = {_text(arg.Name()): arg for arg in _each(source.NodeArgsLength(), source.NodeArgs)}
        graph.initializer.extend(_tensor(item) for item in _each(source.InitializersLength(), source.Initializers))
        constants = {tensor.name for tensor in graph.initializer}
        inputs = [_text(item) for item in _each(source.InputsLength(), source.Inputs)]
        graph.input.extend(self._value(values[item]) for item in inputs if item not in constants)
        outputs = [_text(item) for item in _each(source.OutputsLength(), source.Outputs)]
        graph.output.extend(self._value(values[item]) for item in outputs)
        nodes = [self._node(item) for item in _each(source.NodesLength(), source.Nodes)]
        graph.node.extend(_runnable_order(nodes, constants | {value.name for value in graph.input}))
        return graph

    def _node(self, source: Any) -> NodeProto:
        node = NodeProto(name=_text(source.Name()), op_type=_text(source.OpType()), domain=_text(source.Domain()))
        node.input.extend(_text(item) for item in _each(source.InputsLength(), source.Inputs))
        node.output.extend(_text(item) for item in _each(source.OutputsLength(), source.Outputs))
        while node.output and not node.output[-1]:  # optional outputs that nobody takes
            node.output.pop()
        node.attribute.extend(self._attribute(item) for item in _each(source.AttributesLength(), source.Attributes))
        return node

    def _attribute(self, source: Any) -> AttributeProto:
        kind = source.Type()
        out = AttributeProto(name=_text(source.Name()), type=kind)
        if kind == AttributeProto.FLOAT:
            out.f = source.F()
        elif kind == AttributeProto.INT:
            out.i = source.I()
        elif kind == AttributeProto.STRING:
            out.s = _text(source.S()).encode()
        elif kind == AttributeProto.TENSOR:
            out.t.CopyFrom(_tensor(source.T()))
        elif kind == AttributeProto.GRAPH:
            out.g.CopyFrom(self.graph(source.G(), out.name))
        elif kind == AttributeProto.FLOATS:
            out.floats.extend(_each(source.FloatsLength(), source.Floats))
        elif kind == AttributeProto.INTS:
            out.ints.extend(_each(source.IntsLength(), source.Ints))
        elif kind == AttributeProto.STRINGS:
            out.strings.extend(_text(item).encode() for item in _each(source.StringsLength(), source.Strings))
        else:
            raise ValueError(f"attribute {out.name} has type {kind}, which no model here uses")
        return out

    def _value(self, source: Any) -> ValueInfoProto:
        name, kind = _text(source.Name()), source.Type()
        if kind is None:
            return ValueInfoProto(name=name)
        table = kind.Value()
        tensor = self._tensor_type()
        tensor.Init(table.Bytes, table.Pos)
        shape = tensor.Shape()
        dims = None if shape is None else [_dimension(item) for item in _each(shape.DimLength(), shape.Dim)]
        return helper.make_tensor_value_info(name, tensor.ElemType(), dims)


def _dimension(source: Any) -> int | str | None:
    value = source.Value()
    if value is None:
        return None
    return int(value.DimValue()) if value.DimType() == DIM_VALUE else _text(value.DimParam()) or None


def _tensor(source: Any) -> TensorProto:
    tensor = TensorProto(name=_text(source.Name()), data_type=source.DataType())
    tensor.dims.extend(_each(source.DimsLength(), source.Dims))
    if source.RawDataLength():
        tensor.raw_data = source.RawDataAsNumpy().tobytes()
    return tensor


def _needs(node: NodeProto) -> list[str]:
    """Names a node reads, those of its subgraphs included."""
    names = list(node.input)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            inner = attribute.g
            own = {tensor.name for tensor in inner.initializer} | {value.name for value in inner.input}
            own |= {output for child in inner.node for output in child.output}
            names += [name for child in inner.node for name in _needs(child) if name not in own]
    return names


def _runnable_order(nodes: list[NodeProto], ready: set[str]) -> list[NodeProto]:
    """The file keeps nodes in the order of their index; ONNX wants every name made before it is read."""
    made_here = {output for node in nodes for output in node.output}
    have = ready | {""}
    ordered: list[NodeProto] = []
    waiting = nodes
    while waiting:
        later = []
        for node in waiting:
            if all(name in have or name not in made_here for name in _needs(node)):
                ordered.append(node)
                have.update(node.output)
            else:
                later.append(node)
        if len(later) == len(waiting):
            raise ValueError(f"the graph has a cycle through {later[0].name}")
        waiting = later
    return ordered
