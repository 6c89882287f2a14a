"""Reads an inner tensor of an ONNX model as one more output, without rewriting the file.

Pure bytes: in Protocol Buffers, a message appended to another is merged with it, and repeated fields are joined
(protobuf.dev, "Encoding", section "Last One Wins"). So `graph.output += name` is a few bytes after the model.
"""

from __future__ import annotations

__all__ = ["with_output"]

MODEL_GRAPH = 7
GRAPH_OUTPUT = 12
VALUE_NAME = 1
"""Field numbers of ModelProto.graph, GraphProto.output, ValueInfoProto.name in onnx.proto3."""

LENGTH_DELIMITED = 2


def with_output(model: bytes, tensor: str) -> bytes:
    """The model with `tensor` as an additional, last output. The runtime refuses it if there is no such tensor."""
    value = _field(VALUE_NAME, tensor.encode())
    return model + _field(MODEL_GRAPH, _field(GRAPH_OUTPUT, value))


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | LENGTH_DELIMITED) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
