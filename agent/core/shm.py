"""The link through shared memory, for an edge and a core on one machine: a ring a direction and an eventfd a side.

The core makes the memory (memfd_create(2), sealed against shrinking, so that no peer can turn an access into SIGBUS)
and hands it over the unix socket with both eventfds (SCM_RIGHTS, unix(7)). There are no names in /dev/shm, so nothing
is left behind however either side ends; the socket stays open and its end is the other process's end.

Linux only.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import mmap
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.core.link import SILENCE_S, Link
from agent.core.ring import RingReader, RingWriter, ring_bytes
from agent.core.sockets import bind_unix, remove_socket
from agent.errors import CoreLost, EnvironmentFault, ProtocolError

__all__ = ["DEFAULT_SLOTS", "RingPlace", "ShmLink", "ShmServer", "connect_shm"]

DEFAULT_SLOTS = 1024
"""1 MiB a direction: a hundred calls' frames for 200 ms."""

_PASSPORT = struct.Struct("<8sI")
"""What comes with the descriptors: a mark, and slots a ring."""
_MARK = b"RJSHM001"

MAX_BATCHES = 16
"""Taken in one turn of the event loop, so that a flooding peer does not stop everything else."""

CONNECT_DEADLINE_S = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RingPlace:
    """Where rings are made.

    Args:
        slots: of each ring.
        folder: a tmpfs or hugetlbfs mount to make them in; None takes memory that belongs to no mount.
    """

    slots: int = DEFAULT_SLOTS
    folder: Path | None = None

    def allocate(self) -> int:
        """A descriptor of memory for two rings, all of it there from the start.

        Raises EnvironmentFault: which size, which mount, what to set.
        """
        size = 2 * ring_bytes(self.slots)
        where = "memory of the process (memfd)" if self.folder is None else str(self.folder)
        try:
            if self.folder is None:
                descriptor = os.memfd_create("rejoinder-ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            else:
                descriptor = os.open(self.folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise EnvironmentFault(f"core.ring_dir: cannot make a ring in {where}: {exc.strerror}") from exc
        try:
            # Now, and not at the first write, where lack of room would be SIGBUS.
            os.posix_fallocate(descriptor, 0, size)
        except OSError as exc:
            os.close(descriptor)
            raise EnvironmentFault(
                f"shared memory: no room for {size / 2**20:.1f} MiB a link in {where} ({exc.strerror}): give it more "
                f"room (a container's --shm-size or memory limit), or set core.ring_slots below {self.slots} or "
                "core.ring_dir to another mount"
            ) from exc
        if self.folder is None:
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return descriptor


class ShmLink(Link):
    """One end over mapped rings.

    Args:
        name: see Link.
        sock: the connected unix socket; owned from here on.
        memory: descriptor of the two rings, the first edge to core; the caller closes it.
        bells: eventfds that wake the edge, and the core; owned from here on.
        slots: of each ring.
        edge: which end this is.
    """

    def __init__(
        self,
        name: str,
        sock: socket.socket,
        memory: int,
        bells: tuple[int, int],
        slots: int,
        *,
        edge: bool,
        silence_s: float = SILENCE_S,
    ) -> None:
        super().__init__(name, silence_s=silence_s)
        self._sock = sock
        size = ring_bytes(slots)
        self._map = mmap.mmap(memory, 2 * size)
        view = memoryview(self._map)
        up, down = view[:size], view[size:]
        view.release()
        self._parts = (up, down)
        self._writer = RingWriter(up if edge else down, slots)
        self._reader = RingReader(down if edge else up, slots)
        self._own_bell, self._other_bell = bells if edge else (bells[1], bells[0])
        self._open = True
        sock.setblocking(False)
        self._loop.add_reader(self._own_bell, self._woken)
        self._loop.add_reader(sock.fileno(), self._socket_readable)

    def _transmit(self) -> None:
        try:
            taken, wake = self._writer.put(self._outbox)
        except ProtocolError as exc:
            self._fail(str(exc))
            return
        if taken:
            self._took(taken)
        if wake:
            os.eventfd_write(self._other_bell, 1)

    def _woken(self) -> None:
        try:
            os.eventfd_read(self._own_bell)
        except BlockingIOError:
            return
        self._read_ring()
        if self._open and self._waiting():
            self._transmit()

    def _read_ring(self) -> None:
        for _ in range(MAX_BATCHES):
            if not self._open:
                return
            try:
                messages, writer_waits = self._reader.take()
            except ProtocolError as exc:
                self._fail(str(exc))
                return
            if writer_waits:
                os.eventfd_write(self._other_bell, 1)
            if not messages:
                return
            self._received(messages)
        # There may be more, and the writer thinks that this side is awake.
        os.eventfd_write(self._own_bell, 1)

    def _socket_readable(self) -> None:
        try:
            data = self._sock.recv(64)
        except BlockingIOError:
            return
        except OSError as exc:
            self._ended(exc.strerror or "error")
            return
        self._ended("" if not data else "bytes where none are expected")

    def _ended(self, detail: str) -> None:
        # What it wrote before it ended is still in the ring.
        self._read_ring()
        self._fail(f"the other process ended{f' ({detail})' if detail else ''}")

    def _break(self) -> None:
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._own_bell)
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        os.close(self._own_bell)
        os.close(self._other_bell)
        self._writer.close()
        self._reader.close()
        for part in self._parts:
            part.release()
        self._map.close()

    async def _shut(self) -> None:
        self._break()


class ShmServer:
    """The core's side: accepts edges on a unix socket; an async context manager.

    Args:
        path: of the socket; only this user may connect.
        place: where rings are made; one pair is tried at start.
        on_link: called with each new link, not yet greeted; the callee owns it.

    Raises:
        EnvironmentFault: no room for a ring, or the path cannot be used.
    """

    def __init__(
        self,
        path: Path,
        place: RingPlace,
        on_link: Callable[[Link], None],
        *,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._path = path
        self._place = place
        self._on_link = on_link
        self._silence_s = silence_s
        self._sock: socket.socket | None = None

    async def __aenter__(self) -> Self:
        os.close(self._place.allocate())
        self._sock = bind_unix(self._path, socket.SOCK_SEQPACKET)
        asyncio.get_running_loop().add_reader(self._sock.fileno(), self._accept)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock.fileno())
            self._sock.close()
            self._sock = None
            remove_socket(self._path)

    def _accept(self) -> None:
        assert self._sock is not None
        try:
            sock, _ = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as exc:
            log.warning("an edge could not connect", extra={"reason": exc.strerror})
            return
        try:
            link = self._hand_over(sock)
        except (OSError, EnvironmentFault) as exc:
            # One edge that cannot be served does not end the others.
            log.warning("an edge was turned away: %s", exc)
            sock.close()
            return
        self._on_link(link)

    def _hand_over(self, sock: socket.socket) -> ShmLink:
        slots = self._place.slots
        with contextlib.ExitStack() as undo:
            memory = self._place.allocate()
            undo.callback(os.close, memory)
            bells = []
            with contextlib.ExitStack() as undo_bells:
                for _ in range(2):
                    bells.append(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
                    undo_bells.callback(os.close, bells[-1])
                socket.send_fds(sock, [_PASSPORT.pack(_MARK, slots)], [memory, *bells])
                pair = (bells[0], bells[1])
                link = ShmLink(f"shm:{self._path}", sock, memory, pair, slots, edge=False, silence_s=self._silence_s)
                undo_bells.pop_all()
            return link


async def connect_shm(path: Path, *, silence_s: float = SILENCE_S) -> ShmLink:
    """The edge's side: connect, take the memory that the core hands over. Not yet greeted.

    Raises:
        CoreLost: nobody listens there, or what came is not what a core sends.
        EnvironmentFault: the other side is no Rejoinder core of this version.
    """
    loop = asyncio.get_running_loop()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.setblocking(False)
    name = f"shm:{path}"
    try:
        async with asyncio.timeout(CONNECT_DEADLINE_S):
            await loop.sock_connect(sock, str(path))
            data, descriptors = await _take_passport(loop, sock)
    except (OSError, TimeoutError) as exc:
        sock.close()
        raise CoreLost(f"{name}: {getattr(exc, 'strerror', None) or 'no answer'}") from exc
    except BaseException:
        sock.close()
        raise
    with contextlib.ExitStack() as undo:
        undo.callback(sock.close)
        for descriptor in descriptors[1:]:
            undo.callback(os.close, descriptor)
        with contextlib.ExitStack() as closing:
            for descriptor in descriptors[:1]:
                closing.callback(os.close, descriptor)
            if len(descriptors) != 3 or len(data) != _PASSPORT.size or not data.startswith(_MARK):
                raise EnvironmentFault(f"{name}: no Rejoinder core of this version listens there")
            _, slots = _PASSPORT.unpack(data)
            memory, edge_bell, core_bell = descriptors
            try:
                if os.fstat(memory).st_size != 2 * ring_bytes(slots):
                    raise ValueError("it has another size than told")
                link = ShmLink(name, sock, memory, (edge_bell, core_bell), slots, edge=True, silence_s=silence_s)
            except (OSError, ValueError) as exc:
                raise CoreLost(f"{name}: the memory handed over is unusable ({exc})") from exc
        undo.pop_all()
        return link


async def _take_passport(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> tuple[bytes, list[int]]:
    readable: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(sock.fileno(), ready)
    try:
        await readable
    finally:
        loop.remove_reader(sock.fileno())
    data, descriptors, _, _ = socket.recv_fds(sock, _PASSPORT.size, 3)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return data, list(descriptors)
