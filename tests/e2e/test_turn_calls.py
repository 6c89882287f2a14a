"""Calls through a real relay: Chromium with nothing but relays, and the server's own use of one."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Route, sync_playwright

from agent.config import MediaSettings
from agent.media.ticker import Ticker
from agent.media.webrtc import WebRtcPort
from agent.speech.clips import write_wav
from tests.agent.media.conftest import Client, Sink
from tests.e2e.conftest import StartServer
from tests.e2e.relay import SECRET, Relay, certificate, credentials, start_relay
from tests.e2e.support import Server, say, silence, wait_for
from tests.e2e.test_browser import (
    ANSWER_S,
    FLAGS,
    INBOUND,
    RATE_HZ,
    RECORD,
    RECORDED,
    Page,
    decode,
    script,
    utterances,
)

CONNECT_S = 3.0
"""Before the caller speaks: the relay, and connecting over it."""

SELECTED = """
async () => {
  const stats = [...(await window.rejoinder.peerConnection.getStats()).values()];
  const transport = stats.find((one) => one.type === 'transport');
  const pair = stats.find((one) => one.id === transport?.selectedCandidatePairId);
  const local = stats.find((one) => one.id === pair?.localCandidateId);
  return local ? {type: local.candidateType, protocol: local.relayProtocol, url: local.url} : {};
}
"""


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    running = start_relay(tmp_path_factory.mktemp("relay"))
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def relayed_server(relay: Relay, start_server: StartServer) -> Server:
    return start_server(
        REJOINDER_TURN__URLS=",".join(relay.urls.values()),
        REJOINDER_TURN__SECRET=SECRET,
        # The relay's packets come from loopback, and so must ours.
        REJOINDER_MEDIA__INTERFACES="127.0.0.1",
        # The caller speaks first: a greeting takes longer than all else here.
        REJOINDER_CONVERSATION__GREET="false",
    )


@contextmanager
def calling(server: Server, microphone: Path, change: Callable[[dict[str, Any]], None]) -> Iterator[Page]:
    """The call page with relays only; `change` edits what the server says about them before the page reads it."""

    def edited(route: Route) -> None:
        answer = route.fetch()
        body = answer.json()
        change(body["ice_servers"][0])
        route.fulfill(response=answer, body=json.dumps(body))

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=[*FLAGS, "--ignore-certificate-errors", f"--use-file-for-fake-audio-capture={microphone}%noloop"],
        )
        tab = browser.new_page()
        tab.route("**/v1/ice", edited)
        page = Page(tab, server, "?ice=relay")
        tab.get_by_role("button", name="Call", exact=True).click()
        yield page
        browser.close()


def only(url: str) -> Callable[[dict[str, Any]], None]:
    return lambda server: server.update(urls=[url])


def test_a_whole_call_with_sound_over_a_udp_relay(
    relay: Relay, relayed_server: Server, tmp_path: Path, transcribe: Callable[..., str]
) -> None:
    caller = script(CONNECT_S, say("Are you open on Sunday?"), ANSWER_S)
    write_wav(tmp_path / "caller.wav", caller, RATE_HZ)
    with calling(relayed_server, tmp_path / "caller.wav", only(relay.urls["UDP"])) as page:
        page.until(lambda: page.state()["phase"] == "live", "the call to connect", 20)
        page.page.evaluate(RECORD)
        page.until(lambda: [i for i in page.items("user") if i["final"]], "the question", len(caller) / RATE_HZ + 10)
        page.until(lambda: page.state()["timings"], "the answer", 15)
        page.until(lambda: page.state()["floor"] == "nobody", "the answer's end", 20)
        inbound = page.page.evaluate(INBOUND)
        selected = page.page.evaluate(SELECTED)
        recording = decode(base64.b64decode(page.page.evaluate(RECORDED)))
        asked = page.items("user")[-1]["text"].lower()
        page.page.get_by_role("button", name="Hang up").click()
        page.until(lambda: page.state()["phase"] == "ended", "the end of the call", 5)
        problems = page.problems

    assert selected == {"type": "relay", "protocol": "udp", "url": relay.urls["UDP"]}
    assert problems == []
    assert "sunday" in asked
    heard = " ".join(transcribe(one, RATE_HZ).lower() for one in utterances(recording))
    assert re.search(r"closed", heard)
    assert inbound["energy"] > 0.01
    assert inbound["lost"] == 0
    wait_for(lambda: relayed_server.metric("voice_calls_active") == 0, "the call to be gone")


@pytest.mark.parametrize("kind", ["TCP", "TLS"])
def test_an_answer_is_heard_over_a_relay_by(kind: str, relay: Relay, relayed_server: Server, tmp_path: Path) -> None:
    write_wav(tmp_path / "caller.wav", silence(3.0), RATE_HZ)
    with calling(relayed_server, tmp_path / "caller.wav", only(relay.urls[kind])) as page:
        page.until(lambda: page.state()["phase"] == "live", "the call to connect", 20)
        box = page.page.locator("#message")
        box.fill("Where is order 4271?")
        box.press("Enter")
        page.until(lambda: page.page.evaluate(INBOUND).get("energy", 0) > 0.001, "the answer's sound", 15)
        selected = page.page.evaluate(SELECTED)
        problems = page.problems
        page.page.get_by_role("button", name="Hang up").click()
        page.until(lambda: page.state()["phase"] == "ended", "the end of the call", 5)
    assert selected == {"type": "relay", "protocol": kind.lower(), "url": relay.urls[kind]}
    assert problems == []


def test_a_relay_that_refuses_is_told_to_the_caller_in_words(
    relay: Relay, relayed_server: Server, tmp_path: Path
) -> None:
    write_wav(tmp_path / "caller.wav", silence(3.0), RATE_HZ)

    def spoil(server: dict[str, Any]) -> None:
        server.update(urls=[relay.urls["UDP"]], credential="d3Jvbmc=")

    with calling(relayed_server, tmp_path / "caller.wav", spoil) as page:
        page.page.locator(".alert-title").wait_for(timeout=20_000)
        said = page.page.get_by_role("alert").inner_text()
        phase = page.state()["phase"]
    assert "The relay does not let this call in" in said
    assert "The browser said: Unauthorized (401" in said
    assert phase in ("idle", "ended")
    wait_for(lambda: relayed_server.metric("voice_calls_active") == 0, "the call to be gone", 30)


@pytest.mark.parametrize("kind", ["UDP", "TCP", "TLS"])
async def test_the_servers_own_relay_carries_a_call(kind: str, relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(relay.folder / "cert.pem"))
    given = credentials(f"server-{kind}")
    settings = MediaSettings(
        ice_policy="relay",
        turn_server=relay.urls[kind],
        turn_username=given.username,
        turn_password=given.password,  # type: ignore[arg-type]
    )
    client, sink = Client(), Sink()
    async with Ticker() as ticker:
        port = await WebRtcPort.answer(
            await client.offer(), settings=settings, ticker=ticker, on_message=lambda text: None
        )
        candidates = [line for line in port.answer_sdp.splitlines() if line.startswith("a=candidate")]
        assert candidates
        assert all(" typ relay" in line for line in candidates)
        await client.accept(port.answer_sdp)
        port.attach(sink)
        await sink.until(lambda: len(sink.frames) >= 25 and any(frame.any() for frame in sink.frames))
        assert client.channel is not None
        await client.opened.wait()
        port.send_message("through the relay")
        while not client.messages:
            client.message_came.clear()
            await client.message_came.wait()
        assert client.messages == ["through the relay"]
        await port.close()
        await client.pc.close()


def doctor(relay: Relay, **env: str) -> tuple[int, list[dict[str, str]]]:
    done = subprocess.run(
        [sys.executable, "-m", "agent", "doctor", "--turn", "--json"],
        cwd=relay.folder,
        env={**relay.env, "REJOINDER_TURN__URLS": ",".join(relay.urls.values()), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def test_the_doctor_proves_the_relayed_path_over_each_transport(relay: Relay) -> None:
    code, checks = doctor(relay, SSL_CERT_FILE=str(relay.folder / "cert.pem"))
    assert [(check["name"].split()[0], check["state"]) for check in checks] == [
        ("UDP", "ok"),
        ("TCP", "ok"),
        ("TLS", "ok"),
    ]
    assert all(
        re.search(r"a packet went over 127\.0\.0\.1:\d+ to .* and back in [\d.]+ ms", c["found"]) for c in checks
    )
    assert code == 0


def test_the_doctor_says_what_is_wrong(relay: Relay) -> None:
    code, checks = doctor(relay, REJOINDER_TURN__SECRET="another-secret-of-thirty-two-chars")
    assert code == 2
    udp, tcp, tls = checks
    for check in (udp, tcp):
        assert "refused the credentials (401 Unauthorized)" in check["found"]
        assert "REJOINDER_TURN__SECRET" in check["fix"]
    assert "has a certificate that is not trusted" in tls["found"]
    assert "SECRET" not in tls["fix"]


def served_certificate(relay: Relay) -> bytes:
    context = ssl.create_default_context(cafile=str(relay.folder / "cert.pem"))
    with (
        socket.create_connection(("127.0.0.1", relay.tls_port), timeout=10) as sock,
        context.wrap_socket(sock, server_hostname="127.0.0.1") as tls,
    ):
        return tls.getpeercert(binary_form=True) or b""


def test_a_relay_takes_a_new_certificate_is_started_again_when_it_dies_and_ends_with_its_keeper(
    tmp_path: Path,
) -> None:
    relay = start_relay(tmp_path)
    before = served_certificate(relay)
    certificate(tmp_path)
    relay.process.send_signal(signal.SIGUSR2)

    def renewed() -> bool:
        try:
            return served_certificate(relay) != before
        except ssl.SSLCertVerificationError:
            return False  # Still the old one, which the new file does not vouch for.

    wait_for(renewed, "the new certificate")
    first = relay.coturn_pid
    os.kill(first, 9)
    assert relay.line()["listens"] == [f"udp/{relay.port}", f"tcp/{relay.port}", f"tcp/{relay.tls_port}"]
    second = relay.coturn_pid
    assert second != first
    assert oct((tmp_path / "turnserver.conf").stat().st_mode)[-3:] == "600"
    assert relay.stop() == 0
    assert not Path(f"/proc/{second}").exists()
