"""One contract for every link. What a link does beyond it is tested beside it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.asr.protocol import EngineInfo, Hypothesis, Word
from agent.core.address import parse_core_address
from agent.core.codec import MAX_PCM_BYTES
from agent.core.inproc import inproc_pair
from agent.core.link import MAX_OUTBOX_BYTES, Link, LinkState
from agent.core.linking import LinkOptions, connect, listening
from agent.core.messages import (
    Ack,
    Audio,
    Evidence,
    Fault,
    FaultCode,
    Final,
    GoAway,
    Hello,
    Message,
    Model,
    Open,
    Partial,
    SpeechOut,
    Text,
)
from agent.errors import CoreLost, EngineOverloaded, EnvironmentFault, RejoinderError

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 20.0
TRANSPORTS = ("inproc", "shm", "grpc+unix", "grpc+tcp")
BETWEEN_PROCESSES = TRANSPORTS[1:]

EDGE = Hello("edge")
CORE = Hello("core", (Model("asr:en", EngineInfo("e", "1", 16_000, ("en",), True), 8),))
READ = Hypothesis("yes please", "yes", (Word("yes", 0.1, 0.4), Word("please", 0.4, 0.9)), 0.7, None, 3)
EVERYTHING: list[Message] = [
    Open(1, "asr:en", "en-GB", ("Rejoinder",), True),
    Audio(1, 1, bytes(640)),
    Partial(1, 1, READ),
    Text(2, 1, "Good morning. 早上好。", "heart", "en", 1.25, "calmly"),
    SpeechOut(2, 1, bytes(MAX_PCM_BYTES), (Word("Good", 0.0, 0.3),), "hibari/1", more=True),
    Ack(1, 1, 8),
    Evidence(1, 1, 0.5),
    Final(1, 2, READ),
    GoAway("stopping", 5000),
    Fault(1, 2, FaultCode.OVERLOADED, "later"),
]


@dataclass
class End:
    """One end with what came in at it."""

    link: Link
    got: list[Message] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self) -> End:
        self.link.start(self._batch, self._lost)
        return self

    def _batch(self, messages: Sequence[Message]) -> None:
        self.got += messages
        self.news.set()

    def _lost(self, reason: str) -> None:
        self.lost.append(reason)
        self.news.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self.news.clear()
                await self.news.wait()


def address_of(transport: str, folder: Path) -> str:
    return {"shm": f"shm:{folder}/c", "grpc+unix": f"unix:{folder}/c", "grpc+tcp": "tcp://127.0.0.1:0"}[transport]


@asynccontextmanager
async def links(
    transport: str, folder: Path, options: LinkOptions | None = None
) -> AsyncIterator[tuple[Link, Callable[[], Awaitable[Link]]]]:
    """The edge's end and what waits for the core's, not greeted. gRPC tells a server with the first message."""
    options = options or LinkOptions()
    accepted: asyncio.Queue[Link] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        if transport == "inproc":
            edge, core = inproc_pair(silence_s=options.silence_s)
            accepted.put_nowait(core)
        else:
            address = parse_core_address(address_of(transport, folder))
            real = await stack.enter_async_context(listening(address, options, accepted.put_nowait, lambda _: True))
            edge = await connect(real, options)
        stack.push_async_callback(edge.close)

        async def accept() -> Link:
            link = await asyncio.wait_for(accepted.get(), DEADLINE_S)
            stack.push_async_callback(link.close)
            return link

        yield edge, accept


@asynccontextmanager
async def pair(transport: str, folder: Path, options: LinkOptions | None = None) -> AsyncIterator[tuple[End, End]]:
    """Both ends, greeted and started."""
    async with links(transport, folder, options) as (edge, accept):

        async def welcome() -> Link:
            core = await accept()
            assert await core.welcome(CORE, DEADLINE_S) == EDGE
            return core

        told, core = await asyncio.gather(edge.greet(EDGE, DEADLINE_S), welcome())
        assert told == CORE
        yield End(edge).start(), End(core).start()


@pytest.mark.parametrize("transport", TRANSPORTS)
class TestEveryLink:
    async def test_everything_arrives_whole_and_in_order_both_ways(self, transport: str, tmp_path: Path) -> None:
        async with pair(transport, tmp_path) as (edge, core):
            for end in (edge, core):
                for message in EVERYTHING:
                    end.link.send(message)
            await core.until(lambda: len(core.got) == len(EVERYTHING))
            await edge.until(lambda: len(edge.got) == len(EVERYTHING))
            assert core.got == EVERYTHING
            assert edge.got == EVERYTHING

    async def test_each_side_learns_who_the_other_is(self, transport: str, tmp_path: Path) -> None:
        async with pair(transport, tmp_path) as (edge, core):
            assert edge.link.peer == CORE
            assert core.link.peer == EDGE
            assert edge.link.state is core.link.state is LinkState.OPEN

    async def test_frames_of_one_moment_travel_together(self, transport: str, tmp_path: Path) -> None:
        async with pair(transport, tmp_path) as (edge, core):
            before = edge.link.statistics.batches_sent
            for stream in range(100):
                edge.link.send(Audio(stream, 1, bytes(640)))
            await core.until(lambda: len(core.got) == 100)
            # An eventual heartbeat may be a batch of its own.
            assert edge.link.statistics.batches_sent - before <= 2

    async def test_more_than_there_is_room_for_arrives_all_the_same(self, transport: str, tmp_path: Path) -> None:
        async with pair(transport, tmp_path) as (edge, core):
            whole = 6 * MAX_OUTBOX_BYTES // MAX_PCM_BYTES
            for number in range(whole):
                await core.link.room(DEADLINE_S)
                core.link.send(SpeechOut(1, number, number.to_bytes(2, "little") * (MAX_PCM_BYTES // 2)))
            await edge.until(lambda: len(edge.got) == whole)
            assert [m.generation for m in edge.got if isinstance(m, SpeechOut)] == list(range(whole))
            assert all(m.pcm[-2:] == m.generation.to_bytes(2, "little") for m in edge.got if isinstance(m, SpeechOut))

    async def test_a_silent_peer_is_given_up(self, transport: str, tmp_path: Path) -> None:
        async with pair(transport, tmp_path, LinkOptions(silence_s=0.6)) as (edge, core):
            stall(core.link)
            await edge.until(lambda: edge.lost)
            assert edge.lost == ["the other side is silent"]
            with pytest.raises(CoreLost, match="silent"):
                edge.link.send(Ack(1, 1, 1))

    async def test_a_quiet_link_lives(self, transport: str, tmp_path: Path) -> None:
        async with pair(transport, tmp_path, LinkOptions(silence_s=0.8)) as (edge, core):
            await asyncio.sleep(1.2)
            core.link.send(Ack(1, 1, 1))
            await edge.until(lambda: edge.got)
            assert edge.got == [Ack(1, 1, 1)]
            assert not edge.lost
            assert not core.lost

    async def test_what_was_sent_before_the_close_arrives_and_the_loss_is_told_once(
        self, transport: str, tmp_path: Path
    ) -> None:
        async with pair(transport, tmp_path) as (edge, core):
            core.link.send(GoAway("stopping", 0))
            await core.link.close()
            await core.link.close()
            await edge.until(lambda: edge.lost)
            assert edge.got == [GoAway("stopping", 0)]
            await asyncio.sleep(0.05)
            assert len(edge.lost) == 1
            assert core.lost == []
            with pytest.raises(CoreLost):
                edge.link.send(Ack(1, 1, 1))
            with pytest.raises(CoreLost):
                core.link.send(Ack(1, 1, 1))

    async def test_another_version_is_refused_on_both_sides(self, transport: str, tmp_path: Path) -> None:
        async with links(transport, tmp_path) as (edge, accept):
            greeting = asyncio.create_task(edge.greet(Hello("edge", version=9), DEADLINE_S))
            core = await accept()
            with pytest.raises(EnvironmentFault, match=r"protocol 9, this side 1.*same version"):
                await core.welcome(CORE, DEADLINE_S)
            with pytest.raises(EnvironmentFault, match=r"protocol 9.*same version"):
                await greeting

    async def test_garbage_ends_the_link_with_one_clear_reason(self, transport: str, tmp_path: Path) -> None:
        async with pair(transport, tmp_path) as (edge, core):
            garbage = b"\xff" * 40
            edge.link._outbox.append(garbage)
            edge.link._outbox_bytes += len(garbage)
            edge.link._schedule(soon=True)
            await core.until(lambda: core.lost)
            assert "kind: 255 is no message" in core.lost[0]
            await edge.until(lambda: edge.got)
            assert isinstance(edge.got[0], Fault)
            assert edge.got[0].code is FaultCode.BAD_MESSAGE

    async def test_whoever_does_not_greet_is_refused(self, transport: str, tmp_path: Path) -> None:
        async with links(transport, tmp_path) as (edge, accept):
            edge.send(Ack(1, 1, 1))
            core = await accept()
            with pytest.raises(CoreLost, match="expected it first"):
                await core.welcome(CORE, DEADLINE_S)
            assert core.state is LinkState.CLOSED

    async def test_whoever_says_nothing_is_not_waited_for(self, transport: str, tmp_path: Path) -> None:
        async with links(transport, tmp_path) as (edge, _):
            with pytest.raises(CoreLost, match="no greeting within"):
                await edge.greet(EDGE, 0.05)
            assert edge.state is LinkState.CLOSED


@pytest.mark.parametrize("transport", BETWEEN_PROCESSES)
class TestLinksBetweenProcesses:
    async def test_a_peer_that_takes_nothing_costs_bounded_room(self, transport: str, tmp_path: Path) -> None:
        async with pair(transport, tmp_path) as (edge, core):
            stall(core.link)
            with pytest.raises(EngineOverloaded, match="wait for the other side"):
                await send_much(edge.link, 20 * MAX_OUTBOX_BYTES)
            assert edge.link._outbox_bytes <= MAX_OUTBOX_BYTES
            with pytest.raises(EngineOverloaded, match="takes nothing"):
                await edge.link.room(0.01)
            assert edge.link.statistics.refused == 1


def stall(link: Link) -> None:
    """Its process stands still: nothing is read, nothing answered."""
    assert link._beat_timer is not None
    link._beat_timer.cancel()
    for task in getattr(link, "_tasks", []):
        task.cancel()
    if hasattr(link, "_own_bell"):
        link._loop.remove_reader(link._own_bell)
    link._received = link._received_messages = lambda _: None  # type: ignore[method-assign]


# Processes that are killed.


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    started: list[subprocess.Popen[str]] = []

    def run(role: str, address: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "tests.agent.core.echo_core", role, address]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line
        return process, line

    yield run
    for process in started:
        process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


async def send_much(link: Link, size: int) -> None:
    for _ in range(size // MAX_PCM_BYTES):
        link.send(SpeechOut(1, 1, bytes(MAX_PCM_BYTES)))
        # Let the transport take what it can.
        await asyncio.sleep(0)


async def settle(condition: Callable[[], bool]) -> None:
    """Wait for what tells nobody when it comes."""
    for _ in range(200):
        if condition():
            return
        await asyncio.sleep(DEADLINE_S / 200)
    pytest.fail("it did not settle")


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def mapped_rings() -> int:
    return Path("/proc/self/maps").read_text().count("rejoinder-ring")


@pytest.mark.parametrize("transport", BETWEEN_PROCESSES)
class TestProcessesThatAreKilled:
    async def test_a_killed_core_is_noticed_and_its_successor_found(self, transport, tmp_path, start) -> None:
        core, told = start("serve", address_of(transport, tmp_path))
        for _ in range(2):
            link = await connect(parse_core_address(told), LinkOptions(silence_s=60))
            assert (await link.greet(EDGE, DEADLINE_S)).name == f"pid {core.pid}"
            end = End(link).start()
            link.send(Audio(1, 1, bytes(640)))
            await end.until(lambda end=end: end.got)
            os.kill(core.pid, signal.SIGKILL)
            await end.until(lambda end=end: end.lost)
            with pytest.raises(CoreLost):
                link.send(Audio(1, 2, bytes(640)))
            await link.close()
            with pytest.raises(CoreLost):
                await connect(parse_core_address(told), LinkOptions()) if transport == "shm" else await refused(told)
            # The killed one left its socket's file behind; the next takes its place.
            core, told = start("serve", told)
        assert mapped_rings() == 0

    async def test_a_killed_edge_is_noticed_and_costs_nothing(self, transport, tmp_path, start) -> None:
        accepted: asyncio.Queue[Link] = asyncio.Queue()
        address = parse_core_address(address_of(transport, tmp_path))
        options = LinkOptions(silence_s=60)
        async with listening(address, options, accepted.put_nowait, lambda _: True) as real:
            files = 0
            for turn in range(3):
                loop = asyncio.get_running_loop()
                edge, _ = await asyncio.gather(
                    loop.run_in_executor(None, start, "call", str(real)), welcome_next(accepted, ends := [])
                )
                os.kill(edge[0].pid, signal.SIGKILL)
                await ends[0].until(lambda ends=ends: ends[0].lost)
                await ends[0].link.close()
                assert mapped_rings() == 0
                if turn == 1:
                    files = open_files()
            # The killed edges' pipes are this test's own: one a turn. gRPC closes sockets in a thread of its own.
            await settle(lambda files=files: open_files() <= files + 1)


async def welcome_next(accepted: asyncio.Queue[Link], ends: list[End]) -> None:
    link = await asyncio.wait_for(accepted.get(), DEADLINE_S)
    await link.welcome(CORE, DEADLINE_S)
    ends.append(End(link).start())


async def refused(address: str) -> None:
    from agent.core.grpclink import connect_grpc

    await connect_grpc(parse_core_address(address).target, deadline_s=0.3)


@pytest.mark.parametrize("transport", ["shm", "grpc+unix"])
async def test_a_socket_in_use_is_not_taken_over(transport: str, tmp_path: Path) -> None:
    address = parse_core_address(address_of(transport, tmp_path))
    async with listening(address, LinkOptions(), lambda _: None, lambda _: True):
        assert (tmp_path / "c").stat().st_mode & 0o777 == 0o600
        for other in ("shm", "unix"):
            with pytest.raises(EnvironmentFault, match="taken by another core"):
                async with listening(
                    parse_core_address(f"{other}:{tmp_path}/c"), LinkOptions(), lambda _: None, lambda _: True
                ):
                    pytest.fail("two cores on one socket")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("shm:/nowhere/c", "no folder /nowhere"),
        ("unix:/nowhere/c", "no folder /nowhere"),
        ("shm:{folder}/" + "x" * 120, "at most 107 bytes"),
        ("unix:{folder}/file", "no socket"),
        ("tcp://203.0.113.1:1", "this machine has no address 203.0.113.1"),
        ("inproc:", "nobody can reach"),
    ],
)
async def test_an_address_that_cannot_be_used_is_one_line(address: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RejoinderError, match=says) as caught:
        async with listening(
            parse_core_address(address.format(folder=tmp_path)), LinkOptions(), lambda _: None, lambda _: True
        ):
            pytest.fail("it listens")
    assert "\n" not in str(caught.value)


async def test_a_tcp_port_in_use_is_one_line(tmp_path: Path) -> None:
    async with listening(
        parse_core_address("tcp://127.0.0.1:0"), LinkOptions(), lambda _: None, lambda _: True
    ) as real:
        with pytest.raises(EnvironmentFault, match=f"cannot listen on 127.0.0.1:{real.port}"):
            async with listening(real, LinkOptions(), lambda _: None, lambda _: True):
                pytest.fail("two cores on one port")


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_fault_of_whoever_takes_the_messages_ends_that_link_only(transport: str, tmp_path: Path) -> None:
    async with pair(transport, tmp_path) as (edge, core):

        def broken(_messages: Sequence[Message]) -> None:
            raise RuntimeError("a fault")

        core.link._on_batch = broken
        edge.link.send(Ack(1, 1, 1))
        await core.until(lambda: core.lost)
        assert core.lost == ["messages could not be handled"]
        await core.link.close()
        await edge.until(lambda: edge.lost)
