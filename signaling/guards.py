"""What every request passes before its handler: Host and Origin checks, CORS, the rate limit, security headers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from signaling.limits import RateLimiter, address_key
from signaling.origins import OriginPolicy
from signaling.problems import HttpFault

__all__ = ["bearer_token", "cors_headers", "host_and_origin", "rate_limit", "security_headers"]

API_PREFIX = "/v1/"

PREFLIGHT_MAX_AGE_S = 600

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "media-src 'self' blob:",
        "worker-src 'self'",
        "manifest-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Permissions-Policy": "microphone=(self), autoplay=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
}


def bearer_token(request: web.Request) -> str:
    """The token of the Authorization header (RFC 6750 section 2.1), or an empty string."""
    scheme, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def host_and_origin(policy: OriginPolicy) -> Middleware:
    """Refuses unknown hosts (421) and foreign origins (403), and answers CORS preflights."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        host = request.headers.get(hdrs.HOST)
        if not policy.knows_host(host):
            raise HttpFault(
                421,
                "unknown_host",
                "this server listens on a loopback address and answers only to localhost and the hosts of "
                "server.origins",
                field="Host",
            )
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and request.path.startswith(API_PREFIX) and not policy.allows(origin, host):
            raise HttpFault(403, "origin_not_allowed", "this origin is not listed in server.origins", field="Origin")
        if request.method == hdrs.METH_OPTIONS and hdrs.ACCESS_CONTROL_REQUEST_METHOD in request.headers:
            return web.Response(status=204)
        return await handler(request)

    return middleware


def cors_headers(policy: OriginPolicy) -> Callable[[web.Request, web.StreamResponse], None]:
    """Adds the CORS headers (Fetch, section 3.2) that an allowed origin needs, to every response, errors too."""

    def add(request: web.Request, response: web.StreamResponse) -> None:
        response.headers.add(hdrs.VARY, hdrs.ORIGIN)
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is None or not policy.allows(origin, request.headers.get(hdrs.HOST)):
            return
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
        response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = "Location, Retry-After"
        if request.method == hdrs.METH_OPTIONS:
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_METHODS] = "GET, POST, PATCH, DELETE"
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_HEADERS] = "Authorization, Content-Type"
            response.headers[hdrs.ACCESS_CONTROL_MAX_AGE] = str(PREFLIGHT_MAX_AGE_S)

    return add


def rate_limit(limiter: RateLimiter, *, trust_proxy: bool, clock: Callable[[], float] = time.monotonic) -> Middleware:
    """Refuses (429) more requests to /v1 than an address may make."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith(API_PREFIX):
            forwarded = request.headers.getall(hdrs.X_FORWARDED_FOR, []) if trust_proxy else []
            wait_s = limiter.take(address_key(request.remote, forwarded[-1] if forwarded else None), clock())
            if wait_s > 0:
                raise HttpFault(
                    429,
                    "rate_limited",
                    f"more than {limiter.per_minute} requests a minute from this address",
                    headers={"Retry-After": str(math.ceil(wait_s))},
                )
        return await handler(request)

    return middleware


def security_headers(_request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Headers that keep a page of ours from loading, sending or leaking anything elsewhere; none names versions."""
    response.headers.popall(hdrs.SERVER, None)
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
