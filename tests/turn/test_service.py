"""coturn as a child, played by a script: started, listened for, told, started again, ended."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.config import TurnSettings
from agent.errors import EnvironmentFault
from signaling.workers.restarts import Restarts
from turn import service
from turn.coturn import Relay, plan, render, write
from turn.service import check_ports, find_program, run_relay

ANSWERING = """
import os, signal, socket, sys
from pathlib import Path
conf = dict(line.split("=", 1) for line in Path(sys.argv[2]).read_text().splitlines() if "=" in line)
said = Path(sys.argv[2]).with_name("said")
def say(text):
    with said.open("a") as file:
        file.write(text + "\\n")
say("start")
signal.signal(signal.SIGHUP, lambda *_: say("hup"))
signal.signal(signal.SIGTERM, {on_term})
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(("127.0.0.1", int(conf["listening-port"])))
while True:
    data, addr = sock.recvfrom(2048)
    # A binding success response (RFC 8489 section 5) that says nothing more.
    sock.sendto(b"\\x01\\x01\\x00\\x00" + data[4:20], addr)
    {then}
"""


class Stage:
    """A relay whose program is a script of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = sock.getsockname()[1]
        self.program = folder / "turnserver"
        self.config = folder / "turnserver.conf"
        self.relay = self._relay()
        write(render(self.relay, folder), self.config)

    def _relay(self) -> Relay:
        low = 1024 if self.port >= 2048 else 2048
        settings = TurnSettings(
            secret="0123456789abcdef0123456789abcdef",
            program=str(self.program),
            port=self.port,
            tls_port=self.port % 65_535 + 1,
            relay_port_min=low,
            relay_port_max=low + 999,
            total_quota=1000,
        )
        return plan(settings, "test")

    def script(self, text: str) -> None:
        self.program.write_text(f"#!{sys.executable}\n{textwrap.dedent(text)}")
        self.program.chmod(0o755)

    def answering(self, *, on_term: str = "signal.SIG_DFL", then: str = "pass") -> None:
        self.script(ANSWERING.format(on_term=on_term, then=then))

    @property
    def said(self) -> list[str]:
        file = self.folder / "said"
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def until(condition: Callable[[], object]) -> None:
    """Wait for another process's file."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)


def quick() -> Restarts:
    return Restarts(uniform=lambda: 0.0)


def test_a_missing_program_says_how_to_install_it() -> None:
    with pytest.raises(EnvironmentFault, match=r"no-such-turnserver is not installed: apt-get install coturn"):
        find_program("no-such-turnserver")


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_a_taken_port_is_said_before_coturn_hides_it(stage: Stage, kind: socket.SocketKind) -> None:
    check_ports(stage.relay)
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind(("127.0.0.1", stage.port))
        if kind is socket.SOCK_STREAM:
            other.listen()
        name = "UDP" if kind is socket.SOCK_DGRAM else "TCP"
        with pytest.raises(EnvironmentFault, match=rf"127\.0\.0\.1, {name} port {stage.port}: .*\(turn\.port\)"):
            check_ports(stage.relay)


async def test_it_is_ready_when_it_answers_and_ends_with_a_signal(stage: Stage) -> None:
    stage.answering()
    ready = asyncio.Event()
    running = asyncio.create_task(run_relay(stage.relay, stage.config, on_ready=ready.set))
    async with asyncio.timeout(20):
        await ready.wait()
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: "hup" in stage.said)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0
    assert stage.said == ["start", "hup"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_one_that_will_not_end_is_killed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "STOP_S", 0.2)
    stage.answering(on_term="signal.SIG_IGN")
    ready = asyncio.Event()
    running = asyncio.create_task(run_relay(stage.relay, stage.config, on_ready=ready.set))
    async with asyncio.timeout(20):
        await ready.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0


async def test_one_that_falls_is_started_again(stage: Stage) -> None:
    stage.answering(then="os._exit(7)")
    times: list[None] = []
    running = asyncio.create_task(
        run_relay(stage.relay, stage.config, on_ready=lambda: times.append(None), restarts=quick())
    )
    await until(lambda: len(times) >= 3)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(20):
        assert await running == 0
    assert len(stage.said) >= 3


@pytest.mark.parametrize(("ending", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137), ("sys.exit(0)", 1)])
async def test_without_restart_its_code_is_ours(stage: Stage, ending: str, code: int) -> None:
    stage.script(f"import os, sys\n{ending}\n")
    async with asyncio.timeout(20):
        assert await run_relay(stage.relay, stage.config, restart=False) == code


async def test_one_that_never_served_is_given_up_after_four_starts(stage: Stage) -> None:
    stage.script(
        """
        import sys
        from pathlib import Path
        with Path(sys.argv[2]).with_name("said").open("a") as file:
            file.write("start\\n")
        sys.exit(5)
        """
    )
    async with asyncio.timeout(30):
        assert await run_relay(stage.relay, stage.config, restarts=quick()) == 5
    assert stage.said == ["start"] * 4


async def test_one_that_does_not_answer_is_ended(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "READY_S", 0.3)
    stage.script("import signal\nsignal.pause()\n")
    async with asyncio.timeout(20):
        assert await run_relay(stage.relay, stage.config, restart=False) == 128 + signal.SIGTERM


async def test_a_program_that_is_none_is_said(stage: Stage) -> None:
    stage.program.write_text("")
    stage.program.chmod(0o755)
    with pytest.raises(EnvironmentFault, match="cannot be started: Exec format error"):
        await run_relay(stage.relay, stage.config)
