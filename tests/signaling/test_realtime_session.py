import json
from typing import Any

import pytest

from agent.config import Settings
from agent.errors import EngineError, NotInterruptible, ProtocolError
from agent.events import CallEnded, ClientData, FloorChanged
from agent.media.ticker import Ticker
from agent.nlu.hook import Session
from signaling.realtime_session import MESSAGE_BURST, RealtimeSession
from tests.signaling.doubles import AgentDouble, CallDouble, PortDouble


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Channel:
    """A call with a data channel: what was sent, and a way to say something."""

    def __init__(self, agent: AgentDouble) -> None:
        self.clock = Clock()
        self.texts: list[str] = []
        self.session = RealtimeSession(self.clock)
        self.call = agent.start_call(
            port=PortDouble(), session=Session("call_1", "browser"), observer=self.session.on_event
        )

    def open(self) -> None:
        self.session.bind_port(self.texts.append)
        self.session.bind_call(self.call)

    def say(self, **message: Any) -> list[dict[str, Any]]:
        before = len(self.texts)
        self.session.on_message(json.dumps(message))
        return [json.loads(text) for text in self.texts[before:]]


@pytest.fixture
async def channel(ticker: Ticker) -> Channel:
    made = Channel(AgentDouble(Settings(), ticker))
    made.open()
    return made


async def test_the_session_is_described_first_and_early_events_follow(ticker: Ticker) -> None:
    channel = Channel(AgentDouble(Settings(), ticker))
    channel.call.emit(FloorChanged("agent"))
    channel.open()
    created, floor = (json.loads(text) for text in channel.texts)
    assert created["session"] == {
        "id": "call_1",
        "model": "rejoinder",
        "voice": "heart",
        "language": "en",
        "channel": "browser",
    }
    assert floor["type"] == "rejoinder.floor"


async def test_commands_reach_the_call(channel: Channel) -> None:
    channel.say(type="response.cancel")
    channel.say(type="response.create")
    channel.say(type="rejoinder.dtmf", digit="5")
    content = [{"type": "input_text", "text": "hello"}, {"type": "input_text", "text": "there"}]
    channel.say(type="conversation.item.create", item={"type": "message", "role": "user", "content": content})
    assert channel.call.told == [("cancel", None), ("respond", None), ("press", "5"), ("text", "hello there")]


async def test_a_hang_up_ends_the_call_and_says_so(channel: Channel) -> None:
    channel.say(type="rejoinder.hangup")
    assert await channel.call.wait_ended() == "caller hung up"
    assert json.loads(channel.texts[-1])["type"] == "rejoinder.ended"


async def test_an_update_is_confirmed_with_what_holds_now(channel: Channel) -> None:
    (updated,) = channel.say(type="session.update", session={"voice": "bella"})
    assert updated["type"] == "session.updated"
    assert updated["session"]["voice"] == "bella"


async def test_a_refused_update_names_the_field_and_the_clients_event(channel: Channel) -> None:
    channel.call.failure = ProtocolError("expected one of heart", field="voice", code="invalid_value")
    (error,) = channel.say(type="session.update", session={"voice": "nobody"}, event_id="e3")
    assert error["error"] == {
        "type": "invalid_request_error",
        "code": "invalid_value",
        "message": "expected one of heart",
        "param": "session.voice",
        "event_id": "e3",
    }


async def test_an_unknown_event_is_an_error_and_the_channel_lives(channel: Channel) -> None:
    (error,) = channel.say(type="session.destroy", event_id="e1")
    assert error["type"] == "error"
    assert error["error"]["param"] == "type"
    assert error["error"]["event_id"] == "e1"
    channel.say(type="response.cancel")
    assert channel.call.told == [("cancel", None)]


async def test_failures_inside_are_told_without_the_inside(channel: Channel) -> None:
    channel.call.failure = RuntimeError("secret")
    (error,) = channel.say(type="response.cancel")
    assert error["error"]["code"] == "internal_error"
    assert "secret" not in json.dumps(error)
    channel.call.failure = EngineError("no voice")
    (error,) = channel.say(type="response.create")
    assert error["error"]["code"] == "not_possible"
    channel.call.failure = None
    channel.say(type="response.cancel")
    assert channel.call.told == [("cancel", None)]


async def test_a_reply_that_is_heard_in_full_says_so_and_goes_on(channel: Channel) -> None:
    channel.call.failure = NotInterruptible("the reply cannot be interrupted")
    for kind in ("response.cancel", "output_audio_buffer.clear"):
        (error,) = channel.say(type=kind, event_id="e7")
        assert error["type"] == "error"
        assert error["error"] == {
            "type": "invalid_request_error",
            "code": "not_interruptible",
            "message": "the reply cannot be interrupted",
            "param": None,
            "event_id": "e7",
        }


async def test_a_flood_is_told_once_dropped_and_forgiven(channel: Channel) -> None:
    replies = [channel.say(type="response.cancel") for _ in range(int(MESSAGE_BURST) + 50)]
    errors = [reply[0]["error"]["code"] for reply in replies if reply]
    assert errors == ["rate_limited"]
    assert len(channel.call.told) == MESSAGE_BURST
    channel.clock.now += 1.0
    assert channel.say(type="response.cancel") == []
    assert len(channel.call.told) == MESSAGE_BURST + 1


async def test_data_of_a_hook_that_is_not_json_becomes_an_error_message(channel: Channel) -> None:
    channel.call.emit(ClientData({"x": object()}))
    error = json.loads(channel.texts[-1])
    assert error["error"]["code"] == "message_unsendable"
    assert "rejoinder.data" in error["error"]["message"]
    channel.call.emit(CallEnded("completed"))
    assert json.loads(channel.texts[-1])["type"] == "rejoinder.ended"


async def test_before_the_call_is_there_messages_are_dropped(ticker: Ticker) -> None:
    channel = Channel(AgentDouble(Settings(), ticker))
    assert channel.say(type="response.cancel") == []
    assert isinstance(channel.call, CallDouble)
    assert channel.call.told == []
