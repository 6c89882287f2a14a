"""What the page shows of a conversation, and that what callers say stays text."""

from __future__ import annotations

import re

DELTA = "conversation.item.input_audio_transcription.delta"
FINAL = "conversation.item.input_audio_transcription.completed"
SAYS = "response.output_audio_transcript.delta"


def agent_says(response: str, *pieces: str) -> list[dict]:
    created = {"type": "response.created", "response": {"id": response, "status": "in_progress"}}
    return [created, *({"type": SAYS, "response_id": response, "item_id": "a", "delta": piece} for piece in pieces)]


def done(response: str, status: str, heard: str, unheard: str = "") -> dict:
    output = [{"id": "a", "type": "message", "content": [{"type": "output_audio", "transcript": heard}]}]
    rest = {"heard": heard, "unheard": unheard}
    return {
        "type": "response.done",
        "response": {"id": response, "status": status, "output": output, "rejoinder": rest},
    }


async def test_partials_are_revised_and_then_settled(caller, double) -> None:
    page = await caller.call()
    words = page.locator(".item-user .words")
    double.say({"type": "input_audio_buffer.speech_started", "item_id": "u1", "audio_start_ms": 900})
    await words.wait_for()
    double.say({"type": DELTA, "item_id": "u1", "delta": "Wear", "transcript": "Wear"})
    await page.get_by_text("Wear", exact=True).wait_for()
    double.say({"type": DELTA, "item_id": "u1", "delta": "", "transcript": "Where is my"})
    await page.get_by_text("Where is my", exact=True).wait_for()
    assert "partial" in await words.get_attribute("class")
    assert await page.locator("#announcer").inner_text() == ""
    double.say({"type": FINAL, "item_id": "u1", "transcript": "Where is my order?"})
    await page.locator("#items").get_by_text("Where is my order?", exact=True).wait_for()
    assert "partial" not in await words.get_attribute("class")
    assert await page.locator("#announcer").inner_text() == "You: Where is my order?"


async def test_openai_deltas_without_the_whole_text_add_up(caller, double) -> None:
    page = await caller.call()
    for piece in ("Good ", "mor", "ning"):
        double.say({"type": DELTA, "item_id": "u1", "delta": piece})
    await page.get_by_text("Good morning", exact=True).wait_for()


async def test_an_interrupted_reply_shows_what_was_heard_and_strikes_the_rest(caller, double) -> None:
    page = await caller.call()
    double.say(
        *agent_says("r1", "We open at nine,", " and close at five."),
        {"type": "output_audio_buffer.started", "response_id": "r1"},
        {"type": "rejoinder.floor", "floor": "agent"},
    )
    await caller.until("rejoinder.state.playing === 'r1'")
    assert await page.locator(".item-agent .heard").inner_text() == "We open at nine, and close at five."
    assert await page.locator(".unheard").count() == 0
    double.say(
        {"type": "output_audio_buffer.cleared", "response_id": "r1"},
        done("r1", "cancelled", "We open at nine,", "and close at five."),
        {"type": "rejoinder.floor", "floor": "caller"},
    )
    await page.locator("s.unheard").wait_for()
    assert await page.locator(".item-agent .heard").inner_text() == "We open at nine,"
    struck = page.locator("s.unheard")
    assert (await struck.inner_text()).strip() == "and close at five."
    assert "line-through" in await struck.evaluate("(node) => getComputedStyle(node).textDecorationLine")
    colour = "(node) => getComputedStyle(node).color"
    assert await page.locator(".heard").evaluate(colour) != await struck.evaluate(colour)
    assert "(interrupted)" in await page.locator("#announcer").inner_text()
    assert await caller.state("playing") is None


async def test_a_completed_reply_is_whole_and_a_failed_one_says_so(caller, double) -> None:
    page = await caller.call()
    double.say(*agent_says("r1", "Hello."), done("r1", "completed", "Hello."))
    double.say(*agent_says("r2", "Your order"), done("r2", "failed", "Your", " order"))
    await page.get_by_text("This answer broke off.").wait_for()
    assert await page.locator(".item-agent .heard").all_inner_texts() == ["Hello.", "Your"]


async def test_the_floor_is_named(caller, double) -> None:
    page = await caller.call()
    wanted = {
        "caller": "Listening to you",
        "thinking": "Thinking",
        "agent": "The agent is speaking",
        "nobody": "Your turn",
    }
    for floor, words in wanted.items():
        double.say({"type": "rejoinder.floor", "floor": floor})
        await caller.until(f"rejoinder.state.floor === '{floor}'")
        assert await page.locator("#floor").inner_text() == words
        assert await page.evaluate("document.body.dataset.floor") == floor
    double.say({"type": "rejoinder.floor", "floor": "elsewhere"}, {"type": "rejoinder.dtmf", "digit": "9"})
    await page.locator("#items").get_by_text("Keys pressed: 9").wait_for()
    assert await caller.state("floor") == "nobody"


async def test_the_latency_strip_shows_each_part_and_the_total(caller, double) -> None:
    page = await caller.call()
    first = {"endpoint_ms": 300, "asr_final_ms": 80, "nlu_first_ms": 4.4, "tts_first_ms": 150, "playout_ms": 20}
    double.say(
        *agent_says("r1", "Hi."),
        {"type": "rejoinder.timings", "response_id": "r1", **first, "response_ms": 600, "cache": "miss"},
        {
            "type": "rejoinder.timings",
            "response_id": "r2",
            **first,
            "tts_first_ms": None,
            "response_ms": 404.4,
            "cache": "hit",
        },
    )
    await page.locator("#latency-earlier summary").wait_for()
    assert await page.locator(".latest-total").inner_text() == "404 ms"
    values = await page.locator("#latency-latest .part").all_inner_texts()
    assert [re.split(r"\s*\n\s*", value) for value in values] == [
        ["Endpoint", "300 ms"],
        ["Recogniser", "80 ms"],
        ["Hook", "4 ms"],
        ["Voice", "–"],
        ["Playout", "20 ms"],
    ]
    latest, earlier = page.locator("#latency-latest .bar"), page.locator("#latency-earlier .bar")
    assert await latest.get_attribute("aria-label") == (
        "Turn 2, 404 milliseconds in total: endpoint 300, recogniser 80, hook 4, playout 20; voice from the cache"
    )
    assert "voice 150" in await earlier.get_attribute("aria-label")
    shares = await earlier.evaluate(
        """(bar) => [...bar.children].map((piece) =>
             [piece.className.split('-')[1], piece.getBoundingClientRect().width / bar.clientWidth])"""
    )
    widths = dict(shares)
    assert list(widths) == ["endpoint", "recogniser", "hook", "voice", "playout", "rest"]
    assert abs(widths["endpoint"] - 0.5) < 0.03
    assert abs(widths["voice"] - 0.25) < 0.03
    assert await page.locator(".item-agent .who-time").inner_text() == "600 ms"


async def test_hostile_text_stays_text(caller, double) -> None:
    page = await caller.call()
    evil = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'
    double.say(
        {"type": DELTA, "item_id": "u1", "delta": evil, "transcript": evil},
        {"type": FINAL, "item_id": "u2", "transcript": evil},
        *agent_says("r1", evil, "more"),
        done("r1", "cancelled", evil, evil),
        {"type": "rejoinder.dtmf", "digit": evil},
        {"type": "rejoinder.transfer", "to": evil},
        {"type": "rejoinder.data", "data": {"html": evil}},
        {"type": "error", "error": {"type": "server_error", "code": evil, "message": evil, "param": evil}},
        {"type": "rejoinder.timings", "response_id": evil, "response_ms": evil, "cache": evil},
    )
    await page.get_by_role("alert").get_by_text("The server reports a problem").wait_for()
    assert await page.locator("main img, main script").count() == 0
    assert await page.evaluate("window.pwned") is None
    assert evil in await page.locator(".item-user").first.inner_text()
    double.say({"type": "rejoinder.ended", "reason": evil})
    await caller.until("rejoinder.state.phase === 'ended'")
    assert evil in await page.locator("#hint").inner_text()
    assert await page.evaluate("window.pwned") is None


async def test_malformed_events_do_no_harm(caller, double) -> None:
    page = await caller.call()
    double.say(
        None,
        [],
        7,
        {"type": 3},
        {"type": "toString"},
        {"type": "response.created"},
        {"type": "response.done", "response": {"id": "r0", "output": [None, {"content": [None]}]}},
        {"type": DELTA},
        {"type": FINAL, "item_id": "u1", "transcript": {"not": "text"}},
        {"type": SAYS, "response_id": "r1", "delta": 5},
        {"type": "session.updated", "session": None},
        {"type": FINAL, "item_id": "u2", "transcript": "still here"},
    )
    await page.locator("#items").get_by_text("still here").wait_for()
    assert await caller.state("phase") == "live"


async def test_reduce_is_pure_and_bounded(caller, double) -> None:
    page = await caller.open()
    result = await page.evaluate(
        """async () => {
          const { initialState, reduce } = await import('/web/js/events.js');
          const freeze = (value) => {
            if (value && typeof value === 'object') Object.values(value).forEach(freeze);
            return Object.freeze(value);
          };
          let state = freeze(initialState());
          for (let n = 0; n < 1000; n += 1) {
            const item_id = `u${n}`;
            state = freeze(reduce(state, { type: 'input_audio_buffer.speech_started', item_id }));
            const type = 'conversation.item.input_audio_transcription.completed';
            state = freeze(reduce(state, { type, item_id, transcript: item_id }));
            state = freeze(reduce(state, { type: 'rejoinder.timings', response_id: `r${n}`, response_ms: n }));
          }
          const unknown = reduce(state, { type: 'rate_limits.updated' }) === state;
          return { unknown, items: state.items.length, newest: state.items.at(-1).text, timings: state.timings.length,
                   turn: state.timings.at(-1).turn };
        }"""
    )
    assert result == {"unknown": True, "items": 400, "newest": "u999", "timings": 60, "turn": 1000}


async def test_a_late_partial_does_not_undo_a_final(caller, double) -> None:
    page = await caller.call()
    double.say(
        {"type": FINAL, "item_id": "u1", "transcript": "Ninety."},
        {"type": DELTA, "item_id": "u1", "delta": "x", "transcript": "Nine"},
        {"type": "rejoinder.dtmf", "digit": "1"},
        {"type": "rejoinder.dtmf", "digit": "2"},
    )
    await page.locator("#items").get_by_text("Keys pressed: 1 2").wait_for()
    assert await page.locator(".item-user .words").inner_text() == "Ninety."


async def test_a_reply_cut_in_chinese_gets_no_space_at_the_cut(caller, double) -> None:
    page = await caller.call()
    double.say(*agent_says("r1"), done("r1", "cancelled", "我们九点", "开门"))
    double.say(*agent_says("r2"), done("r2", "cancelled", "We open", "at nine"))
    await page.locator("s.unheard").nth(1).wait_for()
    joints = "(all) => all.map((words) => [...words.childNodes].find((node) => node.nodeType === 3).data)"
    assert await page.locator(".item-agent .words").evaluate_all(joints) == ["", " "]
    assert await page.locator("s.unheard").all_inner_texts() == ["开门", "at nine"]
