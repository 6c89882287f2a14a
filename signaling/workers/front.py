"""The supervisor's door: who may call is decided here, once; the worker that is given a call does the rest.

Calls over WebRTC are set up by proxied requests of a few kilobytes, their media goes to the worker's own ports. A
WebSocket's connection is given to the worker whole (`handover`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import hdrs, web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.config import Settings
from agent.errors import CallRefused, ProtocolError
from agent.nlu.hook import Channel
from agent.observe.metrics import CONTENT_TYPE
from signaling.admission import resume_expired
from signaling.calls import new_call_id, read_body
from signaling.guards import bearer_token
from signaling.ice import IceServers
from signaling.ports import NOT_CONNECTED
from signaling.problems import HttpFault, problem
from signaling.resume import call_of
from signaling.server import NOT_READY_RETRY_S, base_app
from signaling.stream import expect_upgrade, refuse_stream
from signaling.tokens import Claims, Verifier
from signaling.workers.exposition import merge
from signaling.workers.fleet import Fleet, Slot, WorkerLost
from signaling.workers.handover import early_bytes, upgrade_head
from signaling.workers.passport import passport_headers

__all__ = ["create_front"]

SETUP_TIMEOUT_S = 12.0
"""A negotiation ends within 10 s."""

CHANGE_TIMEOUT_S = 5.0
METRICS_TIMEOUT_S = 2.0

FRONT = "front"
"""The supervisor's own value of the label `worker`."""

_PASSED_ON = (hdrs.CONTENT_TYPE, hdrs.ACCEPT)
_PASSED_BACK = (hdrs.CONTENT_TYPE, hdrs.LOCATION, hdrs.CACHE_CONTROL, hdrs.RETRY_AFTER)


def create_front(
    fleet: Fleet, settings: Settings, *, verifier: Verifier, web_root: Path | None = None
) -> web.Application:
    """The application of the supervisor. Raises as `base_app` does."""
    front = _Front(fleet, verifier)
    probes = _Probes(fleet)
    app = base_app(settings, fleet.metrics, web_root=web_root)
    app.router.add_post("/v1/calls", front.create)
    app.router.add_patch("/v1/calls/{call_id}", front.change)
    app.router.add_delete("/v1/calls/{call_id}", front.hang_up)
    app.router.add_get("/v1/ice", IceServers(settings.turn).handler(verifier))
    app.router.add_get("/v1/stream", front.stream, allow_head=False)
    app.router.add_get("/healthz", probes.alive)
    app.router.add_get("/readyz", probes.ready)
    app.router.add_get("/metrics", probes.metrics)
    return app


class _Front:
    def __init__(self, fleet: Fleet, verifier: Verifier) -> None:
        self._fleet = fleet
        self._verifier = verifier

    async def create(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/calls: placed, set up by the worker, answered. A worker that ends meanwhile costs another try."""
        claims = self._verifier.verify(bearer_token(request))
        body = await read_body(request)
        if (lost := _resumed(request, body)) is not None:
            return await self._come_back(request, claims, lost, body)
        tried: set[int] = set()
        while True:
            call_id = new_call_id()
            slot = self._place(call_id, claims, _channel(request, body), tried)
            try:
                status, headers, answer = await self._set_up(request, slot, call_id, claims, body)
            except WorkerLost:
                tried.add(slot.number)
                continue
            return await self._answer(request, call_id, web.Response(status=status, body=answer, headers=headers))

    async def _come_back(self, request: web.Request, claims: Claims, call_id: str, body: bytes) -> web.StreamResponse:
        """A caller whose connection was lost, at the worker that kept the call: no new line is taken."""
        slot = self._fleet.find(call_id, claims.subject)
        if slot is None:
            raise resume_expired()
        headers = _some(request.headers, _PASSED_ON) | passport_headers(claims, call_id)
        try:
            status, back, answer = await self._fleet.ask(
                slot, "POST", "/v1/calls", headers=headers, body=body, timeout_s=SETUP_TIMEOUT_S
            )
        except WorkerLost as exc:
            raise resume_expired() from exc
        return web.Response(status=status, body=answer, headers=_some(back, _PASSED_BACK))

    def _place(self, call_id: str, claims: Claims, channel: Channel, tried: set[int]) -> Slot:
        try:
            return self._fleet.place(call_id, claims, without=tried)
        except (CallRefused, HttpFault):
            self._fleet.metrics.call_refused(channel)
            raise

    async def _set_up(
        self, request: web.Request, slot: Slot, call_id: str, claims: Claims, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        target = "/v1/calls" + (f"?{request.rel_url.raw_query_string}" if request.rel_url.raw_query_string else "")
        headers = _some(request.headers, _PASSED_ON) | passport_headers(claims, call_id)
        try:
            status, back, answer = await self._fleet.ask(
                slot, "POST", target, headers=headers, body=body, timeout_s=SETUP_TIMEOUT_S
            )
        except WorkerLost:
            # Whatever became of it there must not live on: nobody will know it.
            self._fleet.hang_up(call_id, NOT_CONNECTED)
            self._fleet.release(call_id)
            raise
        except BaseException:
            # The caller went. The line is free when the worker says so.
            self._fleet.hang_up(call_id, NOT_CONNECTED)
            raise
        if status != 201:
            self._fleet.release(call_id)
        return status, _some(back, _PASSED_BACK), answer

    async def _answer(self, request: web.Request, call_id: str, response: web.Response) -> web.StreamResponse:
        try:
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError("the client is gone")
            # Written here and not by the framework, so that a failure to send is still ours to clean up after.
            await response.prepare(request)
            await response.write_eof()
        except BaseException:
            self._fleet.hang_up(call_id, NOT_CONNECTED)
            raise
        return response

    async def change(self, request: web.Request) -> web.StreamResponse:
        """PATCH /v1/calls/{call_id}, at the worker that has it."""
        claims, slot = self._owned(request)
        return await self._proxy(request, claims, slot, await read_body(request))

    async def hang_up(self, request: web.Request) -> web.StreamResponse:
        """DELETE /v1/calls/{call_id}, at the worker that has it. Its line is free at once."""
        claims, slot = self._owned(request)
        response = await self._proxy(request, claims, slot, b"")
        if response.status == 204:
            self._fleet.release(request.match_info["call_id"])
        return response

    async def _proxy(self, request: web.Request, claims: Claims, slot: Slot, body: bytes) -> web.Response:
        call_id = request.match_info["call_id"]
        headers = _some(request.headers, _PASSED_ON) | passport_headers(claims, call_id)
        try:
            status, back, answer = await self._fleet.ask(
                slot, request.method, f"/v1/calls/{call_id}", headers=headers, body=body, timeout_s=CHANGE_TIMEOUT_S
            )
        except WorkerLost as exc:
            if self._fleet.find(call_id, claims.subject) is None:
                raise _no_call() from exc
            raise CallRefused("this call's process does not answer", retry_after_s=NOT_READY_RETRY_S) from exc
        return web.Response(status=status, body=answer or None, headers=_some(back, _PASSED_BACK))

    def _owned(self, request: web.Request) -> tuple[Claims, Slot]:
        claims = self._verifier.verify(bearer_token(request))
        slot = self._fleet.find(request.match_info["call_id"], claims.subject)
        if slot is None:
            raise _no_call()
        return claims, slot

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/stream: the connection goes to the worker; a refusal is told here."""
        ws = expect_upgrade(request)
        try:
            claims = self._verifier.verify(request.query.get("token") or bearer_token(request))
            self._give_away(request, claims)
        except (CallRefused, ProtocolError) as error:
            return await refuse_stream(request, ws, error)
        # Nothing is written any more: the transport is gone from here, the connection is not.
        return web.Response()

    def _give_away(self, request: web.Request, claims: Claims) -> None:
        transport = request.transport
        if transport is None or transport.is_closing():
            return
        # What arrives from now on stays in the kernel and goes along.
        transport.pause_reading()
        descriptor = transport.get_extra_info("socket").fileno()
        tried: set[int] = set()
        try:
            while True:
                call_id = new_call_id()
                slot = self._place(call_id, claims, "websocket", tried)
                head = upgrade_head(request, passport_headers(claims, call_id)) + early_bytes(request)
                try:
                    self._fleet.hand_over(slot, call_id, descriptor, head)
                except WorkerLost:
                    self._fleet.release(call_id)
                    tried.add(slot.number)
                    continue
                break
        except BaseException:
            transport.resume_reading()
            raise
        # Only our descriptor is closed: no FIN and no RST, since the worker holds another.
        transport.abort()


def _no_call() -> HttpFault:
    return HttpFault(404, "call_not_found", "there is no such call, or it is over")


def _some(headers: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {str(name): headers[name] for name in names if name in headers}


def _offer(request: web.Request, body: bytes) -> dict[str, Any]:
    """A JSON offer as far as the front looks into it; the worker checks it to the letter."""
    if request.content_type != "application/json":
        return {}
    try:
        offer = json.loads(body)
    except ValueError:
        return {}
    return offer if isinstance(offer, dict) else {}


def _resumed(request: web.Request, body: bytes) -> str | None:
    """The call that an offer wants to come back to, by the word of its token; None for a new call."""
    token = _offer(request, body).get("resume")
    return call_of(token) if isinstance(token, str) else None


def _channel(request: web.Request, body: bytes) -> Channel:
    """Which counter a refused offer belongs to."""
    if request.content_type == "application/json":
        named = _offer(request, body).get("channel")
    else:
        named = request.query.get("channel")
    return "widget" if named == "widget" else "browser"


class _FleetCollector(Collector):
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def collect(self) -> Iterable[Metric]:
        """One sample a worker and figure."""
        up = GaugeMetricFamily("voice_worker_up", "1 while the worker is ready.", labels=("worker",))
        calls = GaugeMetricFamily("voice_worker_calls", "Lines taken, calls being set up too.", labels=("worker",))
        memory = GaugeMetricFamily(
            "voice_worker_resident_memory_bytes", "Resident memory, shared pages and all.", labels=("worker",)
        )
        restarts = CounterMetricFamily("voice_worker_restarts", "Times it was started again.", labels=("worker",))
        for number, ready, taken, resident, again in self._fleet.figures():
            for family, value in ((up, ready), (calls, taken), (memory, resident), (restarts, again)):
                family.add_metric((str(number),), float(value))
        return (up, calls, memory, restarts)


class _Probes:
    """What orchestrators and Prometheus ask, over all workers."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._registry = CollectorRegistry()
        self._registry.register(_FleetCollector(fleet))

    async def alive(self, _request: web.Request) -> web.Response:
        """GET /healthz: the supervisor lives. A worker that does not is restarted by it, not by an orchestrator."""
        body = {"status": "alive", "workers": self._fleet.overview()}
        return web.json_response(body, headers={"Cache-Control": "no-store"})

    async def ready(self, _request: web.Request) -> web.Response:
        """GET /readyz: 200 while at least one worker takes calls, 503 with the reasons while none does."""
        reason, workers = self._fleet.not_ready_reason, self._fleet.overview()
        if reason:
            return problem(
                503,
                "not_ready",
                f"no new calls are taken: {reason}",
                headers={"Retry-After": str(NOT_READY_RETRY_S)},
                extra={"reasons": reason.split("; "), "workers": workers},
            )
        body = {"status": "ready", "calls": len(self._fleet.calls), "workers": workers}
        return web.json_response(body, headers={"Cache-Control": "no-store"})

    async def metrics(self, _request: web.Request) -> web.Response:
        """GET /metrics: every process's samples, told apart by the label `worker`."""
        pages = await self._fleet.pages(METRICS_TIMEOUT_S)
        text = merge([(FRONT, self._fleet.metrics.render().decode()), *pages])
        text += generate_latest(self._registry).decode()
        return web.Response(text=text, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})
