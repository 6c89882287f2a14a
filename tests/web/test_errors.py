"""Each way a call can fail says what to do."""

from __future__ import annotations

import pytest


def refuse(double, status: int, code: str, **headers: str) -> None:
    double.refuse = type(double).refusal(status, code, headers)


async def alert(page) -> str:
    await page.locator(".alert-title").wait_for()
    return await page.get_by_role("alert").inner_text()


async def press_call(page) -> None:
    await page.get_by_role("button", name="Call", exact=True).click()


async def test_a_missing_token_asks_for_one_and_the_call_then_works(caller, double) -> None:
    page = await caller.open(token=None)
    assert await page.locator("#token-form").is_visible()
    await press_call(page)
    assert "Open the address that the server printed" in await page.locator("#token-help").inner_text()
    said = await alert(page)
    assert "An access token is needed" in said
    assert "Open the address that the server printed" in said
    assert await page.evaluate("document.activeElement.id") == "token"
    await page.keyboard.type("typed.token")
    await page.keyboard.press("Enter")
    assert await page.locator("#token-form").is_hidden()
    assert await page.locator(".alert-title").count() == 0
    await page.keyboard.press("Enter")
    await caller.until("rejoinder.state.phase === 'live'")
    assert double.authorizations == ["Bearer typed.token"]


async def test_a_refused_token_is_forgotten_and_asked_for(make_caller, double) -> None:
    async with make_caller() as caller:
        refuse(double, 401, "token_expired")
        page = await caller.open()
        await press_call(page)
        said = await alert(page)
        assert "not accepted" in said
        assert "Open the address that the server printed" in said
        assert "when a key is configured, paste what “rejoinder token” prints" in said
        assert "refused for the test: token_expired" in said
        assert await page.locator("#token-form").is_visible()
        assert await page.evaluate("sessionStorage.getItem('rejoinder.token')") is None
        assert await caller.state("phase") == "idle"


@pytest.mark.parametrize(("status", "title"), [(503, "All lines are busy"), (429, "Too many calls from here")])
async def test_a_full_server_counts_down_and_lets_the_caller_try_again(make_caller, double, status, title) -> None:
    async with make_caller() as caller:
        refuse(double, status, "full", **{"Retry-After": "7"})
        await caller.page.clock.install()
        page = await caller.open()
        await press_call(page)
        assert title in await alert(page)
        button = page.locator("#call")
        assert await button.get_attribute("aria-disabled") == "true"
        assert (await button.inner_text()).startswith("Call again in ")
        await button.dispatch_event("click")  # click() waits for an aria-disabled button
        assert len(double.offers) == 1, "the countdown was not kept"
        await page.clock.run_for(3000)
        assert await caller.state("retryInS") in (4, 5)
        await page.clock.run_for(5000)
        assert await button.get_attribute("aria-disabled") == "false"
        double.refuse = None
        await button.click()
        await caller.until("rejoinder.state.phase === 'live'")
        assert await page.locator(".alert-title").count() == 0


@pytest.mark.parametrize(
    ("status", "title"),
    [(403, "You may not call from here"), (415, "The server refused the call"), (500, "The server refused the call")],
)
async def test_other_refusals_pass_on_the_servers_words(make_caller, double, status, title) -> None:
    async with make_caller() as caller:
        refuse(double, status, "some_code")
        page = await caller.open()
        await press_call(page)
        said = await alert(page)
        assert title in said
        assert "refused for the test: some_code" in said


async def test_a_refused_microphone_says_where_to_allow_it(asking_browser, make_caller, double) -> None:
    async with make_caller(asking_browser, permissions=[]) as caller:
        page = await caller.open()
        await press_call(page)
        said = await alert(page)
        assert "Your microphone is blocked" in said
        assert "Allow the microphone for this page" in said
        assert double.offers == []
        assert await caller.state("phase") == "idle"


async def test_no_microphone_at_all(make_caller, double) -> None:
    async with make_caller() as caller:
        await caller.page.add_init_script(
            "navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('none', 'NotFoundError'); }"
        )
        page = await caller.open()
        await press_call(page)
        assert "No microphone found" in await alert(page)
        assert double.offers == []


async def test_an_insecure_page_says_so_before_the_caller_tries(make_caller, double) -> None:
    async with make_caller() as caller:
        page = await caller.open(origin=double.origin.replace("127.0.0.1", "insecure.example"))
        said = await alert(page)
        assert "may not use your microphone" in said
        assert "https://" in said


async def test_no_network(make_caller, double) -> None:
    async with make_caller() as caller:
        page = await caller.open()
        await page.context.set_offline(True)
        await press_call(page)
        assert "You are offline" in await alert(page)
        await page.context.set_offline(False)
        await press_call(page)
        await caller.until("rejoinder.state.phase === 'live'")


async def test_a_server_that_is_gone(make_caller, double) -> None:
    async with make_caller() as caller:
        page = await caller.open()
        await page.route("**/v1/calls", lambda route: route.abort("connectionrefused"))
        await press_call(page)
        assert "The server does not answer" in await alert(page)


async def test_an_answer_that_leads_nowhere(make_caller, double) -> None:
    async with make_caller() as caller:
        double.deaf = True
        await caller.page.clock.install()
        page = await caller.open()
        await press_call(page)
        await caller.until("rejoinder.state.phase === 'connecting'")
        await page.clock.run_for(16_000)
        said = await alert(page)
        assert "No sound path to the server" in said
        assert "firewall" in said
        await double.until(lambda: double.deletes == ["call_1"], "DELETE of the dead call")


async def test_an_answer_that_is_no_answer(make_caller, double) -> None:
    async with make_caller() as caller:
        page = await caller.open()
        await page.route("**/v1/calls", lambda route: route.fulfill(status=201, body='{"id": 5}'))
        await press_call(page)
        assert "does not understand" in await alert(page)


async def test_a_server_event_error_is_shown_and_can_be_dismissed(caller, double) -> None:
    page = await caller.call()
    fault = {"type": "invalid_request_error", "code": "bad", "message": "no such voice", "param": "session.voice"}
    double.say({"type": "error", "error": fault})
    said = await alert(page)
    assert "no such voice (session.voice)" in said
    assert await caller.state("phase") == "live"
    await page.get_by_role("button", name="Dismiss").focus()
    await page.keyboard.press("Enter")
    assert await page.locator(".alert-title").count() == 0
    assert await page.evaluate("document.activeElement.id") == "hang-up"


async def test_a_microphone_that_goes_away_is_reported_and_the_call_goes_on(caller, double) -> None:
    page = await caller.call()
    await page.evaluate("rejoinder.peerConnection.getSenders()[0].track.dispatchEvent(new Event('ended'))")
    assert "Your microphone went away" in await alert(page)
    assert await caller.state("phase") == "live"


async def test_hanging_up_while_the_server_answers_deletes_the_call(caller, double) -> None:
    page = await caller.open()
    await page.evaluate(
        """() => {
          const real = window.fetch;
          window.fetch = async (url, options) => {
            const response = await real(url, options);
            if (options?.method === 'POST') await new Promise((release) => { window.release = release; });
            return response;
          };
        }"""
    )
    await press_call(page)
    await caller.until("window.release")
    await page.evaluate("rejoinder.hangUp(); window.release()")
    await double.until(lambda: double.deletes == ["call_1"], "DELETE")
    assert await caller.state("phase") == "ended"
