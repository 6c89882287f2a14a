"""Choosing a replica."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from agent.core.registry import Replica
from agent.core.rendezvous import LOAD_FACTOR, choose, rank

VOICES = frozenset({"tts:heart"})


def core(
    name: str, *, capacity: int = 100, active: int = 0, warm: tuple[str, ...] = (), draining: bool = False
) -> Replica:
    return Replica(name, f"{name}:50051", VOICES, capacity, active, frozenset(warm), draining)


FOUR = [core(name) for name in "abcd"]


def test_every_edge_finds_the_same_replica_in_whatever_order_it_knows_them() -> None:
    for key in map(str, range(50)):
        assert rank(key, FOUR) == rank(key, FOUR[::-1])


def test_keys_spread_by_capacity() -> None:
    replicas = [core("a", capacity=100), core("b", capacity=300)]
    found = Counter(choose(str(n), replicas) for n in range(2000))
    assert 0.70 < found["b"] / 2000 < 0.80


def test_a_replica_that_leaves_moves_only_its_own_keys() -> None:
    for n in range(300):
        before = choose(str(n), FOUR)
        after = choose(str(n), FOUR[:3])
        assert after == before or before == "d"


def test_a_replica_above_its_share_is_passed_over_for_the_next() -> None:
    key = "heart"
    first, second, *_ = rank(key, FOUR)
    loaded = [replace(replica, active=50 if replica.id == first else 10) for replica in FOUR]
    assert rank(key, loaded)[0] == second
    assert rank(key, loaded)[-1] == first


def test_one_key_that_all_want_is_spread_within_the_bound() -> None:
    replicas = {replica.id: replica for replica in FOUR}
    for placed in range(1, 200):
        chosen = choose("heart", list(replicas.values()))
        assert chosen is not None
        replicas[chosen] = replace(replicas[chosen], active=replicas[chosen].active + 1)
        assert max(replica.active for replica in replicas.values()) <= LOAD_FACTOR * placed / 4 + 1


def test_a_warm_voice_is_preferred_until_its_replica_has_more_than_its_share() -> None:
    key = "heart"
    last = rank(key, FOUR)[-1]
    warm = [replace(replica, warm=frozenset({"heart"}) if replica.id == last else frozenset()) for replica in FOUR]
    assert choose(key, warm, voice="heart") == last
    busy = [replace(replica, active=90 if replica.id == last else 5) for replica in warm]
    assert choose(key, busy, voice="heart") != last


def test_a_call_sticks_to_its_replica_when_that_is_loaded_or_full() -> None:
    full = [replace(replica, active=100 if replica.id == "c" else 0) for replica in FOUR]
    assert all(choose(str(n), full, held="c") == "c" for n in range(50))


def test_a_call_leaves_a_replica_that_drains_or_is_gone() -> None:
    draining = [replace(replica, draining=replica.id == "c") for replica in FOUR]
    assert choose("x", draining, held="c") in {"a", "b", "d"}
    assert choose("x", FOUR[:2], held="c") in {"a", "b"}


def test_full_and_draining_replicas_and_those_just_tried_are_never_chosen() -> None:
    replicas = [core("a", active=100), core("b", draining=True), core("c")]
    assert rank("x", replicas) == ["c"]
    assert choose("x", replicas, without={"c"}) is None
    assert choose("x", []) is None


REPLICAS = st.lists(
    st.builds(
        core,
        st.sampled_from([f"r{n}" for n in range(12)]),
        capacity=st.integers(1, 50),
        active=st.integers(0, 60),
        draining=st.booleans(),
    ),
    unique_by=lambda replica: replica.id,
    max_size=8,
)


@given(REPLICAS, st.text(max_size=20))
def test_whoever_has_room_and_does_not_drain_is_ranked_exactly_once(replicas: list[Replica], key: str) -> None:
    able = sorted(replica.id for replica in replicas if replica.active < replica.capacity and not replica.draining)
    assert sorted(rank(key, replicas)) == able


@given(REPLICAS, st.text(max_size=20))
def test_nobody_is_first_above_its_share_while_another_is_below(replicas: list[Replica], key: str) -> None:
    order = rank(key, replicas)
    if order:
        by_id = {replica.id: replica for replica in replicas}
        able = [by_id[name] for name in order]
        streams, capacity = sum(replica.active for replica in able) + 1, sum(replica.capacity for replica in able)
        first = by_id[order[0]]
        assert first.active <= LOAD_FACTOR * streams * first.capacity / capacity + 1
