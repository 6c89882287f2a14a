from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from agent.errors import ConfigError, HookError
from agent.nlu.chat_messages import messages
from agent.nlu.hook import Hangup, HistoryItem, Listen, Send, Session, Transfer
from agent.nlu.openai_chat import OpenAIChatNlu


async def collect(nlu: Any, turn: Any) -> list[Any]:
    return [item async for item in nlu.reply(turn)]


@pytest.fixture
async def ask(serve: Any, helpers: Any) -> Any:
    """Ask an endpoint that answers with the given body; returns the items and the request it got."""
    made: list[OpenAIChatNlu] = []

    async def ask_endpoint(body: bytes, content_type: str = "text/event-stream", **turn: Any) -> tuple[Any, Any]:
        seen: list[Any] = []

        async def handle(request: web.Request) -> web.Response:
            seen.append((request.path, request.headers.get("Authorization"), await request.json()))
            return web.Response(body=body, headers={"Content-Type": content_type})

        nlu = OpenAIChatNlu(await serve(handle), model="small", api_key="k", system_prompt="Be kind.")
        made.append(nlu)
        items = await collect(nlu, helpers.make_turn(**turn))
        assert len(seen) == 1, "one turn is one request"
        return items, seen[0]

    yield ask_endpoint
    for nlu in made:
        await nlu.close()


def stream(*choices: dict[str, Any], done: bool = True) -> bytes:
    body = b"".join(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n" for choice in choices)
    return body + (b"data: [DONE]\n\n" if done else b"")


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"index": 0, "delta": {"role": "assistant", "content": text}, **more}


def tool(name: str | None, arguments: Any, index: int | None = 0, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    call = {"function": function} if index is None else {"index": index, "function": function}
    return {"index": 0, "delta": {"tool_calls": [{**call, **more}]}}


STOP = {"index": 0, "delta": {}, "finish_reason": "stop"}
TOOLS = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}


async def test_the_request_is_what_the_api_defines(ask: Any) -> None:
    items, (path, authorization, body) = await ask(stream(said("Hi "), said("there."), STOP))
    assert items == ["Hi ", "there."]
    assert path == "/hook/chat/completions"
    assert authorization == "Bearer k"
    assert body["model"] == "small"
    assert body["stream"] is True
    assert body["messages"] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello"}]
    tools = {entry["function"]["name"]: entry["function"] for entry in body["tools"]}
    assert set(tools) == {
        "transfer", "hangup", "dtmf", "switch_language", "switch_voice", "play", "send", "listen", "uninterruptible",
        "private",
    }  # fmt: skip
    assert tools["transfer"]["parameters"]["required"] == ["to"]
    assert all(entry["description"] and entry["parameters"]["type"] == "object" for entry in tools.values())


async def test_tool_calls_are_joined_from_deltas_and_keep_their_place(ask: Any) -> None:
    body = stream(
        said("Please tell me the number."),
        tool("listen", '{"expect": "di', id="a"),
        tool(None, 'gits", "min_digits": 4}'),
        tool("send", '{"data": {"form": "order"}}', index=1, id="b"),
        TOOLS,
    )
    items, _ = await ask(body)
    assert items == ["Please tell me the number.", Listen("digits", 4), Send({"form": "order"})]


async def test_a_complete_tool_call_comes_before_text_that_follows_it(ask: Any) -> None:
    items, _ = await ask(stream(tool("transfer", '{"to": "sales"}', id="a"), said("Hold on."), STOP))
    assert items == [Transfer("sales"), "Hold on."]


async def test_calls_without_an_index_are_told_apart(ask: Any) -> None:
    items, _ = await ask(
        stream(
            tool("transfer", '{"to": "a"}', index=None, id="x"),
            tool("hangup", {"after_playout": False}, index=None, id="y"),
            TOOLS,
        )
    )
    assert items == [Transfer("a"), Hangup(after_playout=False)]


async def test_done_ends_a_stream_without_a_finish_reason(ask: Any) -> None:
    items, _ = await ask(stream(said("Bye."), tool("hangup", "{}", id="a")))
    assert items == ["Bye.", Hangup()]
    items, _ = await ask(stream(said("Bye."), done=False) + b"data: [DONE] \n\n")
    assert items == ["Bye."]


async def test_a_reply_of_tools_alone_is_complete(ask: Any) -> None:
    items, _ = await ask(stream(tool("hangup", ""), TOOLS))
    assert items == [Hangup()]


async def test_a_refusal_is_spoken(ask: Any) -> None:
    items, _ = await ask(stream({"index": 0, "delta": {"refusal": "I can't do that."}}, STOP))
    assert items == ["I can't do that."]


async def test_keep_alives_usage_and_other_choices_are_skipped(ask: Any) -> None:
    body = b": OPENROUTER PROCESSING\n\n" + stream(said("Yes."), {**said("No."), "index": 1}, STOP, done=False)
    items, _ = await ask(body + b'data: {"choices": [], "usage": {}}\n\ndata: [DONE]\n\ndata: nonsense\n\n')
    assert items == ["Yes."]


async def test_an_endpoint_that_does_not_stream_is_understood(ask: Any) -> None:
    message = {
        "content": [{"type": "text", "text": "Goodbye."}],
        "tool_calls": [{"id": "1", "function": {"name": "hangup", "arguments": "{}"}}],
    }
    body = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode()
    items, _ = await ask(body, "application/json")
    assert items == ["Goodbye.", Hangup()]


async def test_a_character_split_between_deltas_comes_whole(ask: Any) -> None:
    items, _ = await ask(stream(said("\ud83d"), said("\ude00"), STOP))
    assert "".join(items) == "😀"


HOSTILE = [
    (stream(tool("transfer", '{"to": '), TOOLS), "tool call 'transfer': arguments: not JSON"),
    (stream(tool("transfer", "[]"), TOOLS), "arguments: expected an object"),
    (stream(tool("transfer", "{}"), TOOLS), "tool call 'transfer'.to: required field is missing"),
    (stream(tool("rm_rf", "{}"), TOOLS), "tool call 'rm_rf': no such tool; expected one of"),
    (stream(tool("send", 5), TOOLS), "arguments: expected a string of JSON"),
    (stream(tool("send", "x" * 60_000), tool(None, "x" * 60_000), TOOLS), "more than 65536 characters"),
    (stream(*(tool("hangup", "{}", index=n) for n in range(40)), TOOLS), "more than 16 tool calls"),
    (b'data: {"error": {"code": "overloaded", "message": "m"}}\n\n', r"an error \(overloaded\)"),
    (b"data: [DONE]\n\n", "no choices"),
    (stream(said("Half a "), done=False), "broke off"),
    (stream(tool("hangup", "{}"), done=False), "broke off"),
    (stream(tool("transfer", '{"to": ')), "tool call 'transfer': arguments: not JSON"),
    (stream({"index": 0, "delta": {}, "finish_reason": "content_filter"}), "content filter"),
    (b"data: {\n\n", "a chunk of the completion: not JSON"),
    (b"data: []\n\n", "expected an object, got list"),
    (b'data: {"choices": 5}\n\n', "choices: expected a list"),
    (b'data: {"choices": [5]}\n\n', r"choices\[0\]: expected an object"),
    (b'data: {"choices": [{"delta": {"content": 5}}]}\n\n', "content: expected a string"),
    (b'data: {"choices": [{"delta": {"tool_calls": {}}}]}\n\n', "tool_calls: expected a list"),
]


@pytest.mark.parametrize(("body", "message"), HOSTILE, ids=[str(n) for n in range(len(HOSTILE))])
async def test_a_hostile_completion_is_refused_by_name(ask: Any, body: bytes, message: str) -> None:
    with pytest.raises(HookError, match=message):
        await ask(body)


async def test_text_before_a_malformed_tool_call_is_still_spoken(serve: Any, helpers: Any) -> None:
    async def handle(request: web.Request) -> web.Response:
        body = stream(said("I'll connect you."), tool("transfer", "{oops"), TOOLS)
        return web.Response(body=body, headers={"Content-Type": "text/event-stream"})

    nlu = OpenAIChatNlu(await serve(handle), model="m")
    reply = nlu.reply(helpers.make_turn())
    assert await anext(reply) == "I'll connect you."
    with pytest.raises(HookError, match="transfer"):
        await anext(reply)
    await nlu.close()


@pytest.mark.parametrize(
    ("body", "message"), [(b'{"choices": []}', "no choices"), (b"[]", "expected an object"), (b"<", "not JSON")]
)
async def test_a_hostile_plain_completion_is_refused(ask: Any, body: bytes, message: str) -> None:
    with pytest.raises(HookError, match=message):
        await ask(body, "application/json")


def test_a_model_must_be_named() -> None:
    with pytest.raises(ConfigError, match=r"nlu\.model"):
        OpenAIChatNlu("http://localhost/v1", model=" ")


def test_history_alternates_and_marks_what_was_cut(helpers: Any) -> None:
    history = (
        HistoryItem("agent", "Hello."),
        HistoryItem("user", "Where is"),
        HistoryItem("user", "my order?"),
        HistoryItem("agent", "It is on", "its way to you.", interrupted=True),
    )
    turn = helpers.make_turn("What?", history=history)
    assert messages(turn, "S") == [
        {"role": "system", "content": "S"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Where is\nmy order?"},
        {"role": "assistant", "content": "It is on…"},
        {"role": "user", "content": "[The caller interrupted and did not hear: its way to you.] What?"},
    ]


@pytest.mark.parametrize(
    ("kind", "fields", "content"),
    [
        ("greeting", {"text": ""}, "The call begins"),
        ("silence", {"text": ""}, "said nothing"),
        ("dtmf", {"text": "42"}, "pressed the keys 4 2"),
        ("event", {"text": "", "data": {"type": "paid"}}, '"paid"'),
    ],
)
def test_what_is_not_speech_is_a_note(helpers: Any, kind: str, fields: dict[str, Any], content: str) -> None:
    note = messages(helpers.make_turn(kind=kind, **fields))[-1]
    assert note["role"] == "user"
    assert note["content"].startswith("[")
    assert content in note["content"]


def test_a_long_history_is_bounded_from_its_old_end(helpers: Any) -> None:
    history = tuple(HistoryItem("user" if n % 2 else "agent", f"{n} " + "x" * 2000) for n in range(100))
    sent = messages(helpers.make_turn("now", history=history))
    assert sum(len(message["content"]) for message in sent) < 30_000
    assert sent[-1]["content"].endswith("now")
    assert any(message["content"].startswith("99 ") for message in sent)


def test_another_language_is_asked_for(helpers: Any) -> None:
    turn = helpers.make_turn("ni hao", session=Session("a", "sip"), language="zh")
    assert "language zh" in messages(turn)[0]["content"]
