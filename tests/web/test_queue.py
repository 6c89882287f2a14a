"""A caller who is queued sees the place, waits without doing anything, and comes in."""

from __future__ import annotations

# `make_caller` and not `caller`: the browser itself complains on the console of every answer that is no success.
TICKET = "wait_0123456789abcdef01234567"


def queue(double, position: int) -> None:
    place = {"ticket": TICKET, "position": position, "wait_s": 20.0}
    double.refuse = type(double).refusal(503, "call_queued", {"Retry-After": "1"}, {"queue": place})


async def press_call(page) -> None:
    await page.get_by_role("button", name="Call", exact=True).click()


async def test_a_queued_caller_sees_the_place_and_comes_in_without_a_hand(make_caller, double) -> None:
    async with make_caller() as caller:
        queue(double, 2)
        page = await caller.open()
        await press_call(page)
        await page.get_by_text("You are number 2 in the queue.").wait_for()
        assert await page.locator(".alert-title").count() == 0
        assert await page.locator("#hang-up").is_visible()
        queue(double, 1)
        await page.get_by_text("You are number 1 in the queue.").wait_for()
        double.refuse = None
        await caller.until("rejoinder.state.phase === 'live'")
        assert "queue" not in double.offers[0]
        assert {offer["queue"] for offer in double.offers[1:]} == {TICKET}


async def test_a_queued_caller_may_hang_up_and_is_asked_for_no_more(make_caller, double) -> None:
    async with make_caller() as caller:
        queue(double, 5)
        page = await caller.open()
        await press_call(page)
        await page.get_by_text("You are number 5 in the queue.").wait_for()
        await page.locator("#hang-up").click()
        await caller.until("rejoinder.state.phase === 'ended'")
        asked = len(double.offers)
        await page.wait_for_timeout(1500)
        assert len(double.offers) == asked
        assert not double.peers


async def test_a_queue_that_ends_in_a_refusal_says_so(make_caller, double) -> None:
    async with make_caller() as caller:
        queue(double, 1)
        page = await caller.open()
        await press_call(page)
        await page.get_by_text("You are number 1 in the queue.").wait_for()
        double.refuse = type(double).refusal(503, "call_refused", {"Retry-After": "5"})
        await page.get_by_role("alert").get_by_text("All lines are busy").wait_for()
