"""Several processes' metrics as one page (Prometheus text exposition format 0.0.4), told apart by a label. Pure.

A label and not a sum: a worker that is started again begins at zero, and a sum would fall, which `rate()` takes for a
restart of everything and counts all the others' totals once more. `sum without (worker)` gives the whole in a query.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["merge"]


def merge(pages: Iterable[tuple[str, str]], *, label: str = "worker") -> str:
    """One page out of `(label value, page)` pairs; each family is described once.

    Raises nothing: a line that is neither sample nor comment of a family is kept as it is.
    """
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for value, page in pages:
        family = ""
        mark = f'{label}="{value}"'
        for line in page.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                family = line.split(" ", 3)[2]
                head = heads.setdefault(family, [])
                samples.setdefault(family, [])
                if line not in head:
                    head.append(line)
            elif line and not line.startswith("#"):
                heads.setdefault(family, [])
                samples.setdefault(family, []).append(_marked(line, mark))
    lines: list[str] = []
    for family, head in heads.items():
        lines += head
        lines += samples[family]
    return "\n".join(lines) + "\n" if lines else ""


def _marked(line: str, mark: str) -> str:
    # A name holds neither brace nor space; what comes first tells whether there are labels.
    brace, space = line.find("{"), line.find(" ")
    if 0 <= brace < space or space < 0:
        joint = "" if line[brace + 1 : brace + 2] == "}" else ","
        return f"{line[: brace + 1]}{mark}{joint}{line[brace + 1 :]}"
    return f"{line[:space]}{{{mark}}}{line[space:]}"
