import pytest

from signaling.bridges.marks import MAX_PENDING, Marks

FRAME = 160


@pytest.fixture
def marks() -> Marks:
    return Marks(8000)


def send(marks: Marks, frames: int) -> list[str]:
    return [name for _ in range(frames) if (name := marks.sent(FRAME)) is not None]


def test_a_mark_follows_each_200_ms(marks: Marks) -> None:
    assert len(send(marks, 9)) == 0
    assert len(send(marks, 1)) == 1
    assert len(set(send(marks, 30))) == 3


def test_an_echo_says_that_all_before_it_was_played(marks: Marks) -> None:
    first, second, third = send(marks, 30)
    marks.echoed(first)
    assert marks.unplayed == 20 * FRAME
    marks.echoed(third)
    assert marks.unplayed == 0
    marks.echoed(second)
    assert marks.unplayed == 0, "a late echo took something back"


def test_without_any_echo_nothing_is_believed_unplayed(marks: Marks) -> None:
    send(marks, 100)
    assert marks.unplayed == marks.unheard == 0


def test_the_newest_spacing_counts_as_heard_since_its_mark_may_be_under_way(marks: Marks) -> None:
    marks.echoed(send(marks, 10)[0])
    send(marks, 9)
    assert marks.unheard == 0
    send(marks, 11)
    assert marks.unheard == 10 * FRAME


def test_echoes_of_cleared_audio_are_not_taken_for_playing(marks: Marks) -> None:
    marks.echoed(send(marks, 10)[0])
    cleared = send(marks, 20)
    marks.clear()
    assert marks.unplayed == 0
    send(marks, 5)
    for name in cleared:
        marks.echoed(name)
    assert marks.unplayed == 5 * FRAME


def test_the_last_mark_covers_the_rest_and_comes_once(marks: Marks) -> None:
    marks.echoed(send(marks, 10)[0])
    send(marks, 3)
    last = marks.last()
    assert last is not None
    assert marks.last() is None
    marks.echoed(last)
    assert marks.unplayed == 0


def test_names_of_nobody_say_nothing(marks: Marks) -> None:
    send(marks, 10)
    marks.echoed("m999")
    assert marks.unplayed == 0


def test_a_peer_that_stops_echoing_costs_no_memory(marks: Marks) -> None:
    marks.echoed(send(marks, 10)[0])
    send(marks, 10 * MAX_PENDING * 2)
    assert marks.unplayed == 10 * MAX_PENDING * FRAME
