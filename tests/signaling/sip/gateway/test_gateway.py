"""A telephone call through the gateway, over real sockets, to a scripted agent."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from pydantic import SecretStr

from agent.config import Settings
from agent.errors import EnvironmentFault
from signaling.admission import CallRegistry
from signaling.sip.digest import Account
from signaling.sip.gateway.gateway import SipGateway
from signaling.sip.protocol import (
    CallEnded,
    ChangeDirection,
    ChangeMedia,
    EndCause,
    HangUp,
    MediaAgreed,
    SendDigit,
)
from tests.signaling.doubles import AgentDouble
from tests.signaling.sip.gateway.conftest import OpenDoor
from tests.signaling.sip.gateway.telephone import Telephone, eventually, free_port


class Ear:
    """What the conversation hears."""

    def __init__(self) -> None:
        self.frames: list[np.ndarray] = []
        self.digits: list[str] = []
        self.closed: list[str] = []

    def on_audio(self, pcm: np.ndarray) -> None:
        self.frames.append(pcm)

    def on_dtmf(self, digit: str) -> None:
        self.digits.append(digit)

    def on_stalled(self, silence_s: float) -> None:
        pass

    def on_resumed(self, silence_s: float) -> None:
        pass

    def on_closed(self, reason: str) -> None:
        self.closed.append(reason)


async def test_a_caller_reaches_the_agent_with_number_and_allowed_headers(open_door: OpenDoor) -> None:
    door = await open_door(session_headers=("X-Customer", "X-Missing"))
    async with Telephone() as phone:
        await phone.call(door.port, "4930123", headers=(("X-Customer", "17"), ("X-Secret", "no")))
        await door.agent.began.wait()
        session = door.agent.started[0].session
        assert (session.channel, session.caller, session.called) == ("sip", "alice", "4930123")
        assert dict(session.metadata) == {"X-Customer": "17"}
        phone.command(HangUp("out"))
        assert await door.agent.started[0].wait_ended() == "caller hung up"
        await phone.until(lambda: bool(phone.told(CallEnded)))
    await eventually(lambda: door.gateway.calls == 0)


async def test_sound_goes_both_ways(open_door: OpenDoor) -> None:
    door = await open_door()
    async with Telephone() as phone:
        await phone.call(door.port)
        await door.agent.began.wait()
        call, ear = door.agent.started[0], Ear()
        call.port.attach(ear)
        call.port.playout.write(np.full(800, 5000, np.int16))
        # Mu-law code 0 is the loudest negative sample.
        for _ in range(10):
            phone.send_rtp(b"\x00" * 160)
        await phone.until(lambda: len(phone.rtp) >= 10)
        loud = any(int(np.abs(frame.astype(np.int32)).max()) > 20_000 for frame in ear.frames)
        assert loud
        assert len({packet[172:] for packet in phone.rtp}) == 1
        assert any(packet[12:] != b"\xff" * 160 for packet in phone.rtp)
        call.hangup("agent hung up")
        await phone.until(lambda: bool(phone.told(CallEnded)))
        assert phone.told(CallEnded)[0].cause is EndCause.PEER_HUNG_UP
        await phone.until(lambda: any(packet[-8:-6] == b"\x81\xcb" for packet in phone.rtcp + phone.rtp))


async def test_a_hold_lets_the_conversation_stand_still_and_a_resume_go_on(open_door: OpenDoor) -> None:
    door = await open_door()
    async with Telephone() as phone:
        await phone.call(door.port)
        await door.agent.began.wait()
        call = door.agent.started[0]
        for direction, told in [("sendonly", "suspended"), ("sendrecv", "reconnected"), ("inactive", "suspended")]:
            agreed = len(phone.told(MediaAgreed))
            phone.command(ChangeDirection("out", direction))
            await phone.until(lambda n=agreed: len(phone.told(MediaAgreed)) > n)
            assert call.told[-1][0] == told


async def test_after_a_reinvite_from_another_port_the_agent_speaks_there(open_door: OpenDoor) -> None:
    door = await open_door()
    from agent.media.rtp_sockets import RtpSockets

    async with Telephone() as phone:
        await phone.call(door.port)
        await door.agent.began.wait()
        door.agent.started[0].port.attach(Ear())
        await phone.until(lambda: bool(phone.rtp))
        other = RtpSockets("127.0.0.1", None, None)
        heard = asyncio.Event()
        other.listen(lambda _data, _source: heard.set(), lambda _data, _source: None)
        try:
            phone.command(ChangeMedia("out", phone.moved(other)))
            async with asyncio.timeout(10):
                await heard.wait()
        finally:
            other.close()


async def test_a_key_that_comes_by_info_is_used(open_door: OpenDoor) -> None:
    door = await open_door()
    async with Telephone() as phone:
        await phone.call(door.port)
        await door.agent.began.wait()
        call, ear = door.agent.started[0], Ear()
        call.port.attach(ear)
        for digit in "0#":
            phone.command(SendDigit("out", digit))
        await eventually(lambda: len(ear.digits) >= 2)
        assert ear.digits == ["0", "#"]


async def test_the_dialled_port_answers_only_with_the_right_password(open_door: OpenDoor) -> None:
    door = await open_door(open=False, users={"alice": SecretStr("wonder")})
    async with Telephone(Account("alice", "wonder")) as phone:
        await phone.call(door.port)
        await eventually(lambda: bool(door.agent.started))
    async with Telephone(Account("alice", "wrong")) as phone:
        phone.dial(door.port)
        await phone.until(lambda: bool(phone.told(CallEnded)))
        assert phone.told(CallEnded)[0].status in (401, 403)
    assert len(door.agent.started) == 1


async def test_a_full_house_and_a_drain_refuse_with_503(open_door: OpenDoor) -> None:
    door = await open_door(max_calls=1)
    async with Telephone() as first, Telephone() as second, Telephone() as third:
        await first.call(door.port)
        await door.agent.began.wait()
        second.dial(door.port)
        await second.until(lambda: bool(second.told(CallEnded)))
        assert second.told(CallEnded)[0].status == 503
        door.gateway.drain()
        third.dial(door.port)
        await third.until(lambda: bool(third.told(CallEnded)))
        assert third.told(CallEnded)[0].status == 503
        assert not first.told(CallEnded)


async def test_a_call_counts_once_in_the_admission(open_door: OpenDoor) -> None:
    door = await open_door(max_calls=2)
    async with Telephone() as first, Telephone() as second:
        await first.call(door.port)
        await second.call(door.port)
        await eventually(lambda: len(door.agent.started) == 2)


async def test_an_agent_that_refuses_after_the_answer_hangs_up_and_frees_all(open_door: OpenDoor) -> None:
    from agent.errors import CallRefused

    door = await open_door()
    door.agent.refuse = CallRefused("no")
    async with Telephone() as phone:
        await phone.call(door.port)
        await phone.until(lambda: bool(phone.told(CallEnded)))
    await eventually(lambda: door.gateway.calls == 0)


async def test_closing_the_gateway_hangs_up_every_call() -> None:
    from agent.media.ticker import Ticker

    port = free_port()
    sip = {"enabled": True, "host": "127.0.0.1", "port": port, "transports": ("udp",), "open": True}
    async with Ticker() as ticker, Telephone() as phone:
        agent = AgentDouble(Settings(sip=sip), ticker)
        async with SipGateway(agent, CallRegistry(agent)):
            await phone.call(port)
            await agent.began.wait()
        await phone.until(lambda: bool(phone.told(CallEnded)))
        assert agent.started[0].end_reason == "server stopped"


async def test_a_taken_address_is_told_with_its_name(open_door: OpenDoor) -> None:
    door = await open_door()
    with pytest.raises(EnvironmentFault, match=str(door.port)):
        async with SipGateway(door.agent, CallRegistry(door.agent)):
            pass


async def test_a_codec_that_the_settings_leave_out_is_refused(open_door: OpenDoor) -> None:
    from dataclasses import replace

    from agent.media.codec import PCMU

    door = await open_door(codecs=("G722",))
    async with Telephone() as phone:
        phone.media = replace(phone.media, codecs=(PCMU,))
        phone.dial(door.port)
        await phone.until(lambda: bool(phone.told(CallEnded)))
        assert phone.told(CallEnded)[0].status == 488
    await eventually(lambda: door.gateway.calls == 0)


@pytest.mark.parametrize(("srtp", "status"), [("any", 0), ("tls", 488), ("off", 488), ("required", 0)])
async def test_keys_over_plain_signalling_are_taken_only_when_that_is_allowed(
    open_door: OpenDoor, srtp: str, status: int
) -> None:
    from dataclasses import replace

    door = await open_door(srtp=srtp)
    async with Telephone() as phone:
        phone.media = replace(phone.media, offer_secure=True)
        if not status:
            await phone.call(door.port)
            agreement = phone.told(MediaAgreed)[-1].agreement
            assert agreement.local_crypto is not None
            return
        phone.dial(door.port)
        await phone.until(lambda: bool(phone.told(CallEnded)))
        assert phone.told(CallEnded)[0].status == status
