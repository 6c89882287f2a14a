"""A gateway over a scripted agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from agent.config import Settings
from agent.media.ticker import Ticker
from signaling.admission import CallRegistry
from signaling.sip.gateway.gateway import SipGateway
from tests.signaling.doubles import AgentDouble
from tests.signaling.sip.gateway.telephone import HOST, free_port


class Door:
    """A running gateway, its agent and its port."""

    def __init__(self, agent: AgentDouble, gateway: SipGateway, port: int) -> None:
        self.agent = agent
        self.gateway = gateway
        self.port = port


OpenDoor = Callable[..., Awaitable[Door]]


@pytest.fixture
async def open_door() -> AsyncIterator[OpenDoor]:
    """Opens gateways with settings of `[sip]`; open to all unless told otherwise."""
    async with AsyncExitStack() as stack:
        ticker = await stack.enter_async_context(Ticker())

        async def start(max_calls: int = 40, **sip: object) -> Door:
            port = free_port()
            values = {"enabled": True, "host": HOST, "port": port, "transports": ("udp",), "open": True} | sip
            agent = AgentDouble(Settings(sip=values, server={"max_calls": max_calls}), ticker)
            gateway = await stack.enter_async_context(SipGateway(agent, CallRegistry(agent)))
            return Door(agent, gateway, port)

        yield start
