"""A person sees lines in a log and a bar on a terminal."""

from __future__ import annotations

import io

from agent.models.progress import BarProgress, LineProgress, console_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_tell_the_step_and_each_quarter_once() -> None:
    out = io.StringIO()
    with LineProgress(out) as progress:
        progress.step("bringing it", 2_000_000)
        for done in (0, 400_000, 600_000, 700_000, 1_900_000, 2_500_000):
            progress.at(done)
        progress.step("checking it")
        progress.at(5)
        progress.note("done")
    assert out.getvalue().splitlines() == [
        "bringing it (2.0 MB)",
        "bringing it: 25 %",
        "bringing it: 75 %",
        "checking it",
        "done",
    ]


def test_the_bar_is_for_terminals_and_lines_for_everything_else() -> None:
    assert isinstance(console_progress(stream=Terminal()), BarProgress)
    assert isinstance(console_progress(stream=io.StringIO()), LineProgress)
    assert isinstance(console_progress(stream=Terminal(), plain=True), LineProgress)


def test_the_bar_shows_the_step_and_keeps_the_notes() -> None:
    out = Terminal()
    with BarProgress(out) as progress:
        progress.at(1)
        progress.step("bringing [it]", 100)
        progress.at(50)
        progress.step("checking")
        progress.note("done [x] 1.0")
    assert "done [x] 1.0" in out.getvalue()
    assert "checking" in out.getvalue()
