"""Two ends of a ring: order, wrapping, waking, and memory that lies."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.codec import MAX_MESSAGE_BYTES
from agent.core.ring import HEADER_BYTES, SLOT_BYTES, RingReader, RingWriter, ring_bytes
from agent.errors import ProtocolError

SLOTS = 256


def ring() -> tuple[bytearray, RingWriter, RingReader]:
    memory = bytearray(ring_bytes(SLOTS))
    return memory, RingWriter(memoryview(memory), SLOTS), RingReader(memoryview(memory), SLOTS)


@given(st.lists(st.tuples(st.integers(0, 40_000), st.booleans()), max_size=60))
def test_every_message_comes_out_once_and_in_order_however_the_two_take_turns(steps: list[tuple[int, bool]]) -> None:
    _, writer, reader = ring()
    waiting: deque[bytes] = deque()
    sent, got = [], []
    for number, (size, read) in enumerate(steps):
        message = number.to_bytes(4, "little") + bytes(size)
        sent.append(message)
        waiting.append(message)
        writer.put(waiting)
        if read:
            got += reader.take()[0]
    while waiting or len(got) < len(sent):
        before = len(got)
        got += reader.take()[0]
        writer.put(waiting)
        assert len(got) > before or waiting == deque() or len(got) < len(sent)
    assert got == sent


def test_the_reader_is_woken_only_when_it_had_taken_all() -> None:
    _, writer, reader = ring()
    assert writer.put(deque([b"a"])) == ([b"a"], True)
    assert writer.put(deque([b"b"])) == ([b"b"], False)
    assert reader.take() == ([b"a", b"b"], False)
    assert reader.take() == ([], False)
    assert writer.put(deque([b"c"])) == ([b"c"], True)


def test_a_writer_without_room_is_woken_when_there_is_some() -> None:
    _, writer, reader = ring()
    waiting = deque([bytes(900)] * (SLOTS + 3))
    written, _ = writer.put(waiting)
    assert len(written) == SLOTS
    assert len(waiting) == 3
    messages, wake = reader.take()
    assert len(messages) == SLOTS
    assert wake
    assert writer.put(waiting) == ([bytes(900)] * 3, True)
    assert reader.take() == ([bytes(900)] * 3, False)


def test_a_long_message_waits_whole_while_there_is_room_for_a_part() -> None:
    _, writer, reader = ring()
    waiting = deque([*[b"x"] * (SLOTS - 5), bytes(20_000)])
    writer.put(waiting)
    assert [len(message) for message in waiting] == [20_000]
    reader.take()
    writer.put(waiting)
    assert reader.take()[0] == [bytes(20_000)]


@pytest.mark.parametrize("cursor", [SLOTS + 1, 2**63, 2**64 - 1])
def test_an_impossible_cursor_is_told_and_nothing_is_read(cursor: int) -> None:
    memory, writer, reader = ring()
    memory[:8] = cursor.to_bytes(8, "little")
    with pytest.raises(ProtocolError, match="slots"):
        reader.take()
    memory[64:72] = cursor.to_bytes(8, "little")
    with pytest.raises(ProtocolError, match="slots"):
        writer.put(deque([b"a"]))


@pytest.mark.parametrize("head", [SLOT_BYTES, 2**31 - 1, 2**32 - 1, 2**31 + 10])
def test_a_damaged_slot_is_told(head: int) -> None:
    memory, writer, reader = ring()
    writer.put(deque([b"a"]))
    memory[HEADER_BYTES : HEADER_BYTES + 4] = head.to_bytes(4, "little")
    with pytest.raises(ProtocolError, match=r"damaged|no end"):
        reader.take()


def test_a_ring_must_hold_the_longest_message() -> None:
    too_few = MAX_MESSAGE_BYTES // SLOT_BYTES
    with pytest.raises(ValueError, match="slots"):
        RingWriter(memoryview(bytearray(ring_bytes(too_few))), too_few)


def test_memory_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes of memory"):
        RingReader(memoryview(bytearray(100)), SLOTS)
