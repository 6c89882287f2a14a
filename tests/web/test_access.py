"""The page for everybody: keyboard, screen reader, contrast, small screens, reduced motion, right to left."""

from __future__ import annotations

import pytest

FINAL = "conversation.item.input_audio_transcription.completed"

UNNAMED = """() => {
  const name = (node) => {
    const by = (node.getAttribute('aria-labelledby') ?? '').split(' ')
      .map((id) => document.getElementById(id)?.textContent ?? '');
    const labels = [...(node.labels ?? [])].map((label) => label.textContent);
    const own = node.matches('button, a, summary') ? node.innerText : '';
    return (node.getAttribute('aria-label') ?? [...by, ...labels, own].join('')).trim();
  };
  const controls = 'button, a, input, select, summary, [role=meter], [role=img], [tabindex], dialog';
  return [...document.querySelectorAll(controls)]
    .filter((node) => !name(node) && (node.checkVisibility() || node.matches('dialog')))
    .map((node) => node.outerHTML);
}"""

# Paints each ancestor's background over the one behind it, then the text over that: what is really seen.
CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const luminance = () => {
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3)
      .map((value) => value / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paint = (colour) => { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); };
  const results = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility()) continue;
    if (node.closest('.visually-hidden, noscript, option')) continue;
    const box = node.getBoundingClientRect();
    if (box.width < 2 || box.bottom < 0) continue;
    const chain = [];
    for (let up = node; up; up = up.parentElement) chain.unshift(getComputedStyle(up).backgroundColor);
    paint('#808080');
    chain.forEach(paint);
    const behind = luminance();
    paint(getComputedStyle(node).color);
    const text = luminance();
    const ratio = (Math.max(behind, text) + 0.05) / (Math.min(behind, text) + 0.05);
    results.push([walker.currentNode.data.trim().slice(0, 40), Math.round(ratio * 100) / 100]);
  }
  return results;
}"""


def conversation(double) -> None:
    timings = {"endpoint_ms": 310, "asr_final_ms": 60, "nlu_first_ms": 5, "tts_first_ms": 120, "playout_ms": 20}
    double.say(
        {"type": FINAL, "item_id": "u1", "transcript": "When do you open on Sundays?"},
        {"type": "response.created", "response": {"id": "r1", "status": "in_progress"}},
        {
            "type": "response.output_audio_transcript.delta",
            "response_id": "r1",
            "delta": "We open at ten. We close at four.",
        },
        {"type": "rejoinder.timings", "response_id": "r1", **timings, "response_ms": 530, "cache": "hit"},
        {
            "type": "response.done",
            "response": {
                "id": "r1",
                "status": "cancelled",
                "rejoinder": {"heard": "We open at ten.", "unheard": "We close at four."},
            },
        },
        {"type": "rejoinder.timings", "response_id": "r2", **timings, "response_ms": 620, "cache": "predicted"},
        {"type": "response.created", "response": {"id": "r3", "status": "in_progress"}},
        {
            "type": "response.done",
            "response": {"id": "r3", "status": "failed", "rejoinder": {"heard": "It", "unheard": " was"}},
        },
        {"type": "rejoinder.dtmf", "digit": "4"},
        {
            "type": "error",
            "error": {"type": "server_error", "code": "tts", "message": "the voice stumbled", "param": None},
        },
        {"type": "conversation.item.input_audio_transcription.delta", "item_id": "u2", "transcript": "And on"},
        {"type": "rejoinder.floor", "floor": "caller"},
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_all_text_has_aa_contrast(make_caller, double, scheme) -> None:
    async with make_caller(color_scheme=scheme) as caller:
        page = await caller.open(token=None)
        seen = await page.evaluate(CONTRAST)
        await page.get_by_label("Access token").fill("a.test.token")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Call", exact=True).click()
        await caller.until("rejoinder.state.phase === 'live' && rejoinder.state.session")
        conversation(double)
        await page.locator(".partial").wait_for()
        await page.get_by_role("button", name="Keypad").click()
        await page.get_by_role("button", name="Mute").click()
        await page.locator("#latency-earlier summary").click()
        seen += await page.evaluate(CONTRAST)
        await page.get_by_role("button", name="Settings", exact=True).click()
        seen += await page.evaluate(CONTRAST)
        ground = await page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert ground == {"light": "rgb(244, 246, 243)", "dark": "rgb(15, 20, 18)"}[scheme]
        texts = {text for text, _ in seen}
        assert {"Call", "Hang up", "And on", "We close at four.", "We open at ten.", "Single-key shortcuts"} <= texts
        assert [pair for pair in seen if pair[1] < 4.5] == []


async def test_every_control_has_a_name(caller, double) -> None:
    page = await caller.open(token=None)
    assert await page.evaluate(UNNAMED) == []
    await caller.call()
    conversation(double)
    await page.locator(".partial").wait_for()
    await page.get_by_role("button", name="Keypad").click()
    assert await page.evaluate(UNNAMED) == []
    await page.get_by_role("button", name="Settings", exact=True).click()
    assert await page.evaluate(UNNAMED) == []
    ids = await page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))
    refs = await page.evaluate(
        """[...document.querySelectorAll('[aria-labelledby], [aria-describedby], [aria-controls], label[for]')]
             .flatMap((n) => ['aria-labelledby', 'aria-describedby', 'aria-controls', 'for']
               .flatMap((name) => (n.getAttribute(name) ?? '').split(' ')))
             .filter(Boolean)"""
    )
    assert set(refs) <= set(ids)


async def test_live_regions_are_where_readers_look_for_them(caller, double) -> None:
    page = await caller.call()
    assert await page.locator("#announcer").get_attribute("aria-live") == "polite"
    assert await page.locator("#alert").get_attribute("role") == "alert"
    assert await page.get_by_role("status").get_by_text("Connected").count() == 1
    conversation(double)
    await page.locator("#announcer").get_by_text("You: When do you open on Sundays?").wait_for(state="attached")
    spoken = await page.locator("#announcer p").all_inner_texts()
    assert spoken == [
        "You: When do you open on Sundays?",
        "Agent: We open at ten. (interrupted)",
        "Agent: It (interrupted)",
        "Keys pressed: 4",
    ]


async def test_a_call_with_the_keyboard_alone(caller, double) -> None:
    page = await caller.open()

    async def tab_to(name: str) -> None:
        for _ in range(30):
            await page.keyboard.press("Tab")
            if (await page.evaluate("document.activeElement.innerText.trim()")) == name:
                break
        else:
            raise AssertionError(f"Tab never reached {name}")
        ring = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert ring == "solid", f"{name} shows no focus"

    await tab_to("Call")
    await page.keyboard.press("Enter")
    await caller.until("rejoinder.state.phase === 'live' && rejoinder.state.session")
    assert await page.evaluate("document.activeElement.id") == "hang-up", "the focus was lost with the Call button"
    await page.keyboard.press("m")
    assert await caller.state("muted") is True
    await page.keyboard.press("m")
    await page.keyboard.press("k")
    await page.keyboard.press("8")
    await page.keyboard.press("Escape")
    await page.keyboard.press("t")
    await page.keyboard.type("mkh")
    await page.keyboard.press("Enter")
    await double.until(lambda: len(double.received) == 2, "digit and message")
    assert double.received[0] == {"type": "rejoinder.dtmf", "digit": "8"}
    assert double.received[1]["item"]["content"][0]["text"] == "mkh"
    await tab_to("Settings")
    await page.keyboard.press("Enter")
    assert await page.locator("#settings").is_visible()
    await page.keyboard.press("Escape")
    assert await page.locator("#settings").is_hidden()
    assert await page.evaluate("document.activeElement.id") == "open-settings"
    await page.keyboard.press("h")
    await double.until(lambda: double.deletes == ["call_1"], "DELETE")


async def test_tab_goes_round_without_a_trap(caller, double) -> None:
    page = await caller.call()
    conversation(double)
    await page.locator(".partial").wait_for()
    await page.get_by_role("button", name="Keypad").click()
    await page.locator(".skip").focus()
    reached = []
    for _ in range(45):
        await page.keyboard.press("Tab")
        reached.append(await page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    for wanted in ("open-settings", "mute", "open-keypad", "hang-up", "transcript", "message", "send", "SUMMARY"):
        assert wanted in reached
    assert "BODY" in reached or reached.count("open-settings") > 1, "the focus never left the page's last control"
    assert reached.index("mute") < reached.index("transcript") < reached.index("message") < reached.index("SUMMARY")


async def test_single_key_shortcuts_can_be_switched_off(caller, double) -> None:
    page = await caller.call()
    await page.get_by_role("button", name="Settings").click()
    await page.get_by_label("Single-key shortcuts").uncheck()
    await page.keyboard.press("Escape")
    await page.keyboard.press("m")
    await page.keyboard.press("h")
    assert await caller.state("muted") is False
    assert await caller.state("phase") == "live"
    await page.reload()
    assert await page.get_by_label("Single-key shortcuts", exact=True).is_checked() is False


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
async def test_nothing_scrolls_sideways(make_caller, double, width) -> None:
    async with make_caller(viewport={"width": width, "height": 720}) as caller:
        page = await caller.open(token=None)
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await page.evaluate(overflow) == 0
        await caller.call()
        conversation(double)
        long = "x" * 300
        double.say(
            {"type": FINAL, "item_id": "u9", "transcript": long}, {"type": "rejoinder.data", "data": {"a": long}}
        )
        await page.locator("#items").get_by_text("The agent sent").wait_for()
        await page.get_by_role("button", name="Keypad").click()
        await page.locator("#latency-earlier summary").click()
        assert await page.evaluate(overflow) == 0
        cut = await page.evaluate(
            """[...document.querySelectorAll('button')].filter((b) => b.checkVisibility())
                 .filter((b) => {
                   const box = b.getBoundingClientRect();
                   return box.left < 0 || box.right > innerWidth || b.scrollWidth > b.clientWidth + 1;
                 })
                 .map((b) => b.id || b.textContent)"""
        )
        assert cut == []
        small = await page.evaluate(
            """[...document.querySelectorAll('button, input, select')].filter((b) => b.checkVisibility())
                 .filter((b) => Math.min(b.offsetWidth, b.offsetHeight) < 24).map((b) => b.id)"""
        )
        assert small == []


async def test_right_to_left_mirrors_the_page(make_caller, double) -> None:
    async with make_caller(viewport={"width": 1200, "height": 800}) as caller:
        page = await caller.call()
        conversation(double)
        await page.locator(".partial").wait_for()
        double.say({"type": FINAL, "item_id": "u8", "transcript": "متى تفتحون؟"})
        await page.locator("#items").get_by_text("متى تفتحون؟").wait_for()
        left = "(document.querySelector('.stage').getBoundingClientRect().left)"
        before = await page.evaluate(left)
        await page.evaluate("document.documentElement.dir = 'rtl'")
        assert await page.evaluate(left) > before + 300
        assert await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
        arabic = page.locator("#items").get_by_text("متى تفتحون؟")
        assert await arabic.evaluate("(node) => getComputedStyle(node).direction") == "rtl"


async def test_reduced_motion_stops_animation_and_slows_the_meters(make_caller, double) -> None:
    async with make_caller(reduced_motion="reduce") as caller:
        page = await caller.call()
        conversation(double)
        double.say({"type": "rejoinder.floor", "floor": "thinking"})
        await caller.until("document.body.dataset.floor === 'thinking'")
        assert await page.evaluate("document.getAnimations().length") == 0
        changes = await page.evaluate(
            """async () => {
              let changes = 0;
              const watch = new MutationObserver(() => { changes += 1; });
              watch.observe(document.querySelector('#meter-agent > span'), { attributes: true });
              const first = await new Promise((done) => requestAnimationFrame(done));
              let frames = 0;
              for (let now = first; now - first < 1000; frames += 1) {
                now = await new Promise((done) => requestAnimationFrame(done));
              }
              return { changes, frames };
            }"""
        )
        assert changes["changes"] <= 5
        ring = await page.evaluate("getComputedStyle(document.querySelector('.ring-agent')).transform")
        assert ring == "none"


def talk(double, turns: int = 6) -> None:
    words = "we open at ten in the morning and close at four, and at noon there is an hour's break."
    for n in range(turns):
        double.say(
            {"type": FINAL, "item_id": f"u{n}", "transcript": f"Question {n}: when do you open on Sundays?"},
            {"type": "response.created", "response": {"id": f"r{n}", "status": "in_progress"}},
            {"type": "response.output_audio_transcript.delta", "response_id": f"r{n}", "delta": f"Answer {n}: {words}"},
        )


# What of the last line's box and of the message box is hidden: by the transcript's edge, the call bar or the fold.
HIDDEN = """() => {
  const box = (node) => node.getBoundingClientRect();
  const bar = document.querySelector('.controls');
  const fixed = getComputedStyle(bar).position === 'fixed';
  const floor = fixed ? box(bar).top : innerHeight;
  const lines = [...document.querySelector('#items > li:last-child .heard').getClientRects()];
  const last = lines.at(-1);
  const transcript = box(document.getElementById('transcript'));
  const message = box(document.getElementById('message'));
  return {
    lineBelow: Math.max(0, last.bottom - Math.min(transcript.bottom, floor)),
    messageBelow: Math.max(0, message.bottom - floor),
    room: message.top - last.bottom,
    top: box(document.querySelector('.stage')).top - box(document.querySelector('.top')).bottom,
  };
}"""


@pytest.mark.parametrize("size", [(390, 844), (390, 664), (320, 720), (320, 568), (1280, 800)])
async def test_the_newest_line_and_the_message_box_stay_in_view(make_caller, double, size) -> None:
    async with make_caller(viewport={"width": size[0], "height": size[1]}) as caller:
        page = await caller.call()
        talk(double)
        await page.locator("#items").get_by_text("Answer 5").wait_for()
        hidden = await page.evaluate(HIDDEN)
        assert hidden["lineBelow"] == 0
        assert hidden["messageBelow"] == 0
        assert hidden["room"] >= 20, "the last line touches the message box"
        assert hidden["top"] >= 0
        if size[0] > 640:
            return
        await page.get_by_role("button", name="Keypad").click()
        await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        hidden = await page.evaluate(HIDDEN)
        assert hidden["lineBelow"] == 0
        assert hidden["messageBelow"] == 0
        await page.get_by_role("button", name="Keypad").click()
        await page.get_by_role("button", name="Hang up").click()
        assert (await page.evaluate(HIDDEN))["messageBelow"] == 0
