"""coturn as a child: started, listened for, started again when it falls, and told what we are told.

Signals: SIGTERM and SIGINT end it, SIGHUP makes it open its log anew, SIGUSR2 makes it read its certificate again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aioice import stun

from agent.errors import EnvironmentFault
from signaling.workers.restarts import Restarts
from turn.coturn import LOOPBACK, Relay

__all__ = ["check_ports", "find_program", "run_relay"]

READY_S = 15.0
"""Preparing a wide range of ports takes coturn about two seconds."""
STOP_S = 5.0
"""Then it is killed: allocations have no goodbye to say."""
RETRANSMISSIONS = 5
PASSED_ON = (signal.SIGHUP, signal.SIGUSR2)

logger = logging.getLogger(__name__)


def find_program(name: str) -> str:
    """Where coturn is. Raises EnvironmentFault saying how to install it."""
    found = shutil.which(name)
    if found is None:
        raise EnvironmentFault(
            f"{name} is not installed: apt-get install coturn (Debian, Ubuntu), dnf install coturn (Fedora), or name "
            "its place in turn.program"
        )
    return found


def check_ports(relay: Relay) -> None:
    """Raises EnvironmentFault when a port to listen on is taken; coturn itself would go on without it."""
    for address in relay.listen or ("0.0.0.0",):
        for transport, port in relay.ports:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            kind = socket.SOCK_DGRAM if transport == "udp" else socket.SOCK_STREAM
            with socket.socket(family, kind) as sock:
                if transport == "tcp":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    sock.bind((address, port))
                except OSError as exc:
                    setting = "turn.port" if port == relay.settings.port else "turn.tls_port"
                    raise EnvironmentFault(
                        f"cannot listen on {address}, {transport.upper()} port {port}: {exc.strerror}; stop the other "
                        f"program or choose another port ({setting})"
                    ) from exc


async def run_relay(
    relay: Relay,
    config: Path,
    *,
    restart: bool = True,
    on_ready: Callable[[], None] = lambda: None,
    restarts: Restarts | None = None,
) -> int:
    """Run coturn until a signal ends it (0), or it ends itself: then its own code, or with `restart` another start.

    Before it has ever answered it is tried four times.

    Raises EnvironmentFault when it is not installed or cannot be started.
    """
    program = find_program(relay.settings.program)
    history = restarts if restarts is not None else Restarts()
    stop = asyncio.Event()
    ever_ready = False
    loop = asyncio.get_running_loop()
    child: asyncio.subprocess.Process | None = None

    def pass_on(number: int) -> None:
        if child is not None and child.returncode is None:
            child.send_signal(number)

    with _signals(stop, pass_on):
        while True:
            try:
                # Its lines are a log; our own standard output is for whoever reads what we announce.
                child = await asyncio.create_subprocess_exec(program, "-c", str(config), stdout=sys.stderr)
            except OSError as exc:
                raise EnvironmentFault(f"{program} cannot be started: {exc.strerror}") from exc
            ready_at: float | None = None

            def note_ready() -> None:
                nonlocal ready_at, ever_ready
                ready_at, ever_ready = loop.time(), True
                on_ready()

            code = await _live(child, relay, stop, note_ready)
            if stop.is_set():
                return 0
            served_s = None if ready_at is None else loop.time() - ready_at
            delay_s = history.ended(served_s)
            # A negative code is a signal's number; a shell's form of it fits into an exit code.
            exit_code = code if code >= 0 else 128 - code
            if not restart or (not ever_ready and history.hopeless):
                logger.error("coturn ended", extra={"exit_code": code})
                return exit_code or 1
            logger.error("coturn ended", extra={"exit_code": code, "restart_in_s": delay_s})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await stop.wait()
            if stop.is_set():
                return 0


async def _live(
    child: asyncio.subprocess.Process, relay: Relay, stop: asyncio.Event, on_ready: Callable[[], None]
) -> int:
    """One life of it, until it ends or is to end; its code. It is dead when this returns, whatever happens."""
    ended = asyncio.create_task(child.wait(), name="coturn end")
    ready = asyncio.create_task(_answers(relay), name="coturn ready")
    stopping = asyncio.create_task(stop.wait(), name="coturn stop")
    waiting = {ended, ready, stopping}
    try:
        while ended in waiting and stopping in waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if ready in done:
                if ready.result():
                    on_ready()
                else:
                    logger.error("coturn does not answer and is ended", extra={"after_s": READY_S})
                    break
        if not ended.done():
            child.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await asyncio.shield(ended)
    finally:
        if child.returncode is None:
            child.kill()
        for task in (ready, stopping):
            task.cancel()
        await asyncio.gather(ended, ready, stopping, return_exceptions=True)
    code: int = ended.result()
    return code


class _Binding(asyncio.DatagramProtocol):
    """One STUN transaction (RFC 8489 section 6.2.1), on a socket of its own."""

    def __init__(self) -> None:
        self.transaction: stun.Transaction | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def send_stun(self, message: stun.Message, _addr: tuple[str, int]) -> None:
        self._transport.sendto(bytes(message))  # type: ignore[attr-defined]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        try:
            message = stun.parse_message(data)
        except ValueError:
            return
        if self.transaction is not None:
            self.transaction.response_received(message, addr)

    def error_received(self, exc: Exception) -> None:
        """Nobody listens yet (ICMP port unreachable): the next retransmission tells."""


async def _answers(relay: Relay) -> bool:
    """Whether it answers a STUN binding request in time."""
    address = relay.listen[0] if relay.listen else LOOPBACK
    server = (address, relay.settings.port)
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(_Binding, remote_addr=server)
    try:
        async with asyncio.timeout(READY_S):
            request = stun.Message(stun.Method.BINDING, stun.Class.REQUEST)
            protocol.transaction = stun.Transaction(request, server, protocol, retransmissions=RETRANSMISSIONS)
            await protocol.transaction.run()
    except (stun.TransactionError, TimeoutError):
        return False
    finally:
        transport.close()
    return True


@contextmanager
def _signals(stop: asyncio.Event, pass_on: Callable[[int], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    ends = (signal.SIGTERM, signal.SIGINT)
    try:
        for number in ends:
            loop.add_signal_handler(number, stop.set)
        for number in PASSED_ON:
            loop.add_signal_handler(number, pass_on, number)
        yield
    finally:
        for number in (*ends, *PASSED_ON):
            loop.remove_signal_handler(number)
