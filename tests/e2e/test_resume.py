"""A real Chromium whose connection is lost in mid-reply: by a reload, by the connection, by the network."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from agent.media.frames import Pcm
from agent.speech.clips import write_wav
from tests.e2e.conftest import StartServer
from tests.e2e.storyteller import STORY
from tests.e2e.support import Server, silence, wait_for
from tests.e2e.test_browser import FLAGS, RATE_HZ, RECORD, RECORDED, Page, decode

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def teller(start_server: StartServer) -> Server:
    return start_server(REJOINDER_NLU__KIND="function", REJOINDER_NLU__TARGET="tests.e2e.storyteller:story")


@contextmanager
def calling(teller: Server, tmp_path: Path) -> Iterator[Page]:
    """A page in a call, two seconds into the story."""
    write_wav(tmp_path / "caller.wav", silence(3.0), RATE_HZ)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=[*FLAGS, f"--use-file-for-fake-audio-capture={tmp_path / 'caller.wav'}%noloop"],
        )
        page = Page(browser.new_page(), teller)
        page.page.get_by_role("button", name="Call", exact=True).click()
        page.until(lambda: page.state()["phase"] == "live", "the call to connect", 10)
        page.until(lambda: page.state()["playing"], "the story to begin", 10)
        page.page.wait_for_timeout(4_500)
        yield page
        page.page.get_by_role("button", name="Hang up").click()
        page.until(lambda: page.state()["phase"] == "ended", "the end of the call", 5)
        wait_for(lambda: teller.metric("voice_calls_active") == 0, "the call to be gone")
        assert page.problems == []
        browser.close()


def hear_the_rest(page: Page, transcribe: Callable[[Pcm, int], str]) -> str:
    page.until(lambda: page.state()["phase"] == "live", "the call to be resumed", 20)
    page.page.evaluate(RECORD)
    page.until(lambda: page.items("agent")[0]["status"] != "in_progress", "the end of the story", 30)
    page.page.wait_for_timeout(500)
    return transcribe(decode(base64.b64decode(page.page.evaluate(RECORDED))), RATE_HZ).lower()


def check_the_story_was_told_once(page: Page, rest: str) -> None:
    (told,) = page.items("agent")
    assert (told["status"], told["text"], told["unheard"]) == ("completed", STORY, "")
    assert STORY.startswith("Welcome")
    assert "Welcome to the department store" in page.page.locator("#items").inner_text()
    assert "coats" in rest or "winter" in rest
    assert "garden" not in rest, "what was heard before is not said again"


def test_a_reload_in_mid_reply_goes_on_where_it_was(
    teller: Server, tmp_path: Path, transcribe: Callable[[Pcm, int], str]
) -> None:
    with calling(teller, tmp_path) as page:
        session = page.state()["session"]["id"]
        page.page.reload()
        page.until(lambda: page.page.locator("#status").inner_text() != "Not connected", "the page to resume", 5)
        rest = hear_the_rest(page, transcribe)
        assert page.state()["session"]["id"] == session
        check_the_story_was_told_once(page, rest)
        # The conversation goes on, and remembers.
        page.page.locator("#message").fill("What have you said?")
        page.page.locator("#message").press("Enter")
        page.until(lambda: any("said 1 thing" in i["heard"] for i in page.items("agent")), "an answer", 15)


def test_a_connection_that_breaks_is_made_anew_by_the_page(
    teller: Server, tmp_path: Path, transcribe: Callable[[Pcm, int], str]
) -> None:
    with calling(teller, tmp_path) as page:
        session = page.state()["session"]["id"]
        page.page.evaluate("() => { window.broken = window.rejoinder.peerConnection; window.broken.close(); }")
        page.until(lambda: page.state()["phase"] == "interrupted", "the page to notice", 15)
        page.until(
            lambda: page.page.evaluate("() => rejoinder.peerConnection !== window.broken"), "a new connection", 10
        )
        rest = hear_the_rest(page, transcribe)
        assert page.state()["session"]["id"] == session
        check_the_story_was_told_once(page, rest)


def test_hanging_up_is_not_resumed_by_a_reload(teller: Server, tmp_path: Path) -> None:
    with calling(teller, tmp_path) as page:
        page.page.get_by_role("button", name="Hang up").click()
        wait_for(lambda: teller.metric("voice_calls_active") == 0, "the call to be gone")
        page.page.reload()
        page.page.wait_for_timeout(1_000)
        assert page.state()["phase"] == "idle"
        page.page.get_by_role("button", name="Call", exact=True).click()
        page.until(lambda: page.state()["phase"] == "live", "a new call", 10)
