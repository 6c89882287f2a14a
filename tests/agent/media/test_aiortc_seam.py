"""Everything we use of aiortc and aioice beyond their documentation, by name, so that an update fails here first."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import re
from typing import Any

import pytest

from agent.config import MediaSettings
from agent.errors import NegotiationError
from agent.media import aiortc_seam
from agent.media.aiortc_seam import RELIED_ON, PeerTransport, certificate

SOURCE = inspect.getsource(aiortc_seam)


@pytest.mark.parametrize(("path", "name"), RELIED_ON)
def test_what_we_rely_on_is_still_there(path: str, name: str) -> None:
    module, _, cls = path.rpartition(".")
    found: Any = getattr(importlib.import_module(module), cls)
    versions = {p: importlib.metadata.version(p) for p in ("aiortc", "aioice")}
    init = inspect.getsource(found.__init__)
    assert hasattr(found, name) or f"self.{name}" in init, (
        f"{path}.{name} is gone in {versions}: agent/media/aiortc_seam.py uses it; adapt it there before updating"
    )


def test_the_list_names_every_private_that_the_seam_touches() -> None:
    used = set(re.findall(r"(?:_dtls|_ice|_sctp|pair|super\(\)|self)\.(_[a-z][a-z_]+)", SOURCE))
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


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("stun:stun.example.org", ("stun.example.org", 3478)),
        ("stun:192.0.2.1:19302", ("192.0.2.1", 19302)),
        ("stun:[2001:db8::1]:3478", ("2001:db8::1", 3478)),
        ("stun.example.org:5000", ("stun.example.org", 5000)),
    ],
)
async def test_stun_servers_are_contacted_only_when_named(setting: str, expected: tuple[str, int]) -> None:
    assert aiortc_seam._servers(MediaSettings()) == {}
    assert aiortc_seam._servers(MediaSettings(stun_servers=(setting,))) == {"stun_server": expected}


def test_turn_settings_reach_the_agent() -> None:
    found = aiortc_seam._servers(
        MediaSettings(turn_server="turns:relay.example.org?transport=tcp", turn_username="u", turn_password="p")
    )
    assert found["turn_server"] == ("relay.example.org", 5349)
    assert (found["turn_ssl"], found["turn_transport"], found["turn_password"]) == (True, "tcp", "p")


def test_a_server_without_a_host_is_refused_by_setting() -> None:
    with pytest.raises(NegotiationError, match=r"media\.stun_servers"):
        aiortc_seam._servers(MediaSettings(stun_servers=("stun:",)))


def test_the_transport_is_all_there_is_to_the_outside() -> None:
    assert aiortc_seam.__all__ == ["RELIED_ON", "PeerTransport", "TransportEvents"]
    assert inspect.iscoroutinefunction(PeerTransport.close)
