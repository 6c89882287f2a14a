"""Everything we use of aiortc and aioice beyond their documentation, by name, so that an update fails here first."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import re
from typing import Any

import pytest

from agent.media import aiortc_seam, gathering
from agent.media.aiortc_seam import RELIED_ON, PeerTransport, certificate

SOURCE = inspect.getsource(aiortc_seam) + inspect.getsource(gathering)


@pytest.mark.parametrize(("path", "name"), RELIED_ON)
def test_what_we_rely_on_is_still_there(path: str, name: str) -> None:
    module, _, cls = path.rpartition(".")
    found: Any = getattr(importlib.import_module(module), cls)
    versions = {p: importlib.metadata.version(p) for p in ("aiortc", "aioice")}
    init = inspect.getsource(found.__init__) if inspect.isclass(found) else ""
    assert hasattr(found, name) or f"self.{name}" in init, (
        f"{path}.{name} is gone in {versions}: agent/media/aiortc_seam.py uses it; adapt it there before updating"
    )


def test_the_list_names_every_private_that_the_seam_touches() -> None:
    used = set(re.findall(r"(?:_dtls|_ice|_sctp|pair|agent|super\(\)|self)\.(_[a-z][a-z_]+)", SOURCE))
    own = set(re.findall(r"self\.(_[a-z_]+)\s*(?::[^=\n]+)?=|def (_[a-z_]+)\(self", SOURCE))
    ours = {name for pair in own for name in pair if name}
    listed = {name for _, name in RELIED_ON}
    assert used - ours - listed == set()


def test_dtls_asks_its_ice_transport_only_for_what_our_agent_has() -> None:
    from aiortc import RTCDtlsTransport

    asked = set(re.findall(r"self\.transport\.(\w+)", inspect.getsource(RTCDtlsTransport)))
    assert asked == {"role", "_recv", "_send"}, "RTCDtlsTransport asks more of its ICE transport than _Ice gives"


def test_one_certificate_serves_all_calls() -> None:
    assert certificate() is certificate()


def test_the_transport_is_all_there_is_to_the_outside() -> None:
    assert aiortc_seam.__all__ == ["RELIED_ON", "PeerTransport", "TransportEvents"]
    assert inspect.iscoroutinefunction(PeerTransport.close)
