from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from agent.errors import ConfigError, HookError, HookTimeout
from agent.nlu.hook import Hangup, HistoryItem, Interrupted, Listen, Session, Transfer
from agent.nlu.http import HttpNlu


async def collect(nlu: Any, turn: Any) -> list[Any]:
    return [item async for item in nlu.reply(turn)]


@pytest.fixture
async def hook_for(serve: Any) -> Any:
    """Make an adapter whose remote end is the given handler."""
    made: list[HttpNlu] = []

    async def make(handler: Any, **options: Any) -> HttpNlu:
        nlu = HttpNlu(await serve(handler), **{"timeout_s": 5.0, **options})
        made.append(nlu)
        return nlu

    yield make
    for nlu in made:
        await nlu.close()


def fixed(body: bytes, content_type: str, status: int = 200) -> Any:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=body, status=status, headers={"Content-Type": content_type})

    return handle


async def test_the_turn_is_posted_in_the_documented_shape(hook_for: Any, helpers: Any) -> None:
    seen: list[Any] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append((request.method, request.headers, await request.json()))
        return web.json_response({"text": "Ok."})

    nlu = await hook_for(handle, api_key="s3cret")
    session = Session("c-9", "sip", "en", "+15550100", {"step": 2}, {"queue": "sales"})
    turn = helpers.make_turn(
        "hello",
        session=session,
        confidence=0.5,
        history=(HistoryItem("agent", "Hi", "there", True, 1.5, 2.25),),
        interrupted=Interrupted("Hi", "there"),
        speculative=True,
    )
    assert await collect(nlu, turn) == ["Ok."]
    method, headers, body = seen[0]
    assert method == "POST"
    assert headers["Authorization"] == "Bearer s3cret"
    assert body == {
        "session": {
            "id": "c-9",
            "channel": "sip",
            "language": "en",
            "caller": "+15550100",
            "state": {"step": 2},
            "metadata": {"queue": "sales"},
            "called": None,
            "direction": "in",
        },
        "kind": "speech",
        "text": "hello",
        "confidence": 0.5,
        "language": "en",
        "history": [
            {"role": "agent", "text": "Hi", "unheard": "there", "interrupted": True, "at_s": 1.5, "end_s": 2.25}
        ],
        "interrupted": {"heard": "Hi", "unheard": "there"},
        "speculative": True,
        "data": {},
    }


ACCEPTED = [
    (b'{"text": "Bye.", "actions": [{"action": "hangup"}]}', "application/json", ["Bye.", Hangup()]),
    (b'["One.", {"action": "transfer", "to": "x"}, "Two."]', "application/json", ["One.", Transfer("x"), "Two."]),
    (b'"Just text."', "application/json; charset=utf-8", ["Just text."]),
    (b"", "application/json", []),
    (b"{}\n", "application/x-ndjson", HookError),
    (b'{"text": "A."}\r\n\r\n{"text": null}\n"B."', "application/x-ndjson", ["A.", "B."]),
    (b'{"done": true}\n', "application/jsonl", []),
    (b'data: {"text":\ndata: "A."}\n\nid: 7\nretry: 3\ndata: "B."\n\ndata: [DONE]\n\ndata: "C."\n\n',
     "text/event-stream", ["A.", "B."]),
    ("Grüße".encode(), "text/plain; charset=utf-8", ["Grüße"]),
    (b'{"action": "listen", "expect": "digits", "min_digits": 4}', "application/json", [Listen("digits", 4)]),
]  # fmt: skip


@pytest.mark.parametrize(("body", "content_type", "expected"), ACCEPTED, ids=[str(n) for n in range(len(ACCEPTED))])
async def test_every_documented_answer_is_read(
    hook_for: Any, helpers: Any, body: bytes, content_type: str, expected: Any
) -> None:
    nlu = await hook_for(fixed(body, content_type))
    if expected is HookError:
        with pytest.raises(HookError):
            await collect(nlu, helpers.make_turn())
    else:
        assert await collect(nlu, helpers.make_turn()) == expected


async def test_no_content_is_silence(hook_for: Any, helpers: Any) -> None:
    nlu = await hook_for(fixed(b"", "text/plain", 204))
    assert await collect(nlu, helpers.make_turn()) == []


HOSTILE = [
    (b"{", "application/json", "not JSON"),
    (b"[" * 100_000, "application/json", "not JSON"),
    (b'{"text": NaN}', "application/json", "not JSON"),
    (b'{"text": 5}', "application/json", r"text: expected a string, got a number"),
    (b'{"texts": "x"}', "application/json", "at least one of the fields text"),
    (b'{"text": "x"}\n[[1]]\n', "application/x-ndjson", r"line 2 .*\[0\]: expected a string or an object"),
    (b'{"actions": {"action": "hangup"}}', "application/json", "actions: expected a list, got an object"),
    (b'{"actions": [{"action": "explode"}]}', "application/json", r"actions\[0\].action: expected one of transfer"),
    (b'{"action": "transfer"}', "application/json", r"answer.to: required field is missing"),
    (b'{"action": "hangup", "after_playout": "no"}', "application/json", "after_playout: Input should be a valid bool"),
    (b'{"action": "dtmf", "digits": "5", "speed": 2}', "application/json", "speed: unknown field"),
    (b'{"state": [1]}', "application/json", "state: expected an object, got a list"),
    (b'{"state": {"x": "' + b"y" * 70_000 + b'"}}', "application/json", "state would be"),
    (b'{"error": "no"}', "application/json", "is an error"),
    (b"\xff\xfe", "text/plain", "not UTF-8"),
    (b'{"text": "\xff"}\n', "application/x-ndjson", "not UTF-8"),
    (b"x" * 70_000, "application/x-ndjson", "line of more than 65536 bytes"),
    (b"data: xxxxxxxxxxxx\n" * 6000, "text/event-stream", "event of more than 65536"),
    (b'"a"\n' * 300_000, "application/x-ndjson", "longer than 1048576 bytes"),
    (b"<html>", "text/html", "content type 'text/html'; expected"),
    (b"event: error\ndata: boom\n\n", "text/event-stream", "event 1 .* is an error"),
]


@pytest.mark.parametrize(("body", "content_type", "message"), HOSTILE, ids=[str(n) for n in range(len(HOSTILE))])
async def test_a_hostile_answer_is_refused_by_name(
    hook_for: Any, helpers: Any, body: bytes, content_type: str, message: str
) -> None:
    nlu = await hook_for(fixed(body, content_type))
    with pytest.raises(HookError, match=message):
        await collect(nlu, helpers.make_turn())


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
async def test_a_refusal_names_its_status_and_code_but_quotes_nothing(hook_for: Any, helpers: Any, status: int) -> None:
    body = json.dumps({"error": {"code": "bad_thing", "message": "the caller said hello"}}).encode()
    nlu = await hook_for(fixed(body, "application/json", status))
    with pytest.raises(HookError, match=rf"status {status} \(bad_thing\)") as caught:
        await collect(nlu, helpers.make_turn())
    assert "caller said" not in str(caught.value)


async def test_redirects_are_not_followed(hook_for: Any, helpers: Any) -> None:
    asked: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.path)
        raise web.HTTPTemporaryRedirect("/elsewhere")

    nlu = await hook_for(handle)
    with pytest.raises(HookError, match="status 307: redirects are not followed"):
        await collect(nlu, helpers.make_turn())
    assert asked == ["/hook"]


async def test_a_server_that_never_answers_is_a_timeout(hook_for: Any, helpers: Any) -> None:
    async def handle(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    nlu = await hook_for(handle, timeout_s=0.1)
    with pytest.raises(HookTimeout, match=r"did not answer in 0\.1 s"):
        await collect(nlu, helpers.make_turn())


async def test_a_stream_that_stalls_is_a_timeout(hook_for: Any, helpers: Any) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        await response.write(b'"One."\n"Tw')
        await asyncio.Event().wait()
        return response

    nlu = await hook_for(handle, timeout_s=0.1)
    reply = nlu.reply(helpers.make_turn())
    assert await anext(reply) == "One."
    with pytest.raises(HookTimeout, match=r"sent nothing for 0\.1 s"):
        await anext(reply)


async def test_nobody_listening_is_a_hook_error(helpers: Any) -> None:
    nlu = HttpNlu("http://127.0.0.1:9/hook", timeout_s=2)
    with pytest.raises(HookError, match=r"127\.0\.0\.1:9 cannot be asked"):
        await collect(nlu, helpers.make_turn())
    await nlu.close()
    with pytest.raises(HookError, match="closed"):
        await collect(nlu, helpers.make_turn())


async def test_state_is_kept_between_turns_and_never_shared(hook_for: Any, helpers: Any) -> None:
    async def handle(request: web.Request) -> web.Response:
        state = (await request.json())["session"]["state"]
        count = state.get("count", 0) + 1
        update = {"count": count, "gone": None}
        return (
            web.json_response({"text": f"Turn {count}.", "state": update}, headers={"Set-Cookie": "who=first; Path=/"})
            if "Cookie" not in request.headers
            else web.json_response({"text": "a cookie joined two calls"})
        )

    nlu = await hook_for(handle)
    ann, bob = Session("ann", "sip", state={"gone": 1}), Session("bob", "sip")
    assert await collect(nlu, helpers.make_turn(session=ann)) == ["Turn 1."]
    assert await collect(nlu, helpers.make_turn(session=ann)) == ["Turn 2."]
    assert await collect(nlu, helpers.make_turn(session=bob)) == ["Turn 1."]
    assert ann.state == {"count": 2}
    assert bob.state == {"count": 1}


async def test_a_character_split_between_two_json_strings_comes_whole(hook_for: Any, helpers: Any) -> None:
    nlu = await hook_for(fixed(b'"Hi \\ud83d"\n"\\ude00!"\n', "application/x-ndjson"))
    assert "".join(await collect(nlu, helpers.make_turn())) == "Hi 😀!"


async def test_state_that_is_not_json_is_named(hook_for: Any, helpers: Any) -> None:
    nlu = await hook_for(fixed(b"", "text/plain"))
    session = Session("c", "sip", state={"x": object()})
    with pytest.raises(HookError, match=r"session\.state or data is not JSON"):
        await collect(nlu, helpers.make_turn(session=session))


@pytest.mark.parametrize(
    "url", ["", "shop", "ftp://x/y", "http://", "http://u:p@host/", "http://a b/", "http://host:99999/"]
)
def test_an_address_that_cannot_be_asked_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigError, match=r"nlu\.target"):
        HttpNlu(url)
