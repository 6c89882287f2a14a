"""PNG charts for docs/, drawn where matplotlib (the extra `bench`) is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    # An extra: loaded only where something is drawn.
    from matplotlib.axes import Axes

__all__ = ["DOCS", "chart", "distribution"]

DOCS = Path(__file__).parents[1] / "docs"


def chart(
    name: str, draw: Callable[[Axes], None], *, size_in: tuple[float, float] = (8, 5), folder: Path = DOCS
) -> tuple[str, ...]:
    """Draw `folder/NAME.png`; what a `Report` names as its charts: the file's name, or nothing without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return ()
    from matplotlib.figure import Figure

    figure = Figure(figsize=size_in, dpi=110)
    axes = figure.subplots()
    draw(axes)
    axes.grid(alpha=0.3)
    axes.legend()
    file = f"{name}.png"
    figure.savefig(folder / file, bbox_inches="tight")
    return (file,)


def distribution(axes: Axes, curves: Mapping[str, Sequence[float]], *, xlabel: str) -> None:
    """How many percent of the values are at most x; a curve that says nothing is left out."""
    for label, values in curves.items():
        if values:
            axes.step(np.sort(values), 100 * np.arange(1, len(values) + 1) / len(values), where="post", label=label)
    axes.set(xlabel=xlabel, ylabel="turns, %", ylim=(0, 102))
    axes.set_xlim(left=0)
