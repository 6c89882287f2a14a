"""Telephone calls of real peers: baresip and sipp against a whole server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from agent.media.frames import Pcm
from agent.media.resample import resample
from agent.speech.clips import write_wav
from tests.e2e.support import ROOT, Server, say, silence, wait_for
from tests.e2e.telephones import Baresip, Kamailio, Sipp, expect, free_ports, invite, pause, play, request

ACK = request("ACK", 1, inside=True)


@dataclass
class Office:
    """A server with the telephone door, and what its hook wrote down."""

    server: Server
    port: int
    notes: Path

    def turns(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.notes.read_text().splitlines()] if self.notes.exists() else []


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kamailio]:
    with Kamailio(tmp_path_factory.mktemp("provider")) as running:
        yield running


@pytest.fixture(scope="module")
def office(provider: Kamailio, start_server: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory) -> Office:
    notes = tmp_path_factory.mktemp("office") / "turns"
    port = free_ports()
    server = start_server(
        "--hook",
        f"{ROOT}/tests/e2e/telephone_hook.py:reply",
        TURNS=str(notes),
        REJOINDER_SIP__ENABLED="true",
        REJOINDER_SIP__PORT=str(port),
        REJOINDER_SIP__TRUSTED="127.0.0.1",
        REJOINDER_SIP__SRTP="any",
        REJOINDER_SIP__REGISTRARS=f"sip:127.0.0.1:{provider.port}",
        REJOINDER_SIP__PASSWORD=Kamailio.PASSWORD,
        REJOINDER_SIP__SESSION_HEADERS="User-Agent",
    )
    return Office(server, port, notes)


def recording(folder: Path, rate_hz: int) -> Path:
    """A question after four seconds, and time for the answer; the softphone hangs up at its end."""
    path = folder / "question.wav"
    parts: list[Pcm] = [silence(4, rate_hz), say("What are your opening hours?", rate_hz), silence(9, rate_hz)]
    write_wav(path, np.concatenate(parts), rate_hz)
    return path


def test_softphones_ask_by_voice_and_by_key_and_hear_the_answer(
    office: Office, tmp_path: Path, transcribe: Callable[[Pcm, int], str]
) -> None:
    accounts = {
        "PCMU": (8_000, ";audio_codecs=PCMU/8000/1"),
        "secret": (16_000, ";audio_codecs=G722/16000/1;mediaenc=srtp-mand"),
    }
    with contextlib.ExitStack() as stack:
        phones = {}
        for user, (rate_hz, account) in accounts.items():
            folder = tmp_path / user
            folder.mkdir()
            phones[user] = stack.enter_context(Baresip(folder, recording(folder, rate_hz), account, user=user))
        for phone in phones.values():
            phone.dial(office.port)

        def asked(user: str, kind: str) -> list[dict[str, object]]:
            return [turn for turn in office.turns() if turn["caller"] == user and turn["kind"] == kind]

        for user, phone in phones.items():
            wait_for(lambda user=user: asked(user, "greeting"), f"the greeting of {user}", 20)
            phone.command("sndcode", "5")
        for user, phone in phones.items():
            wait_for(lambda user=user: asked(user, "dtmf"), f"the key of {user}", 20)
            phone.until("CALL_CLOSED", 60)
            assert [turn["text"] for turn in asked(user, "dtmf")] == ["5"]
            turn = asked(user, "speech")[0]
            assert "opening hours" in str(turn["text"]).lower()
            assert turn["called"] == "100"
            assert "baresip" in str(turn["metadata"])
        heard = np.concatenate([resample(*phone.heard(), 16_000) for phone in phones.values()])
        text = transcribe(heard, 16_000).lower().replace("9", "nine")
        assert text.count("nine in the morning") == 2, text


def test_twenty_calls_at_five_a_second_with_rtp_are_all_greeted(office: Office, tmp_path: Path) -> None:
    noise = tmp_path / "noise.ul"
    # Mu-law of a line without speech: smallest positive and negative values.
    noise.write_bytes(bytes(np.random.default_rng(1).choice(np.array([0xFE, 0x7E], np.uint8), 8_000)))
    before = len(office.turns())
    ok = expect(100, optional=True) + expect(200)
    end = request("BYE", 2, inside=True) + expect(200)
    load = Sipp(
        *(tmp_path, "load", invite() + ok + ACK + play(noise) + pause(3_000) + end, office.port),
        *("-m", "20", "-r", "5", "-l", "20"),
    )
    hold = Sipp(
        tmp_path,
        "hold",
        invite()
        + ok
        + ACK
        + pause(500)
        + invite(2, "sendonly", inside=True)
        + expect(100, optional=True)
        + expect(200, says="a=recvonly")
        + request("ACK", 2, inside=True)
        + pause(1_000)
        + invite(3, "sendrecv", inside=True)
        + expect(100, optional=True)
        + expect(200, says="a=sendrecv")
        + request("ACK", 3, inside=True)
        + pause(300)
        + request("BYE", 4, inside=True)
        + expect(200),
        office.port,
        *("-m", "1"),
    )
    for run in (load, hold):
        run.wait()
    greeted = [turn for turn in office.turns()[before:] if turn["kind"] == "greeting"]
    assert len(greeted) == 21
    wait_for(lambda: office.server.metric("voice_calls_active") == 0, "the end of all calls")
    log = office.server.log.read_text()
    assert "Traceback" not in log
    assert log.count("call on hold") == log.count("call off hold") == 1


def test_a_call_to_the_number_that_is_registered_at_a_provider_arrives(
    office: Office, provider: Kamailio, tmp_path: Path
) -> None:
    wait_for(lambda: '"message": "registered"' in office.server.log.read_text(), "the registration")
    account = f";auth_user=carol;auth_pass={Kamailio.PASSWORD};audio_codecs=PCMU/8000/1"
    with Baresip(tmp_path, recording(tmp_path, 8_000), account, user="carol") as phone:
        phone.dial(provider.port, "agent")
        wait_for(lambda: any(turn["caller"] == "carol" for turn in office.turns()), "the greeting")
        phone.command("hangup")
        phone.until("CALL_CLOSED")
    wait_for(lambda: office.server.metric("voice_calls_active") == 0, "the end of the call")
    assert office.server.stop() == 0
    assert '"message": "not registered", "status": 200' in office.server.log.read_text()
