"""Charts are PNG files beside the page that links them."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench._charts import chart, distribution
from bench.harness import Outcome, Report, describe, restore, to_markdown


class Axes:
    """Notes what is drawn, as matplotlib is an extra."""

    def __init__(self) -> None:
        self.curves: dict[str, tuple[list[float], list[float]]] = {}

    def step(self, x: Any, y: Any, *, where: str, label: str) -> None:
        assert where == "post"
        self.curves[label] = list(x), list(y)

    def set(self, **_: object) -> None: ...

    def set_xlim(self, **_: object) -> None: ...


def test_a_chart_is_drawn_where_matplotlib_is_and_its_name_is_told(tmp_path: Path) -> None:
    drawn = chart("waits", partial(distribution, curves={"warm": [3.0, 1.0]}, xlabel="ms"), folder=tmp_path)
    if importlib.util.find_spec("matplotlib") is None:
        assert drawn == ()
        assert not list(tmp_path.iterdir())
    else:
        assert drawn == ("waits.png",)
        assert (tmp_path / "waits.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_without_matplotlib_nothing_is_drawn_or_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    drawn: list[object] = []
    assert chart("waits", drawn.append, folder=tmp_path) == ()
    assert not drawn
    assert not list(tmp_path.iterdir())


def test_a_distribution_ends_at_all_and_leaves_out_what_is_empty() -> None:
    axes = Axes()
    distribution(axes, {"some": [30.0, 10.0, 20.0, 20.0], "none": []}, xlabel="ms")
    assert axes.curves == {"some": ([10, 20, 20, 30], [25, 50, 75, 100])}


def test_the_page_links_the_charts_of_a_run_and_keeps_them_through_json() -> None:
    report = Report("Waits", ("a",), [(1,)], {"wait_ms": 1.0}, (), ("waits.png",))
    back = restore(describe(report))
    assert "![Waits](waits.png)" in to_markdown([Outcome("waits", back)], quick=False)
