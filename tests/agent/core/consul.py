"""What we use of Consul's HTTP API, played by a script: services with TTL checks on a clock that the test moves.

Paths, members and statuses as in https://developer.hashicorp.com/consul/api-docs.
"""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

TOKEN = "secret-token"


class ScriptedConsul:
    """One agent. `broken` makes it answer 500."""

    def __init__(self) -> None:
        self.now = 0.0
        self.broken = False
        self.services: dict[str, dict[str, Any]] = {}
        self.passing_until: dict[str, float] = {}
        app = web.Application()
        app.router.add_put("/v1/agent/service/register", self._register)
        app.router.add_put("/v1/agent/check/pass/{check}", self._pass)
        app.router.add_put("/v1/agent/service/deregister/{id}", self._deregister)
        app.router.add_get("/v1/health/service/{name}", self._health)
        self.server = TestServer(app)

    @property
    def url(self) -> str:
        return str(self.server.make_url("/")).rstrip("/")

    def _admit(self, request: web.Request) -> None:
        if self.broken:
            raise web.HTTPInternalServerError
        if request.headers.get("X-Consul-Token") != TOKEN:
            raise web.HTTPForbidden

    async def _register(self, request: web.Request) -> web.Response:
        self._admit(request)
        service = await request.json()
        assert set(service) <= {"ID", "Name", "Tags", "Meta", "Check", "Address", "Port"}
        if any(len(value) > 512 for value in service["Meta"].values()):
            return web.Response(status=400, text="Value is too long (limit: 512 characters)")
        check = service["Check"]
        known = check["CheckID"] in self.passing_until
        self.services[service["ID"]] = service
        if not known:
            self.passing_until[check["CheckID"]] = self.now + _seconds(check["TTL"])
        return web.Response()

    async def _pass(self, request: web.Request) -> web.Response:
        self._admit(request)
        check_id = request.match_info["check"]
        for service in self.services.values():
            if service["Check"]["CheckID"] == check_id:
                self.passing_until[check_id] = self.now + _seconds(service["Check"]["TTL"])
                return web.Response()
        return web.Response(status=404, text=f'Unknown check ID "{check_id}"')

    async def _deregister(self, request: web.Request) -> web.Response:
        self._admit(request)
        service = self.services.pop(request.match_info["id"], None)
        if service is None:
            return web.Response(status=404, text="Unknown service ID")
        del self.passing_until[service["Check"]["CheckID"]]
        return web.Response()

    async def _health(self, request: web.Request) -> web.Response:
        self._admit(request)
        found = [
            {"Node": {"Node": "n1"}, "Service": service, "Checks": []}
            for service in self.services.values()
            if service["Name"] == request.match_info["name"]
            and request.query["tag"] in service["Tags"]
            and ("passing" not in request.query or self.passing_until[service["Check"]["CheckID"]] > self.now)
        ]
        return web.json_response(found)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+)(ms|s)", text)
    assert match is not None
    return int(match[1]) / (1000 if match[2] == "ms" else 1)
