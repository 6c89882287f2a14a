"""The registry that DNS is, against a name server that plays a script."""

from __future__ import annotations

from collections.abc import AsyncIterator

import dns.rcode
import pytest

from agent.core import registry_dns
from agent.core.registry import RegistryError, Replica
from agent.core.registry_dns import DnsDirectory, service_name
from tests.agent.core.nameserver import ScriptedNameServer

TEMPLATE = "_grpc._tcp.core-{shard}.voice.svc.cluster.local"
ENGLISH = "_grpc._tcp.core-asr-en.voice.svc.cluster.local"


@pytest.fixture
async def server() -> AsyncIterator[ScriptedNameServer]:
    scripted = ScriptedNameServer()
    await scripted.start()
    yield scripted
    scripted.transport.close()


def directory(server: ScriptedNameServer) -> DnsDirectory:
    return DnsDirectory(TEMPLATE, nameservers=["127.0.0.1"], port=server.port)


async def test_replicas_are_the_services_records_in_order(server: ScriptedNameServer) -> None:
    server.srv[ENGLISH] = ["0 50 50051 pod-2.core.", "0 100 50052 pod-1.core."]
    shard = frozenset({"asr:en"})
    assert await directory(server).replicas("asr:en") == (
        Replica("pod-1.core:50052", "pod-1.core:50052", shard, 100),
        Replica("pod-2.core:50051", "pod-2.core:50051", shard, 50),
    )


async def test_each_reading_asks_again(server: ScriptedNameServer) -> None:
    reader = directory(server)
    server.srv[ENGLISH] = ["0 1 50051 pod-1.core."]
    await reader.replicas("asr:en")
    server.srv[ENGLISH] = ["0 1 50051 pod-2.core."]
    assert [replica.id for replica in await reader.replicas("asr:en")] == ["pod-2.core:50051"]


async def test_no_such_name_and_no_records_are_a_shard_without_replicas(server: ScriptedNameServer) -> None:
    assert await directory(server).replicas("asr:en") == ()
    server.srv[ENGLISH] = []
    assert await directory(server).replicas("asr:en") == ()


async def test_a_server_that_fails_is_an_error_and_no_empty_shard(server: ScriptedNameServer) -> None:
    server.rcode = dns.rcode.SERVFAIL
    with pytest.raises(RegistryError, match="DNS"):
        await directory(server).replicas("asr:en")


async def test_a_server_that_does_not_answer_is_an_error(
    server: ScriptedNameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_dns, "DEADLINE_S", 0.05)
    server.silent = True
    with pytest.raises(RegistryError, match="LifetimeTimeout"):
        await directory(server).replicas("asr:en")
    assert server.asked


def test_names_of_services_are_labels() -> None:
    assert service_name("{shard}.x", "tts:Heart_2.1") == "tts-heart-2-1.x"
    with pytest.raises(ValueError, match="shard"):
        service_name("{shard}.x", "tts:../evil")
    with pytest.raises(ValueError, match=r"\{shard\}"):
        DnsDirectory("core.svc")
