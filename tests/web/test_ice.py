"""Relays in the page: asked for before a call, and what is said when none of them helps."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A TCP port that nobody listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def relay(port: int) -> dict[str, object]:
    return {"urls": [f"turn:127.0.0.1:{port}?transport=tcp"], "username": "1:x", "credential": "y"}


async def test_the_servers_relays_are_known_before_the_offer_and_asked_for_once(caller, double, closed_port) -> None:
    double.ice_servers = [relay(closed_port)]
    page = await caller.call()
    assert double.asked_ice == ["Bearer a.test.token"]
    configured = await page.evaluate("rejoinder.peerConnection.getConfiguration()")
    assert configured["iceServers"][0]["urls"] == double.ice_servers[0]["urls"]
    assert configured["iceTransportPolicy"] == "all"
    await page.get_by_role("button", name="Hang up").click()
    await page.get_by_role("button", name="Call again").click()
    await caller.until("rejoinder.state.phase === 'live' && rejoinder.state.session")
    assert len(double.asked_ice) == 1


async def test_a_relay_out_of_reach_is_said_where_nothing_else_may_be_used(make_caller, double, closed_port) -> None:
    async with make_caller() as caller:
        double.ice_servers = [relay(closed_port)]
        page = caller.page
        await page.goto(f"{double.origin}/?ice=relay#token=a.test.token")
        await caller.until("window.rejoinder")
        await page.get_by_role("button", name="Call", exact=True).click()
        await page.locator(".alert-title").wait_for()
        said = await page.get_by_role("alert").inner_text()
        assert "No sound path to the server" in said
        assert "the relay for such networks cannot be reached either" in said
        assert await page.evaluate("location.search") == "?ice=relay"


async def test_a_server_that_names_no_relays_or_nonsense_does_not_stop_a_call(make_caller, double) -> None:
    async with make_caller() as caller:
        await caller.page.route("**/v1/ice", lambda route: route.fulfill(status=404, body="no such page"))
        await caller.call()
    async with make_caller() as caller:
        double.ice_servers = [{"urls": ["what:is:this"]}]
        await caller.call()


@pytest.mark.parametrize(
    ("code", "text", "title"),
    [
        (401, "Unauthorized.", "The relay does not let this call in"),
        (486, "Allocation Quota Reached", "The relay is full"),
        (508, "Insufficient Capacity", "The relay is full"),
        (701, "TURN allocate request timed out.", "No sound path to the server"),
    ],
)
async def test_each_refusal_of_a_relay_has_words_of_its_own(
    make_caller, double, closed_port, code, text, title
) -> None:
    async with make_caller() as caller:
        double.deaf = True
        double.ice_servers = [relay(closed_port)]
        await caller.page.clock.install()
        page = await caller.open()
        await page.get_by_role("button", name="Call", exact=True).click()
        await caller.until("rejoinder.state.phase === 'connecting'")
        await page.evaluate(
            """([errorCode, errorText, url]) => rejoinder.peerConnection.dispatchEvent(
                 Object.assign(new Event('icecandidateerror'), { errorCode, errorText, url }))""",
            [code, text, "turn:relay.example:3478"],
        )
        await page.clock.run_for(16_000)
        await page.locator(".alert-title").wait_for()
        said = await page.get_by_role("alert").inner_text()
        assert title in said
        if code != 701:
            assert f"The browser said: {text.rstrip('.')} ({code}, turn:relay.example:3478)" in said
