"""Rate limits: token buckets by key. Pure: fed `(key, now)`; memory bounded whatever the keys are.

The kept libraries were looked at: aiolimiter waits instead of refusing and knows no keys, so it does not fit.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

__all__ = ["RateLimiter", "TokenBucket", "address_key"]

MAX_KEYS = 20_000
"""About 4 MB; above it the key unused for longest is forgotten, which only refills its bucket."""

IPV6_SITE_BITS = 64
"""One customer usually holds a whole /64."""


class TokenBucket:
    """`rate_per_s` tokens flow in, at most `burst` stay. Starts full."""

    __slots__ = ("_level", "_when", "burst", "rate_per_s")

    def __init__(self, rate_per_s: float, burst: float) -> None:
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._level = burst
        self._when: float | None = None

    def take(self, now: float) -> float:
        """Take one token: 0.0 when there was one, else the seconds until there will be. `now` is monotonic."""
        if self._when is not None and now > self._when:
            self._level = min(self.burst, self._level + (now - self._when) * self.rate_per_s)
        self._when = now if self._when is None else max(now, self._when)
        if self._level >= 1.0:
            self._level -= 1.0
            return 0.0
        return (1.0 - self._level) / self.rate_per_s


class RateLimiter:
    """A bucket a key.

    Args:
        per_minute: sustained rate; also the burst, so that a page load's flurry passes.
        max_keys: buckets kept.
    """

    def __init__(self, per_minute: int, *, max_keys: int = MAX_KEYS) -> None:
        self.per_minute = per_minute
        self.max_keys = max_keys
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, now: float) -> float:
        """Count one request of `key`: 0.0 when it may pass, else the seconds to wait."""
        bucket = self._buckets.get(key)
        if bucket is None:
            while len(self._buckets) >= self.max_keys:
                self._buckets.popitem(last=False)
            bucket = self._buckets[key] = TokenBucket(self.per_minute / 60.0, float(self.per_minute))
        else:
            self._buckets.move_to_end(key)
        return bucket.take(now)


def address_key(remote: str | None, forwarded_for: str | None = None) -> str:
    """The key of a client: its IPv4 address or its IPv6 /64.

    Args:
        remote: the socket's peer.
        forwarded_for: X-Forwarded-For, given only where a trusted proxy sets it; its last entry wins over `remote`.
    """
    text = remote or ""
    if forwarded_for:
        text = forwarded_for.rsplit(",", 1)[-1].strip() or text
    try:
        address = ipaddress.ip_address(text.partition("%")[0].strip("[]"))
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, IPV6_SITE_BITS), strict=False))
    return str(address)
