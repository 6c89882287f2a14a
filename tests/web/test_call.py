"""A call through the page: it connects, is heard and seen, and ends cleanly."""

from __future__ import annotations

import pytest


async def test_call_connects_with_trickle_and_moves_both_meters(caller, double) -> None:
    page = await caller.call()
    offer = double.offers[0]
    assert offer["type"] == "offer"
    assert offer["channel"] == "browser"
    assert "a=candidate" not in offer["sdp"], "the offer waited for ICE gathering"
    assert "a=sendrecv" in offer["sdp"]
    assert double.authorizations == ["Bearer a.test.token"]
    await double.until(lambda: double.candidates and double.candidates[-1] == "", "end of candidates")
    assert all(line.startswith("candidate:") for line in double.candidates[:-1])
    for side in ("caller", "agent"):
        await caller.until(f"Number(document.getElementById('meter-{side}').getAttribute('aria-valuenow')) > 30")
    await caller.until(
        """[...(await rejoinder.peerConnection.getStats()).values()]
             .some((s) => s.type === 'inbound-rtp' && s.packetsReceived > 20 && s.totalAudioEnergy > 0)"""
    )
    assert await caller.state("session.voice") == "heart"
    assert await page.evaluate("rejoinder.remoteStream.getAudioTracks().length") == 1
    settings = await page.evaluate("rejoinder.peerConnection.getSenders()[0].track.getSettings()")
    assert settings["echoCancellation"] in (True, "all")
    assert settings["noiseSuppression"] is True
    assert settings["autoGainControl"] is True


async def test_hang_up_deletes_the_call_and_releases_the_microphone(caller, double) -> None:
    page = await caller.call()
    await page.evaluate("window.track = rejoinder.peerConnection.getSenders()[0].track")
    await page.get_by_role("button", name="Hang up").click()
    await double.until(lambda: double.deletes == ["call_1"], "DELETE")
    assert await page.evaluate("track.readyState") == "ended"
    assert await page.evaluate("rejoinder.peerConnection") is None
    assert await page.locator("#floor").inner_text() == "Call ended"
    assert await page.locator("#call").inner_text() == "Call again"


async def test_leaving_the_page_deletes_the_call(caller, double) -> None:
    page = await caller.call()
    await page.goto("about:blank")
    await double.until(lambda: double.deletes == ["call_1"], "DELETE on pagehide")


async def test_the_server_ends_the_call(caller, double) -> None:
    page = await caller.call()
    double.say({"type": "rejoinder.ended", "reason": "The shop is closed"})
    await caller.until("rejoinder.state.phase === 'ended'")
    assert await page.locator("#hint").inner_text() == "The call ended: The shop is closed."
    assert double.deletes == []


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("caller hung up", "You hung up."),
        ("agent hung up", "The agent ended the call."),
        ("completed", "The agent ended the call."),
        ("transferred", "You were put through."),
        ("idle", "Nobody spoke for a while, so the call was ended."),
        ("maximum call time", "The call reached its longest time."),
        ("peer vanished", "The connection was lost."),
        ("server stopped", "The server is stopping."),
        ("internal error", "Something went wrong on the server."),
    ],
)
async def test_the_end_is_told_in_the_callers_words(caller, double, reason, words) -> None:
    page = await caller.call()
    double.say({"type": "rejoinder.ended", "reason": reason})
    await caller.until("rejoinder.state.phase === 'ended'")
    assert await page.locator("#hint").inner_text() == words


async def test_a_server_that_falls_silent_is_told_at_once_and_forgiven_when_it_returns(caller, double) -> None:
    page = await caller.call()
    double.say({"type": "rejoinder.floor", "floor": "agent"})
    await page.get_by_role("heading", name="The agent is speaking").wait_for()
    await caller.until("[...(await rejoinder.peerConnection.getStats()).values()].some((s) => s.packetsReceived > 20)")
    double.silence.set()
    await caller.until("rejoinder.state.phase === 'interrupted'")
    assert await page.evaluate("rejoinder.peerConnection.connectionState") == "connected", "ICE found out first"
    assert await page.locator("#floor").inner_text() == "Interrupted"
    assert await page.locator("#hint").inner_text() == "Waiting for the connection."
    double.silence.clear()
    await caller.until("rejoinder.state.phase === 'live'")


async def test_a_caller_whose_sound_does_not_arrive_is_told(caller, double) -> None:
    page = await caller.call()
    hint = page.locator("#hint")
    double.say({"type": "rejoinder.media_stalled", "silence_s": 2.0})
    await hint.get_by_text("Your sound is not reaching the agent. Check your network.").wait_for()
    double.say({"type": "rejoinder.media_resumed", "silence_s": 3.1})
    await hint.get_by_text("The agent is listening.").wait_for()


async def test_a_server_that_stays_silent_ends_the_call(make_caller, double) -> None:
    async with make_caller() as caller:
        page = await caller.call()
        double.silence.set()
        await caller.until("rejoinder.state.phase === 'ended'")
        assert await page.locator(".alert-title").inner_text() == "The call was cut off"


async def test_a_channel_that_breaks_without_a_goodbye_is_a_lost_connection(caller, double) -> None:
    page = await caller.call()
    double.say({"type": "rejoinder.floor", "floor": "agent"})
    await page.get_by_role("heading", name="The agent is speaking").wait_for()
    double.channel.close()
    await caller.until("rejoinder.state.phase === 'ended'")
    assert await page.locator("#hint").inner_text() == "The connection was lost."
    assert await caller.state("floor") == "nobody"


async def test_liveness_counts_two_seconds_and_forgives_a_slept_computer(caller) -> None:
    page = await caller.open()
    verdicts = await page.evaluate(
        """async () => {
          const { Liveness } = await import('/web/js/liveness.js');
          const one = new Liveness();
          return [[0, 0], [0, 400], [0, 1900], [5, 2300], [5, 60_000], [5, 60_400], [5, 61_000], [6, 61_400]]
            .map(([packets, at]) => one.look(packets, at));
        }"""
    )
    assert verdicts == [False, False, False, False, False, False, True, False]


async def test_a_second_call_starts_afresh(caller, double) -> None:
    page = await caller.call()
    double.say({"type": "conversation.item.input_audio_transcription.completed", "item_id": "i", "transcript": "old"})
    await page.locator("#items").get_by_text("old").wait_for()
    await page.get_by_role("button", name="Hang up").click()
    await page.get_by_role("button", name="Call again").click()
    await caller.until("rejoinder.state.phase === 'live' && rejoinder.state.channelOpen")
    assert len(double.offers) == 2
    assert await caller.state("items.length") == 0
    assert await page.locator("#items").get_by_text("old").count() == 0


async def test_mute_silences_the_outgoing_track(caller, double) -> None:
    page = await caller.call()
    await caller.until("Number(document.getElementById('meter-caller').getAttribute('aria-valuenow')) > 30")
    mute = page.get_by_role("button", name="Mute")
    enabled = "rejoinder.peerConnection.getSenders()[0].track.enabled"
    await mute.click()
    assert await mute.get_attribute("aria-pressed") == "true"
    assert await page.evaluate(enabled) is False
    await caller.until("document.getElementById('meter-caller').getAttribute('aria-valuenow') === '0'")
    assert "muted" in await page.locator("#hint").inner_text()
    await mute.click()
    assert await mute.get_attribute("aria-pressed") == "false"
    assert await page.evaluate(enabled) is True
    await caller.until("Number(document.getElementById('meter-caller').getAttribute('aria-valuenow')) > 30")


async def test_keypad_sends_digits_from_clicks_and_from_the_keyboard(caller, double) -> None:
    page = await caller.call()
    await page.get_by_role("button", name="Keypad").click()
    await page.get_by_role("button", name="5", exact=True).click()
    await page.get_by_role("button", name="star").focus()
    await page.keyboard.press("7")
    await page.keyboard.press("#")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("Enter")
    await double.until(lambda: len(double.received) == 4, "four digits")
    assert double.received == [{"type": "rejoinder.dtmf", "digit": digit} for digit in "57#0"]
    assert await page.locator("#keys").inner_text() == "5 7 # 0"
    await page.keyboard.press("Escape")
    assert await page.locator("#keypad").is_hidden()
    assert await page.evaluate("document.activeElement.id") == "open-keypad"


async def test_digits_outside_the_keypad_are_not_sent(caller, double) -> None:
    page = await caller.call()
    await page.get_by_label("Message to the agent").fill("order ")
    await page.keyboard.type("12")
    await page.keyboard.press("Enter")
    await double.until(lambda: double.received, "the message")
    assert [event["type"] for event in double.received] == ["conversation.item.create"]
    assert double.received[0]["item"]["content"] == [{"type": "input_text", "text": "order 12"}]


async def test_a_typed_message_shows_once_even_when_the_server_reports_it(caller, double) -> None:
    page = await caller.call()
    await page.get_by_label("Message to the agent").fill("When do you open?")
    await page.get_by_role("button", name="Send").click()
    await double.until(lambda: double.received, "the message")
    assert await page.get_by_label("Message to the agent").input_value() == ""
    done = "conversation.item.input_audio_transcription.completed"
    double.say({"type": done, "item_id": "item_9", "content_index": 0, "transcript": "When do you open?"})
    await caller.until("rejoinder.state.items.some((item) => item.id === 'item_9')")
    assert await page.locator("#items").get_by_text("When do you open?").count() == 1


async def test_choosing_a_microphone_is_remembered_and_used_in_the_running_call(caller, double) -> None:
    page = await caller.call()
    before = await page.evaluate("rejoinder.peerConnection.getSenders()[0].track.id")
    await page.get_by_role("button", name="Settings").click()
    choices = await page.locator("#microphone option").all_inner_texts()
    assert len(choices) > 1
    await page.get_by_label("Microphone").select_option(index=1)
    await caller.until(f"rejoinder.peerConnection.getSenders()[0].track.id !== '{before}'")
    chosen = await page.get_by_label("Microphone").input_value()
    assert await page.evaluate("localStorage.getItem('rejoinder.microphone')") == chosen
    device = await page.evaluate("rejoinder.peerConnection.getSenders()[0].track.getSettings().deviceId")
    assert device == chosen


async def test_choosing_a_speaker_routes_the_agents_sound(caller, double) -> None:
    page = await caller.call()
    await page.get_by_role("button", name="Settings").click()
    await page.get_by_label("Speaker").select_option(index=1)
    chosen = await page.get_by_label("Speaker").input_value()
    await caller.until(f"document.getElementById('agent-sound').sinkId === '{chosen}'")
    assert await page.evaluate("localStorage.getItem('rejoinder.speaker')") == chosen


async def test_the_token_leaves_the_address_bar_and_stays_in_the_tab(caller, double) -> None:
    page = await caller.open()
    assert "token" not in page.url
    assert await page.locator("#token-form").is_hidden()
    await page.reload()
    await page.get_by_role("button", name="Call", exact=True).click()
    await caller.until("rejoinder.state.phase === 'live'")
    assert double.authorizations == ["Bearer a.test.token"]
    assert await page.evaluate("localStorage.getItem('rejoinder.token')") is None


async def test_settings_close_and_change_the_token(caller, double) -> None:
    page = await caller.open()
    await page.get_by_role("button", name="Settings").click()
    await page.get_by_role("button", name="Close").click()
    assert await page.locator("#settings").is_hidden()
    await page.get_by_role("button", name="Settings").click()
    await page.get_by_role("button", name="Change access token").click()
    assert await page.locator("#settings").is_hidden()
    await caller.until("document.activeElement.id === 'token'")
    await page.keyboard.type("another.token")
    await page.keyboard.press("Enter")
    await page.keyboard.press("Enter")
    await caller.until("rejoinder.state.phase === 'live'")
    assert double.authorizations == ["Bearer another.token"]


async def test_a_new_token_in_the_address_of_an_open_page_is_taken(caller, double) -> None:
    page = await caller.open()
    await page.evaluate("location.hash = 'token=newer'")
    await caller.until("location.hash === ''")
    assert await page.evaluate("sessionStorage.getItem('rejoinder.token')") == "newer"
