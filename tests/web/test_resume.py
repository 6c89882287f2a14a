"""The page comes back to a call whose connection was lost, by itself and after a reload."""

from __future__ import annotations

COMPLETED = "conversation.item.input_audio_transcription.completed"
LOSE = "rejoinder.peerConnection.close()"


async def test_a_lost_connection_is_made_anew_with_the_token_and_shows_nothing_twice(caller, double) -> None:
    double.resume_s = 30.0
    page = await caller.call()
    assert double.offers[0]["resumable"] is True
    assert await page.evaluate("sessionStorage.getItem('rejoinder.resume')") is None, (
        "a copied tab must not take the call"
    )
    double.say({"type": COMPLETED, "item_id": "i1", "transcript": "Where is it?"})
    await page.locator("#items").get_by_text("Where is it?").wait_for()
    await page.evaluate(LOSE)
    await double.until(lambda: len(double.offers) == 2, "a second offer")
    await caller.until("rejoinder.state.phase === 'live' && rejoinder.state.channelOpen")
    assert double.offers[1]["resume"] == "resume-1"
    assert "channel" not in double.offers[1]
    assert double.deletes == []
    items = [
        {"id": "i1", "role": "user", "text": "Where is it?", "final": True},
        {"id": "r1", "role": "agent", "text": "It is", "heard": "", "unheard": "", "status": "in_progress"},
    ]
    double.say(
        {"type": "rejoinder.history", "items": items, "omitted": 0},
        {"type": "response.output_audio_transcript.delta", "response_id": "r1", "delta": " here."},
    )
    await page.locator("#items").get_by_text("It is here.").wait_for()
    assert await page.locator("#items").get_by_text("Where is it?").count() == 1
    await page.evaluate(LOSE)
    await double.until(lambda: len(double.offers) == 3, "a third offer")
    assert double.offers[2]["resume"] == "resume-2"
    await caller.until("rejoinder.state.phase === 'live'")


async def test_it_tries_again_while_the_server_cannot_be_reached(make_caller, double) -> None:
    async with make_caller() as caller:
        double.resume_s = 30.0
        page = await caller.call()
        double.refuse = type(double).refusal(502, "bad_gateway", {})
        await page.evaluate(LOSE)
        await double.until(lambda: len(double.offers) >= 3, "a second attempt")
        assert await caller.state("phase") == "interrupted"
        double.refuse = None
        await caller.until("rejoinder.state.phase === 'live'")
        assert {offer["resume"] for offer in double.offers[1:]} == {"resume-1"}
        assert await page.evaluate("rejoinder.peerConnection.getSenders()[0].track.readyState") == "live"


async def test_a_call_that_is_over_meanwhile_says_so_and_frees_the_microphone(make_caller, double) -> None:
    async with make_caller() as caller:
        double.resume_s = 30.0
        page = await caller.call()
        await page.evaluate("window.track = rejoinder.peerConnection.getSenders()[0].track")
        double.refuse = type(double).refusal(404, "resume_expired", {})
        await page.evaluate(LOSE)
        await page.get_by_text("The call could not be resumed").wait_for()
        assert await caller.state("phase") == "ended"
        assert await page.evaluate("track.readyState") == "ended"
        assert len(double.offers) == 2
        double.refuse = None
        await page.get_by_role("button", name="Call again").click()
        await caller.until("rejoinder.state.phase === 'live'")
        assert "resume" not in double.offers[2]


async def test_hanging_up_between_two_attempts_ends_the_call(make_caller, double) -> None:
    async with make_caller() as caller:
        double.resume_s = 30.0
        page = await caller.call()
        await page.evaluate("window.track = rejoinder.peerConnection.getSenders()[0].track")
        double.refuse = type(double).refusal(502, "bad_gateway", {})
        await page.evaluate(LOSE)
        await double.until(lambda: len(double.offers) >= 3, "two attempts")
        await page.get_by_role("button", name="Hang up").click()
        await double.until(lambda: double.deletes == ["call_1"], "DELETE")
        assert await caller.state("phase") == "ended"
        assert await page.evaluate("track.readyState") == "ended"


async def test_a_reload_resumes_and_stays_muted(caller, double) -> None:
    double.resume_s = 30.0
    page = await caller.call()
    await page.get_by_role("button", name="Mute").click()
    await page.reload()
    await caller.until("window.rejoinder?.state.phase === 'live'")
    assert [offer.get("resume") for offer in double.offers] == [None, "resume-1"]
    assert double.deletes == []
    assert await page.evaluate("rejoinder.peerConnection.getSenders()[0].track.enabled") is False
    assert await page.get_by_role("button", name="Mute").get_attribute("aria-pressed") == "true"
    assert await page.evaluate("sessionStorage.getItem('rejoinder.resume')") is None
    await page.get_by_role("button", name="Hang up").click()
    await double.until(lambda: len(double.deletes) == 1, "DELETE")
    await page.reload()
    await caller.until("window.rejoinder")
    assert await caller.state("phase") == "idle"
    assert len(double.offers) == 2


async def test_after_a_reload_the_page_says_what_it_is_doing(caller, double) -> None:
    double.resume_s = 30.0
    page = await caller.call()
    double.deaf = True
    await page.reload()
    await page.get_by_role("heading", name="Resuming your call").wait_for()
    assert await page.get_by_role("button", name="Hang up").is_visible()
    double.deaf = False
