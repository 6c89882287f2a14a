"""Keeps N workers alive and knows every call on them. The supervisor's centre; an async context manager."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self

import aiohttp

from agent.errors import CallRefused, ConfigError, EnvironmentFault, RejoinderError, WorkerFailed
from agent.observe.metrics import Metrics
from signaling.admission import DRAINING_RETRY_S, too_many_calls
from signaling.tokens import Claims
from signaling.workers.channel import ChannelBroken
from signaling.workers.placement import Roster
from signaling.workers.process import Incarnation, Start, resident_bytes
from signaling.workers.restarts import Restarts

__all__ = ["Fleet", "RemoteCall", "WorkerLost"]

START_DEADLINE_S = 120.0
"""Loading engines takes seconds; on a slow disk, a minute."""

STOP_DEADLINE_S = 15.0
"""Ending calls (5 s), connections (3 s) and engines, after the drain."""

CHECK_S = 0.5
SILENT_CHECKS = 4
"""A worker reports every half second. After two seconds without, no call goes there."""

KILL_CHECKS = 20
"""After ten its calls are dead in any case: it is ended and started anew. Checks are counted and not seconds, so that a
machine that slept kills nobody when it wakes."""

CONNECT_S = 2.0

State = Literal["starting", "ready", "restarting", "stopped"]

logger = logging.getLogger(__name__)


class WorkerLost(RejoinderError):
    """The worker ended, or does not answer, while it was asked."""

    retryable = True


class RemoteCall:
    """A call on a worker, as far as ending it goes."""

    def __init__(self, fleet: Fleet, call_id: str) -> None:
        self.id = call_id
        self.ended = asyncio.Event()
        self._fleet = fleet

    def hangup(self, reason: str) -> None:
        """Begin to end the call; idempotent."""
        self._fleet.hang_up(self.id, reason)

    def forbid_resume(self, reason: str) -> None:
        """Nothing to do here: the worker drains too, and ends those of its calls whose caller is away."""

    async def wait_ended(self) -> str:
        """Until the worker says that it is over, or is over itself."""
        await self.ended.wait()
        return "ended"


@dataclass
class Slot:
    """A worker's place: its number stays while processes come and go."""

    number: int
    http: aiohttp.ClientSession
    state: State = "starting"
    process: Incarnation | None = None
    restarts: Restarts = field(default_factory=Restarts)
    starts: int = 0
    ready_at: float | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    fault: RejoinderError | None = None
    """Why it could not start, in its own words."""
    silent: int = 0
    """Checks since its last report."""
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while it does not answer."""
    task: asyncio.Task[None] | None = None


class Fleet:
    """The workers. On entering, all of them are started and waited for; on leaving, all are ended.

    Entering raises ConfigError or EnvironmentFault in a worker's own words, or WorkerFailed when one keeps ending.
    """

    def __init__(self, start: Start, workers: int, *, restarts: Callable[[], Restarts] = Restarts) -> None:
        self.draining = False
        self.metrics = Metrics()
        """The supervisor's own: refusals, and failures of the door."""
        self.roster = Roster(workers, start.settings.server.max_calls)
        self._start = start
        self._workers = workers
        self._make_restarts = restarts
        self._calls: dict[str, RemoteCall] = {}
        self._slots: dict[int, Slot] = {}
        self._stopping = asyncio.Event()
        self._served = False
        self._fault: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._check: asyncio.TimerHandle | None = None

    # Life.

    async def __aenter__(self) -> Self:
        for number in range(1, self._workers + 1):
            # A connection a request: one that is kept might be closed by the worker just as it is used again.
            connector = aiohttp.UnixConnector(path=str(self._start.socket_path(number)), force_close=True, limit=0)
            http = aiohttp.ClientSession(connector=connector, auto_decompress=False)
            self._slots[number] = Slot(number, http, restarts=self._make_restarts())
        try:
            for slot in self._slots.values():
                slot.task = asyncio.create_task(self._keep(slot), name=f"worker {slot.number}")
            await self._all_ready()
        except BaseException:
            await self._stop()
            raise
        self._served = True
        self._arm_check()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def _all_ready(self) -> None:
        ready = asyncio.ensure_future(asyncio.gather(*(slot.ready.wait() for slot in self._slots.values())))
        try:
            await asyncio.wait((ready, self._fault), return_when=asyncio.FIRST_COMPLETED)
            if self._fault.done():
                self._fault.result()
        finally:
            ready.cancel()
            await asyncio.gather(ready, return_exceptions=True)

    async def _stop(self) -> None:
        self._stopping.set()
        if self._check is not None:
            self._check.cancel()
        for slot in self._slots.values():
            self._tell(slot, {"stop": True})
            if slot.state == "starting" and slot.process is not None:
                # Nobody to say goodbye to, and engines take seconds to load.
                slot.process.kill()
        tasks = [slot.task for slot in self._slots.values() if slot.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=STOP_DEADLINE_S)
            for task in late:
                logger.error("a worker did not stop in time", extra={"worker_task": task.get_name()})
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for slot in self._slots.values():
            await slot.http.close()
        if self._fault.done() and not self._fault.cancelled():
            # Retrieved, so that one that nobody waited for is not reported as lost.
            self._fault.exception()

    async def _keep(self, slot: Slot) -> None:
        """One worker after another in this place, until the server stops or gives up."""
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            slot.starts += 1
            slot.state, slot.ready_at, slot.fault, slot.silent = "starting", None, None, 0
            slot.ready.clear()
            slot.lost.clear()
            try:
                code = await self._live(slot)
            except OSError as exc:
                code = -1
                logger.exception("a worker could not be started", extra={"worker": slot.number})
                slot.fault = EnvironmentFault(f"a worker process cannot be started: {exc.strerror}")
            lost = self.roster.down(slot.number, "restarting")
            for call_id in lost:
                self._ended(call_id)
            slot.lost.set()
            slot.process = None
            if self._stopping.is_set():
                break
            served_s = None if slot.ready_at is None else loop.time() - slot.ready_at
            delay_s = slot.restarts.ended(served_s)
            logger.error(
                "a worker ended",
                extra={"worker": slot.number, "exit_code": code, "lost_calls": len(lost), "restart_in_s": delay_s},
            )
            if not self._served and (slot.fault is not None or slot.restarts.hopeless):
                self._give_up(slot, code)
                break
            slot.state = "restarting"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._stopping.wait()
        slot.state = "stopped"

    async def _live(self, slot: Slot) -> int:
        slot.process = process = await Incarnation.spawn(
            slot.number, self._start, lambda message, _: self._on_message(slot, message)
        )
        try:
            if self._stopping.is_set():
                self._tell(slot, {"stop": True})
            ended = asyncio.create_task(process.ended(), name=f"worker {slot.number} end")
            ready = asyncio.create_task(slot.ready.wait(), name=f"worker {slot.number} ready")
            try:
                await asyncio.wait((ended, ready), timeout=START_DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
                if not ended.done() and not ready.done():
                    logger.error("a worker was not ready in time", extra={"worker": slot.number})
                    process.kill()
                return await ended
            finally:
                for task in (ended, ready):
                    task.cancel()
                await asyncio.gather(ended, ready, return_exceptions=True)
        finally:
            await process.close()

    def _give_up(self, slot: Slot, code: int) -> None:
        fault = slot.fault
        if fault is None:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            fault = WorkerFailed(
                f"worker {slot.number} ended {slot.restarts.failures} times before it was ready (last with {how}); "
                "its log is above"
            )
        if not self._fault.done():
            self._fault.set_exception(fault)

    # What workers say.

    def _on_message(self, slot: Slot, message: dict[str, Any]) -> None:
        match message:
            case {"ended": str(call_id)}:
                if self.roster.release(call_id):
                    self._ended(call_id)
            case {"report": str(reason)}:
                slot.silent = 0
                slot.lost.clear()
                self.roster.judge(slot.number, reason)
            case {"ready": True}:
                assert slot.process is not None
                slot.state, slot.ready_at = "ready", asyncio.get_running_loop().time()
                self.roster.up(slot.number)
                slot.ready.set()
                logger.info("a worker is ready", extra={"worker": slot.number, "pid": slot.process.pid})
            case {"fault": str(text), "kind": str(kind)}:
                slot.fault = ConfigError(text) if kind == "ConfigError" else EnvironmentFault(text)

    def _arm_check(self) -> None:
        self._check = asyncio.get_running_loop().call_later(CHECK_S, self._check_all)

    def _check_all(self) -> None:
        for slot in self._slots.values():
            if slot.state != "ready" or slot.process is None:
                continue
            slot.silent += 1
            if slot.silent >= SILENT_CHECKS:
                slot.lost.set()
                self.roster.judge(slot.number, "does not answer")
            if slot.silent == KILL_CHECKS:
                logger.error("a worker hangs and is ended", extra={"worker": slot.number})
                slot.process.kill()
        self._arm_check()

    # Calls.

    @property
    def calls(self) -> Mapping[str, RemoteCall]:
        """Calls on all workers by id, those being set up among them."""
        return MappingProxyType(self._calls)

    @property
    def not_ready_reason(self) -> str:
        """Why no new call is taken now; empty when one is."""
        return "draining" if self.draining else self.roster.not_ready_reason

    def place(self, call_id: str, claims: Claims, *, without: Collection[int] = ()) -> Slot:
        """Take a line for a call.

        Raises:
            CallRefused: shutting down, or no worker takes a call.
            HttpFault: 429, the token's subject has as many calls as it may.
        """
        if self.draining:
            raise CallRefused("the server is shutting down", retry_after_s=DRAINING_RETRY_S)
        if claims.max_calls is not None and self.roster.count(claims.subject) >= claims.max_calls:
            raise too_many_calls(claims.max_calls)
        number = self.roster.place(call_id, claims.subject, without=without)
        self._calls[call_id] = RemoteCall(self, call_id)
        return self._slots[number]

    def find(self, call_id: str, subject: str) -> Slot | None:
        """The worker that has this call of this subject."""
        placed = self.roster.find(call_id, subject)
        return None if placed is None else self._slots[placed.worker]

    def release(self, call_id: str) -> None:
        """The call is over, or never began."""
        if self.roster.release(call_id):
            self._ended(call_id)

    def hang_up(self, call_id: str, reason: str) -> None:
        """Have the worker end a call; its line is free when it says so."""
        placed = self.roster.placed.get(call_id)
        if placed is not None:
            self._tell(self._slots[placed.worker], {"hangup": call_id, "reason": reason})

    def _ended(self, call_id: str) -> None:
        call = self._calls.pop(call_id, None)
        if call is not None:
            call.ended.set()

    def _tell(self, slot: Slot, message: Mapping[str, Any]) -> None:
        if slot.process is None:
            return
        try:
            slot.process.channel.send(message)
        except ChannelBroken as exc:
            logger.warning("a worker cannot be told: %s", exc, extra={"worker": slot.number})

    # Asking workers.

    def hand_over(self, slot: Slot, call_id: str, descriptor: int, head: bytes) -> None:
        """Give a WebSocket's connection to a worker. Raises WorkerLost; nothing has happened to it then."""
        if slot.process is None:
            raise WorkerLost("the worker is gone")
        try:
            slot.process.channel.pass_socket({"stream": call_id, "head": base64.b64encode(head).decode()}, descriptor)
        except ChannelBroken as exc:
            raise WorkerLost(str(exc)) from exc

    async def ask(
        self, slot: Slot, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b"", timeout_s: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        """One HTTP request to a worker: status, headers and body of its answer.

        Raises WorkerLost: it ended, does not answer, or took longer than `timeout_s`.
        """
        if slot.lost.is_set() or slot.process is None:
            raise WorkerLost("the worker does not answer")
        asking = asyncio.create_task(self._ask(slot, method, target, headers, body, timeout_s))
        losing = asyncio.create_task(slot.lost.wait())
        try:
            await asyncio.wait((asking, losing), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise WorkerLost("the worker does not answer")
            return asking.result()
        except (aiohttp.ClientError, OSError, TimeoutError) as exc:
            raise WorkerLost(f"the worker did not answer ({type(exc).__name__})") from exc
        finally:
            asking.cancel()
            losing.cancel()
            await asyncio.gather(asking, losing, return_exceptions=True)

    @staticmethod
    async def _ask(
        slot: Slot, method: str, target: str, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        async with slot.http.request(
            method, f"http://worker{target}", headers=headers, data=body or None, timeout=timeout, allow_redirects=False
        ) as answer:
            return answer.status, answer.headers, await answer.read()

    # For operators.

    def overview(self) -> list[dict[str, Any]]:
        """A line a worker: number, state, calls, and why it takes no call now."""
        return [
            {
                "worker": seat.number,
                "state": self._slots[seat.number].state,
                "calls": len(seat.calls),
                "reason": self.roster.why_not(seat),
            }
            for seat in self.roster.seats
        ]

    def figures(self) -> list[tuple[int, bool, int, int, int]]:
        """A row a worker: number, ready, calls, resident bytes, restarts."""
        rows = []
        for seat in self.roster.seats:
            slot = self._slots[seat.number]
            resident = 0 if slot.process is None else resident_bytes(slot.process.pid)
            rows.append((seat.number, slot.state == "ready", len(seat.calls), resident, max(0, slot.starts - 1)))
        return rows

    async def pages(self, timeout_s: float) -> list[tuple[str, str]]:
        """Each worker's metrics, of those that answer in time, by number."""

        async def page(slot: Slot) -> tuple[str, str] | None:
            try:
                status, _, body = await self.ask(slot, "GET", "/metrics", headers={}, timeout_s=timeout_s)
            except WorkerLost:
                return None
            return (str(slot.number), body.decode()) if status == 200 else None

        ready = [slot for slot in self._slots.values() if slot.state == "ready"]
        found = await asyncio.gather(*(page(slot) for slot in ready))
        return [one for one in found if one is not None]
