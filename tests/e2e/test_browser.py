"""A real Chromium with a recorded caller as its microphone: the first call, from end to end."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from playwright.sync_api import sync_playwright

from agent.media.frames import Pcm
from agent.speech.clips import write_wav
from tests.e2e.conftest import StartServer
from tests.e2e.support import Server, say, silence, wait_for

pytestmark = pytest.mark.alone

RATE_HZ = 16_000
GREETING_S = 7.0
"""Before the caller speaks: connecting, and the greeting."""
ANSWER_S = 9.0
"""After a question: endpoint, answer and a breath."""

FLAGS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
    "--allow-loopback-in-peer-connection",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

RECORD = """
() => {
  const recorder = new MediaRecorder(window.rejoinder.remoteStream, {mimeType: 'audio/webm;codecs=opus'});
  window.recorded = [];
  recorder.ondataavailable = (event) => window.recorded.push(event.data);
  recorder.start(1000);
  window.recorder = recorder;
}
"""

RECORDED = """
async () => {
  await new Promise((done) => { window.recorder.onstop = done; window.recorder.stop(); });
  const bytes = new Uint8Array(await new Blob(window.recorded).arrayBuffer());
  let text = '';
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}
"""

INBOUND = """
async () => {
  const stats = [...(await window.rejoinder.peerConnection.getStats()).values()];
  const s = stats.find((one) => one.type === 'inbound-rtp');
  return s ? {packets: s.packetsReceived, lost: s.packetsLost, energy: s.totalAudioEnergy,
              concealed: s.concealedSamples - s.silentConcealedSamples, samples: s.totalSamplesReceived} : {};
}
"""


def script(*parts: Pcm | float) -> Pcm:
    """Speech and seconds of silence, joined."""
    return np.concatenate([silence(part) if isinstance(part, float) else part for part in parts])


def utterances(pcm: Pcm, gap_s: float = 1.2) -> list[Pcm]:
    """A recording cut at its long silences."""
    frame = RATE_HZ // 50
    frames = pcm[: len(pcm) // frame * frame].reshape(-1, frame).astype(np.float32)
    loud = np.flatnonzero(np.sqrt((frames**2).mean(axis=1)) > 100)
    if not len(loud):
        return []
    cuts = np.flatnonzero(np.diff(loud) > gap_s * 50)
    starts, ends = loud[np.r_[0, cuts + 1]], loud[np.r_[cuts, len(loud) - 1]]
    return [pcm[max(0, s - 5) * frame : (e + 6) * frame] for s, e in zip(starts, ends, strict=True)]


def decode(webm: bytes) -> Pcm:
    """A recording as int16 [n] mono at 16 kHz."""
    with av.open(io.BytesIO(webm)) as container:
        resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE_HZ)
        frames = [f for frame in container.decode(audio=0) for f in resampler.resample(frame)]
    return np.concatenate([frame.to_ndarray()[0] for frame in frames])


class Page:
    """The call page, as a person uses it."""

    def __init__(self, page: Any, server: Server, query: str = "") -> None:
        self.page = page
        self.problems: list[str] = []
        page.on("console", lambda m: self.problems.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.goto(f"{server.url}/{query}#token={server.token}")

    def state(self) -> dict[str, Any]:
        return dict(self.page.evaluate("() => JSON.parse(JSON.stringify(window.rejoinder.state))"))

    def items(self, role: str) -> list[dict[str, Any]]:
        return [item for item in self.state()["items"] if item["role"] == role]

    def until(self, condition: Callable[[], object], what: str, seconds: float) -> None:
        for _ in range(int(seconds * 10)):
            if condition():
                return
            self.page.wait_for_timeout(100)
        pytest.fail(f"not within {seconds:g} s: {what}; state {self.state()}; console {self.problems}")


def test_a_caller_asks_three_questions_and_interrupts(
    server: Server, tmp_path: Path, transcribe: Callable[[Pcm, int], str]
) -> None:
    caller = script(
        GREETING_S,
        say("Are you open on Sunday?"),
        ANSWER_S,
        say("How do I return something?"),
        ANSWER_S,
        say("What are your opening hours?"),
        2.6,
        say("No, please stop. How much is delivery?"),
        ANSWER_S,
    )
    write_wav(tmp_path / "caller.wav", caller, RATE_HZ)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=[*FLAGS, f"--use-file-for-fake-audio-capture={tmp_path / 'caller.wav'}%noloop"],
        )
        page = Page(browser.new_page(), server)
        page.page.get_by_role("button", name="Call", exact=True).click()
        page.until(lambda: page.state()["phase"] == "live", "the call to connect", 10)
        page.page.evaluate(RECORD)
        # By the last question, not by the number of turns: where a busy machine tears a hole into Chromium's
        # microphone, "No, please stop." is a turn of its own, and rightly so.
        page.until(
            lambda: any(i["final"] and "delivery" in i["text"].lower() for i in page.items("user")),
            "the last question",
            len(caller) / RATE_HZ,
        )
        page.until(lambda: len(page.state()["timings"]) >= 4, "timings of four answers", 10)
        page.until(lambda: page.state()["floor"] == "nobody", "the last answer's end", 15)
        inbound = page.page.evaluate(INBOUND)
        recording = decode(base64.b64decode(page.page.evaluate(RECORDED)))
        users = [item["text"].lower() for item in page.items("user")]
        agents = page.items("agent")
        shown = page.page.locator("#items").inner_text().lower()
        timings = page.state()["timings"]
        page.page.get_by_role("button", name="Hang up").click()
        page.until(lambda: page.state()["phase"] == "ended", "the end of the call", 5)
        problems = page.problems
        browser.close()

    assert problems == []
    # The right transcripts, in the page's state and before the caller's eyes.
    assert 4 <= len(users) <= 5
    for text, expected in zip([*users[:3], users[-1]], ("sunday", "return", "opening hours", "delivery"), strict=True):
        assert expected in text
        assert expected in shown
    # The right facts, as the caller's ear had them.
    heard = [transcribe(utterance, RATE_HZ).lower() for utterance in utterances(recording)]
    everything = " ".join(heard)
    assert re.search(r"closed", everything)
    assert re.search(r"(thirty|30) days", everything)
    # The barge-in cut one reply, and only that one; an answer to half a turn is given up before it is heard.
    (cut,) = [item for item in agents if item["status"] == "cancelled" and item["heard"]]
    assert cut["unheard"]
    # Sound arrived whole.
    assert inbound["energy"] > 0.01
    assert inbound["lost"] == 0
    assert inbound["concealed"] < 0.02 * inbound["samples"]
    # Each answer says where its time went.
    for one in timings:
        assert one["response_ms"] > 0
        assert one["endpoint_ms"] > 0
    wait_for(lambda: server.metric("voice_calls_active") == 0, "the call to be gone")


def test_a_closed_browser_leaves_no_call_behind(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(REJOINDER_CONVERSATION__RESUME_S="4")
    write_wav(tmp_path / "caller.wav", silence(3.0), RATE_HZ)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=[*FLAGS, f"--use-file-for-fake-audio-capture={tmp_path / 'caller.wav'}%noloop"],
        )
        page = Page(browser.new_page(), server)
        page.page.get_by_role("button", name="Call", exact=True).click()
        page.until(lambda: page.items("agent"), "the greeting", 10)
        assert server.metric("voice_calls_active") == 1
        browser.close()
    # It might have been a reload, or the network: the server waits for as long as the caller may come back.
    wait_for(lambda: server.metric("voice_calls_active") == 0, "the call to be gone", 45)


def test_a_typed_question_is_answered_in_the_call(server: Server, tmp_path: Path) -> None:
    write_wav(tmp_path / "caller.wav", silence(3.0), RATE_HZ)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=[*FLAGS, f"--use-file-for-fake-audio-capture={tmp_path / 'caller.wav'}%noloop"],
        )
        page = Page(browser.new_page(), server)
        page.page.get_by_role("button", name="Call", exact=True).click()
        page.until(lambda: page.items("agent"), "the greeting", 10)
        box = page.page.locator("#message")
        box.fill("Where is order 4271?")
        box.press("Enter")
        page.until(lambda: "on its way" in "".join(i["heard"] for i in page.items("agent")), "an answer", 10)
        browser.close()
