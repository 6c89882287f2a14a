import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.config import BridgeSettings, Settings
from agent.errors import CallRefused, EnvironmentFault
from agent.events import TransferRequested
from agent.media.ticker import Ticker
from signaling.admission import CallRegistry
from signaling.bridges.audiosocket import AudioSocketDoor
from signaling.bridges.audiosocket_messages import frame_bytes
from signaling.bridges.doors import AUDIOSOCKET
from signaling.stream_host import StreamHost
from signaling.tokens import load_keys
from tests.signaling.conftest import Door, OpenDoor
from tests.signaling.doubles import AgentDouble, PcmDouble

SILENCE = frame_bytes(0x10, bytes(320))
HANGUP = frame_bytes(0x00)


def with_bridge(**more: Any) -> Settings:
    return Settings(bridges=BridgeSettings.model_validate({"audiosocket_port": 0, **more}))


@pytest.fixture
async def door(open_door: OpenDoor) -> Door:
    return await open_door(with_bridge(parameters=["queue"]))


@pytest.fixture
async def open_to_any(open_door: OpenDoor) -> Door:
    return await open_door(with_bridge(audiosocket_calls="any"))


def port_of(door: Door) -> int:
    return door.client.app[AUDIOSOCKET].port  # type: ignore[union-attr,no-any-return]


class Peer:
    """Asterisk's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, *messages: bytes) -> None:
        for message in messages:
            self.writer.write(message)

    async def until_closed(self) -> bytes:
        async with asyncio.timeout(15):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
        return b""


@asynccontextmanager
async def peer_of(door: Door) -> AsyncIterator[Peer]:
    peer = Peer(*await asyncio.open_connection("127.0.0.1", port_of(door)))
    try:
        yield peer
    finally:
        peer.writer.close()


async def announced(door: Door, query: str = "") -> bytes:
    response = await door.client.post(f"/v1/audiosocket{query}", headers=door.auth())
    assert response.status == 201, await response.text()
    return frame_bytes(0x01, uuid.UUID(await response.text()).bytes)


async def test_an_announced_call_goes_both_ways(door: Door) -> None:
    hello = await announced(door, "?caller=%2B4315550100&queue=sales&secret=x")
    async with peer_of(door) as peer:
        peer.say(hello, SILENCE, frame_bytes(0x03, b"5"))
        await door.agent.began.wait()
        call, port = door.agent.started[0], door.pcm_ports[0]
        assert (call.session.channel, call.session.caller) == ("sip", "+4315550100")
        assert call.session.metadata == {"queue": "sales"}
        port.play(b"\x01\x02" * 160)
        assert await peer.reader.readexactly(323) == frame_bytes(0x10, b"\x01\x02" * 160)
        peer.say(HANGUP)
        assert await peer.until_closed() == HANGUP
    assert call.told == [("press", "5")]
    assert call.end_reason == "caller hung up"
    assert port.fed == bytes(320)
    assert not door.agent.calls


async def test_no_port_is_open_unless_set(open_door: OpenDoor) -> None:
    door = await open_door()
    assert AUDIOSOCKET not in door.client.app  # type: ignore[operator]
    assert (await door.client.post("/v1/audiosocket", headers=door.auth())).status in (404, 405)


async def test_announcing_needs_a_token(door: Door) -> None:
    assert (await door.client.post("/v1/audiosocket")).status == 401


async def test_a_wrong_caller_is_named(door: Door) -> None:
    response = await door.client.post("/v1/audiosocket", params={"caller": "x" * 200}, headers=door.auth())
    assert (response.status, (await response.json())["field"]) == (422, "query.caller")


async def test_a_uuid_works_once_and_others_not_at_all(door: Door) -> None:
    hello = await announced(door)
    async with peer_of(door) as peer:
        peer.say(hello, SILENCE)
        await door.agent.began.wait()
        for stranger in (hello, frame_bytes(0x01, bytes(16))):
            async with peer_of(door) as other:
                other.say(stranger, SILENCE)
                assert await other.until_closed() == HANGUP
    assert len(door.agent.started) == 1


async def test_any_uuid_will_do_where_that_is_set(open_to_any: Door) -> None:
    async with peer_of(open_to_any) as peer:
        peer.say(frame_bytes(0x01, bytes(16)), SILENCE)
        await open_to_any.agent.began.wait()


async def test_other_addresses_are_not_served(open_door: OpenDoor) -> None:
    door = await open_door(with_bridge(audiosocket_calls="any", audiosocket_sources=["192.0.2.0/24", "::1"]))
    async with peer_of(door) as peer:
        peer.say(frame_bytes(0x01, bytes(16)), SILENCE)
        await peer.until_closed()
    assert not door.agent.started


@pytest.mark.parametrize(("kind", "rate"), [(0x12, 16_000), (0x16, 48_000)])
async def test_the_first_audio_sets_the_rate_and_keys_before_it_are_kept(
    open_to_any: Door, kind: int, rate: int
) -> None:
    async with peer_of(open_to_any) as peer:
        peer.say(frame_bytes(0x01, bytes(16)), frame_bytes(0x03, b"1"), frame_bytes(kind, bytes(rate // 25)))
        await open_to_any.agent.began.wait()
        port = open_to_any.pcm_ports[0]
        assert port.sample_rate_hz == rate
        port.play(bytes(rate // 25))
        assert (await peer.reader.readexactly(1))[0] == kind
        peer.say(HANGUP)
        await peer.until_closed()
    assert open_to_any.agent.started[0].told == [("press", "1")]


async def test_a_caller_that_sends_no_audio_is_greeted_all_the_same(
    open_to_any: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signaling.bridges.audiosocket.FIRST_AUDIO_S", 0.1)
    async with peer_of(open_to_any) as peer:
        peer.say(frame_bytes(0x01, bytes(16)))
        await open_to_any.agent.began.wait()
        assert open_to_any.pcm_ports[0].sample_rate_hz == 8000


async def test_who_says_nothing_is_put_out(open_to_any: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signaling.bridges.audiosocket.UUID_TIMEOUT_S", 0.1)
    async with peer_of(open_to_any) as peer:
        peer.say(b"\x01\x00")
        await peer.until_closed()
    assert not open_to_any.agent.started


async def test_strangers_are_few(open_to_any: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signaling.bridges.audiosocket.MAX_STRANGERS", 2)
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(peer_of(open_to_any)) for _ in range(3)]
        await peers[2].until_closed()
        peers[0].say(frame_bytes(0x01, bytes(16)), SILENCE)
        await open_to_any.agent.began.wait()


async def test_a_quiet_line_is_kept_open_by_silence(open_to_any: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signaling.streaming.KEEP_ALIVE_S", 0.05)
    async with peer_of(open_to_any) as peer:
        peer.say(frame_bytes(0x01, bytes(16)), SILENCE)
        async with asyncio.timeout(10):
            assert await peer.reader.readexactly(2 * len(SILENCE)) == 2 * SILENCE


async def test_a_refused_call_is_hung_up(open_to_any: Door) -> None:
    open_to_any.agent.refuse = CallRefused("busy")
    async with peer_of(open_to_any) as peer:
        peer.say(frame_bytes(0x01, bytes(16)), SILENCE)
        assert await peer.until_closed() == HANGUP


async def test_a_peer_that_just_closes_ends_its_call(open_to_any: Door) -> None:
    async with peer_of(open_to_any) as peer:
        peer.say(frame_bytes(0x01, bytes(16)), SILENCE)
        await open_to_any.agent.began.wait()
    async with asyncio.timeout(10):
        assert await open_to_any.agent.started[0].wait_ended() == "peer closed"


async def test_a_transfer_ends_our_part_so_that_the_dialplan_goes_on(open_to_any: Door) -> None:
    async with peer_of(open_to_any) as peer:
        peer.say(frame_bytes(0x01, bytes(16)), SILENCE)
        await open_to_any.agent.began.wait()
        open_to_any.agent.started[0].emit(TransferRequested("sales"))
        assert await peer.until_closed() == HANGUP


async def test_an_address_that_cannot_be_bound_is_a_fault_that_names_the_setting(open_door: OpenDoor) -> None:
    with pytest.raises(EnvironmentFault, match=r"bridges\.audiosocket_port"):
        await open_door(with_bridge(audiosocket_host="192.0.2.1"))


@settings(max_examples=40, deadline=None)
@given(
    data=st.one_of(
        st.binary(max_size=2000),
        st.binary(max_size=2000).map(lambda tail: frame_bytes(0x01, bytes(16)) + tail),
        st.binary(max_size=2000).map(lambda tail: frame_bytes(0x01, bytes(16)) + SILENCE + tail),
        st.just(frame_bytes(0x01, bytes(16)) + b"\x10\xff\xfe" + bytes(65_534)),
    )
)
def test_hostile_peers_leave_nothing_behind(data: bytes) -> None:
    asyncio.run(_one_hostile(data))


async def _one_hostile(data: bytes) -> None:
    async with AsyncExitStack() as stack:
        ticker = await stack.enter_async_context(Ticker())
        agent = AgentDouble(with_bridge(audiosocket_calls="any"), ticker)
        door = AudioSocketDoor(StreamHost(agent, CallRegistry(agent), PcmDouble), load_keys(agent.settings).verifier)
        await stack.enter_async_context(door.listening())
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        try:
            with contextlib.suppress(ConnectionError):
                writer.write(data)
                writer.write_eof()
                async with asyncio.timeout(10):
                    await reader.read()
        finally:
            writer.close()
        # Alive, and nothing of the last one is left.
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        count = len(agent.started)
        agent.began.clear()
        writer.write(frame_bytes(0x01, bytes(16)) + SILENCE)
        async with asyncio.timeout(10):
            await agent.began.wait()
        assert len(agent.started) == count + 1
        assert len(agent.calls) == 1
        writer.close()
        async with asyncio.timeout(10):
            await agent.started[-1].wait_ended()
