from hypothesis import given
from hypothesis import strategies as st

from signaling.outbox import MAX_MESSAGES, Outbox

FRAME = 640  # 20 ms at 16 kHz


def drained(box: Outbox) -> list[bytes | str]:
    items = []
    while (item := box.pop()) is not None:
        items.append(item)
    return items


def test_items_leave_in_order() -> None:
    box = Outbox(16_000)
    box.put_message("a")
    box.put_audio(b"\x01\x00")
    box.put_message("b")
    assert drained(box) == ["a", b"\x01\x00", "b"]
    assert box.pop() is None


def test_beyond_a_second_the_oldest_audio_is_dropped_and_messages_stay() -> None:
    box = Outbox(16_000)
    box.put_message("first")
    for number in range(60):
        box.put_audio(bytes([number]) * FRAME)
    box.put_message("last")
    items = drained(box)
    assert items[0] == "first"
    assert items[-1] == "last"
    audio = [item[0] for item in items if isinstance(item, bytes)]
    assert audio == list(range(10, 60))
    assert box.dropped_frames == 10
    assert not box.overrun


def test_five_seconds_behind_is_too_far() -> None:
    box = Outbox(16_000)
    for _ in range(250):
        box.put_audio(bytes(FRAME))
    assert not box.overrun
    box.put_audio(bytes(FRAME))
    assert box.overrun
    assert box.audio_bytes <= 32_000


def test_who_catches_up_starts_afresh() -> None:
    box = Outbox(16_000)
    for _ in range(3):
        for _ in range(200):
            box.put_audio(bytes(FRAME))
        drained(box)
    assert not box.overrun
    assert box.dropped_frames == 3 * 150


def test_clear_drops_audio_and_keeps_what_was_said() -> None:
    box = Outbox(16_000)
    box.put_audio(bytes(FRAME))
    box.put_message("transcript")
    box.put_audio(bytes(FRAME))
    box.put_clear("clear")
    assert drained(box) == ["transcript", "clear"]
    assert box.audio_bytes == 0


def test_messages_are_bounded_too() -> None:
    box = Outbox(8000)
    for _ in range(MAX_MESSAGES):
        box.put_message("x")
    assert not box.overrun
    box.put_message("x")
    assert box.overrun
    assert len(box) == MAX_MESSAGES


@given(st.lists(st.sampled_from(["audio", "message", "clear", "pop"]), max_size=400))
def test_the_counts_always_agree_with_what_waits(steps: list[str]) -> None:
    box = Outbox(8000)
    for step in steps:
        match step:
            case "audio":
                box.put_audio(bytes(3200))
            case "message":
                box.put_message("m")
            case "clear":
                box.put_clear("c")
            case "pop":
                box.pop()
        assert 0 <= box.audio_bytes <= 16_000
    waiting = box.audio_bytes
    assert waiting == sum(len(item) for item in drained(box) if isinstance(item, bytes))
    assert box.audio_bytes == 0
