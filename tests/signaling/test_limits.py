from hypothesis import given
from hypothesis import strategies as st

from signaling.limits import RateLimiter, TokenBucket, address_key


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    limiter = RateLimiter(60)
    assert [limiter.take("a", 0.0) for _ in range(60)] == [0.0] * 60
    assert limiter.take("a", 0.0) == 1.0
    assert limiter.take("a", 0.5) == 0.5
    assert limiter.take("a", 1.0) == 0.0
    assert limiter.take("a", 1.0) > 0


def test_one_address_does_not_spend_anothers_share() -> None:
    limiter = RateLimiter(1)
    assert limiter.take("a", 0.0) == 0.0
    assert limiter.take("a", 0.0) > 0
    assert limiter.take("b", 0.0) == 0.0


def test_memory_is_bounded_and_the_longest_unused_is_forgotten() -> None:
    limiter = RateLimiter(1, max_keys=3)
    for key in "abc":
        limiter.take(key, 0.0)
    limiter.take("a", 0.0)
    limiter.take("d", 0.0)
    assert len(limiter) == 3
    assert limiter.take("a", 0.0) > 0, "a was used last and is remembered"
    assert limiter.take("b", 0.0) == 0.0, "b was forgotten"


def test_a_clock_that_stands_still_or_steps_back_gives_nothing() -> None:
    bucket = TokenBucket(1.0, 1.0)
    assert bucket.take(10.0) == 0.0
    assert bucket.take(5.0) == 1.0
    assert bucket.take(10.0) == 1.0
    assert bucket.take(11.0) == 0.0


@given(st.lists(st.floats(0, 10), min_size=1, max_size=200))
def test_never_more_than_burst_and_rate_allow(gaps: list[float]) -> None:
    bucket, now, taken = TokenBucket(2.0, 5.0), 0.0, 0
    for gap in gaps:
        now += gap
        taken += bucket.take(now) == 0.0
    assert taken <= 5 + 2 * now + 1e-6


def test_addresses_become_keys() -> None:
    assert address_key("192.0.2.1") == "192.0.2.1"
    assert address_key("::ffff:192.0.2.1") == "192.0.2.1"
    assert address_key("2001:db8::1") == address_key("2001:db8::ffff") == "2001:db8::/64"
    assert address_key("2001:db8:0:1::1") != address_key("2001:db8::1")
    assert address_key("fe80::1%eth0") == "fe80::/64"
    assert address_key(None) == address_key("not an address") == "unknown"


def test_only_the_last_forwarded_entry_counts() -> None:
    assert address_key("127.0.0.1", "6.6.6.6, 192.0.2.9") == "192.0.2.9"
    assert address_key("127.0.0.1", "") == "127.0.0.1"
    assert address_key("127.0.0.1", "6.6.6.6, <script>") == "unknown"
