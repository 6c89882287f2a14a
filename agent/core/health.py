"""gRPC's health service (grpc.health.v1, health.proto of the gRPC project) as far as probes ask for it: Check.

Its two messages have one field each, so that they are written here and no protobuf is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

__all__ = ["HEALTH_SERVICE", "Serving", "decode_request", "decode_response", "health_handler"]

HEALTH_SERVICE = "grpc.health.v1.Health"

MAX_REQUEST_BYTES = 1024

_STRING_1 = 0x0A
_ENUM_1 = 0x08


class Serving(IntEnum):
    """ServingStatus of health.proto."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


def decode_request(data: bytes) -> str:
    """The service that a HealthCheckRequest names; empty for the whole server.

    Raises ValueError: it is something else.
    """
    if not data:
        return ""
    if data[0] != _STRING_1 or len(data) < 2 or data[1] > 127 or len(data) != 2 + data[1]:
        raise ValueError("expected a HealthCheckRequest with a service of at most 127 bytes")
    return data[2:].decode("utf-8")


def encode_response(serving: Serving) -> bytes:
    """A HealthCheckResponse."""
    return bytes((_ENUM_1, serving)) if serving else b""


def decode_response(data: bytes) -> Serving:
    """What a HealthCheckResponse says. Raises ValueError."""
    if not data:
        return Serving.UNKNOWN
    if len(data) != 2 or data[0] != _ENUM_1:
        raise ValueError("expected a HealthCheckResponse")
    return Serving(data[1])


def health_handler(grpc: Any, serving: Callable[[str], bool | None]) -> Any:
    """A generic handler for the service.

    Args:
        grpc: the module; this one is usable without it.
        serving: whether the named service serves; None for one that is not known.
    """

    def answer(service: str) -> Serving:
        known = serving(service)
        if known is None:
            return Serving.SERVICE_UNKNOWN
        return Serving.SERVING if known else Serving.NOT_SERVING

    async def check(request: bytes, context: Any) -> bytes:
        service = await _service(request, context)
        told = answer(service)
        if told is Serving.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {service!r}")
        return encode_response(told)

    async def _service(request: bytes, context: Any) -> str:
        try:
            return decode_request(request[:MAX_REQUEST_BYTES])
        except ValueError as exc:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(exc))
            raise

    methods = {
        "Check": grpc.unary_unary_rpc_method_handler(check),
    }
    return grpc.method_handlers_generic_handler(HEALTH_SERVICE, methods)
