"""The registry in Consul when Consul is not well."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent.core.registry import RegistryError
from agent.core.registry_consul import ConsulRegistry
from tests.agent.core.consul import TOKEN, ScriptedConsul
from tests.agent.core.test_registry import ONE, TWO


@pytest.fixture
async def consul() -> AsyncIterator[ScriptedConsul]:
    scripted = ScriptedConsul()
    await scripted.server.start_server()
    yield scripted
    await scripted.server.close()


async def test_a_wrong_token_is_an_error_that_names_what_was_asked(consul: ScriptedConsul) -> None:
    registry = ConsulRegistry(consul.url, token="wrong")
    with pytest.raises(RegistryError, match="PUT /v1/agent/service/register: status 403"):
        await registry.announce(ONE)
    await registry.close()


async def test_a_broken_or_absent_agent_is_an_error(consul: ScriptedConsul) -> None:
    registry = ConsulRegistry(consul.url, token=TOKEN)
    consul.broken = True
    with pytest.raises(RegistryError, match="status 500"):
        await registry.replicas("asr:en")
    await consul.server.close()
    with pytest.raises(RegistryError, match="Consul"):
        await registry.replicas("asr:en")
    await registry.close()


async def test_other_readers_of_consul_find_host_and_port(consul: ScriptedConsul) -> None:
    registry = ConsulRegistry(consul.url, token=TOKEN)
    await registry.announce(ONE)
    await registry.announce(TWO)
    assert (consul.services["one"]["Address"], consul.services["one"]["Port"]) == ("10.0.0.1", 50051)
    assert "Address" not in consul.services["two"]
    await registry.close()


async def test_an_instance_that_somebody_else_registered_is_an_error(consul: ScriptedConsul) -> None:
    registry = ConsulRegistry(consul.url, token=TOKEN)
    await registry.announce(ONE)
    consul.services["one"]["Meta"] = {}
    with pytest.raises(RegistryError, match="without replica-00"):
        await registry.replicas("asr:en")
    await registry.close()
