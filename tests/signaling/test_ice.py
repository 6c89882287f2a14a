"""Which relays a client is told of, with whose credentials, and for how long."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp.test_utils import TestClient, TestServer

from agent.config import MediaSettings, Settings, TurnSettings
from agent.observe.metrics import Metrics
from signaling.ice import MIN_TTL_S, IceServers
from signaling.tokens import Claims, load_keys
from signaling.workers.fleet import Fleet
from signaling.workers.front import create_front
from tests.signaling.conftest import Door, OpenDoor
from tests.signaling.doubles import OFFER_SDP
from tests.signaling.test_calls import problem

SECRET = "0123456789abcdef0123456789abcdef"
NOW = 1_700_000_000
UDP, TLS = "turn:relay.example.org:3478?transport=udp", "turns:relay.example.org:5349?transport=tcp"
OFFER = {"sdp": OFFER_SDP, "type": "offer"}


def settings(**values: Any) -> TurnSettings:
    return TurnSettings(**{"urls": (UDP, TLS), "secret": SECRET, **values})


def claims(subject: str = "alice", token_id: str = "t1", expires_at: int = NOW + 3600) -> Claims:
    return Claims(subject=subject, expires_at=expires_at, token_id=token_id)


def servers(made: TurnSettings | None = None) -> IceServers:
    return IceServers(made or settings(), clock=lambda: NOW + 0.7)


def granted(**values: Any) -> dict[str, Any]:
    (server,) = servers().grant(claims(**values))["ice_servers"]
    return dict(server)


def password(username: str) -> str:
    return base64.b64encode(hmac.new(SECRET.encode(), username.encode(), hashlib.sha1).digest()).decode()


def test_relays_come_with_credentials_that_end_soon() -> None:
    told = servers().grant(claims())
    assert told["expires_in_s"] == 600
    (server,) = told["ice_servers"]
    assert server["urls"] == [UDP, TLS]
    assert server["username"].startswith(f"{NOW + 600}:")
    assert server["credential"] == password(server["username"])


def test_a_token_is_one_identity_however_often_it_asks_and_another_token_is_another() -> None:
    def identity(**values: Any) -> str:
        return str(granted(**values)["username"].partition(":")[2])

    assert identity() == identity()
    assert len({identity(), identity(token_id="t2"), identity(subject="bob")}) == 3
    assert "alice" not in identity()
    assert "t1" not in identity(token_id="t1")


def test_credentials_end_with_the_token_but_last_for_one_set_up() -> None:
    assert granted(expires_at=NOW + 90)["username"].startswith(f"{NOW + 90}:")
    assert granted(expires_at=NOW - 3)["username"].startswith(f"{NOW + MIN_TTL_S}:")


def test_stun_servers_get_no_credentials() -> None:
    told = servers(settings(urls=("stun:stun.example.org", UDP))).grant(claims())
    assert told["ice_servers"][0] == {"urls": ["stun:stun.example.org"]}
    assert told["ice_servers"][1]["urls"] == [UDP]


def test_the_servers_own_relay_gets_credentials_of_the_call() -> None:
    ice = servers()
    media = MediaSettings(turn_server=UDP)
    one, other = ice.own(media, "call_1"), ice.own(media, "call_2")
    assert one.turn_username is not None
    assert one.turn_username.startswith(f"{NOW + 600}:")
    assert one.turn_password is not None
    assert one.turn_password.get_secret_value() == password(one.turn_username)
    assert one.turn_username != other.turn_username
    assert (one.turn_server, media.turn_username) == (UDP, None)


@pytest.mark.parametrize(
    ("media", "made"),
    [
        (MediaSettings(), settings()),
        (MediaSettings(turn_server=UDP, turn_username="me", turn_password="pw"), settings()),
        (MediaSettings(turn_server=UDP), TurnSettings()),
    ],
)
def test_settings_that_need_no_credentials_stay_as_they_are(media: MediaSettings, made: TurnSettings) -> None:
    assert servers(made).own(media, "call_1") is media


@pytest.fixture
async def relayed(open_door: OpenDoor) -> Door:
    return await open_door(Settings(turn=settings(), media=MediaSettings(turn_server=UDP)))


async def test_the_door_tells_whoever_shows_a_token(relayed: Door) -> None:
    response = await relayed.client.get("/v1/ice", headers=relayed.auth())
    assert response.status == 200
    assert response.headers["Cache-Control"] == "no-store"
    body = await response.json()
    assert body["expires_in_s"] == 600
    (server,) = body["ice_servers"]
    assert server["credential"] == password(server["username"])


async def test_nobody_else_is_told_anything(relayed: Door) -> None:
    for headers in ({}, {"Authorization": "Bearer nonsense"}):
        body = await problem(await relayed.client.get("/v1/ice", headers=headers), 401, "unauthorized")
        assert "relay.example.org" not in str(body)
    streaming = relayed.auth(channels=["websocket"])
    await problem(await relayed.client.get("/v1/ice", headers=streaming), 403, "channel_not_allowed")


async def test_without_relays_the_list_is_empty_and_the_answer_says_nothing(door: Door) -> None:
    response = await door.client.get("/v1/ice", headers=door.auth())
    assert (await response.json())["ice_servers"] == []
    answer = await door.client.post("/v1/calls", json=OFFER, headers=door.auth())
    assert "ice_servers" not in await answer.json()


async def test_the_answer_to_an_offer_brings_them_and_they_are_the_same_user(relayed: Door) -> None:
    headers = relayed.auth()
    asked = await (await relayed.client.get("/v1/ice", headers=headers)).json()
    response = await relayed.client.post("/v1/calls", json=OFFER, headers=headers)
    assert response.status == 201
    body = await response.json()
    assert body["ice_expires_in_s"] == 600
    (before,), (now,) = asked["ice_servers"], body["ice_servers"]
    assert before["username"].partition(":")[2] == now["username"].partition(":")[2]
    assert now["credential"] == password(now["username"])


async def test_with_workers_the_front_tells_it_itself(web_root: Path) -> None:
    made = Settings(turn=settings())
    keys = load_keys(made, bind_host="127.0.0.1")
    fleet = cast(Fleet, SimpleNamespace(metrics=Metrics()))
    async with TestClient(TestServer(create_front(fleet, made, verifier=keys.verifier, web_root=web_root))) as client:
        response = await client.get("/v1/ice", headers={"Authorization": f"Bearer {keys.mint('alice')}"})
        assert (await response.json())["ice_servers"][0]["urls"] == [UDP, TLS]
        await problem(await client.get("/v1/ice"), 401, "unauthorized")
