"""Finding, running and printing benches."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import bench.harness
from bench.__main__ import main
from bench.harness import Outcome, Report, available, describe, print_report, restore, run_all, run_one, to_markdown

GOOD = '''"""A good one.

More.
"""

from bench.harness import Report


def run(*, quick: bool) -> Report:
    keys = {"speed_ms": 2.5, "quick_count": int(quick)}
    return Report("Good", ("what", "value"), [("a|b", 1.23456)], keys, ("note",))
'''
BAD = '"""A bad one."""\n\n\ndef run(*, quick):\n    raise RuntimeError("it broke")\n'
ENVIRONMENT = (
    '"""One that lacks something."""\n\nfrom agent.errors import EnvironmentFault\n\n\n'
    'def run(*, quick):\n    raise EnvironmentFault("no such model: run this")\n'
)
WRONG = '"""Returns nothing."""\n\n\ndef run(*, quick):\n    return None\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `bench` of stand-in benches beside the real harness; its processes find it through the path."""
    package = tmp_path / "bench"
    package.mkdir()
    real = Path(bench.harness.__file__).parent
    for name in ("__init__.py", "__main__.py", "harness.py"):
        (package / name).write_text((real / name).read_text(encoding="utf-8"), encoding="utf-8")
    for name, text in {"good": GOOD, "bad": BAD, "environment": ENVIRONMENT, "wrong": WRONG, "_shared": BAD}.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(real.parent))
    return package


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=folder.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_benches_are_listed_with_their_purpose_and_without_the_harness(folder: Path) -> None:
    assert available(folder) == {
        "bad": "A bad one.",
        "environment": "One that lacks something.",
        "good": "A good one.",
        "wrong": "Returns nothing.",
    }


def test_every_real_bench_says_what_it_measures() -> None:
    benches = available()
    assert "engines" in benches
    assert all(benches.values())


def test_json_is_the_last_line_and_flat(folder: Path) -> None:
    done = command(folder, "good", "--json", "--quick")
    assert done.returncode == 0
    assert json.loads(done.stdout.splitlines()[-1]) == {"speed_ms": 2.5, "quick_count": 1}
    assert "1.23" in done.stdout


def test_list_names_them(folder: Path) -> None:
    done = command(folder, "--list")
    assert done.returncode == 0
    assert "good" in done.stdout
    assert "A good one." in done.stdout


@pytest.mark.parametrize("arguments", [["nonesuch"], [], ["good", "--write", "x.md"]])
def test_wrong_arguments_exit_with_2_and_name_what_there_is(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert "engines" in message or "--write" in message


def test_a_missing_model_is_one_line_and_exit_1(folder: Path) -> None:
    done = command(folder, "environment")
    assert done.returncode == 1
    assert done.stderr == "bench environment: no such model: run this\n"


def test_all_goes_on_after_a_failure_writes_the_page_and_exits_with_1(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "docs" / "benchmarks.md"
    done = command(folder, "all", "--quick", "--json", "--write", str(page))
    assert done.returncode == 1
    assert json.loads(done.stdout.splitlines()[-1]) == {"good_speed_ms": 2.5, "good_quick_count": 1}
    text = page.read_text(encoding="utf-8")
    assert "Failed: RuntimeError: it broke" in text
    assert "run() must return a Report, got NoneType" in text
    assert "| a\\|b | 1.23 |" in text
    assert "- CPU: " in text
    assert f"- Python: {sys.version_info.major}.{sys.version_info.minor}" in text
    for name in ("bad", "environment", "wrong"):
        assert f"bench {name} failed" in done.stderr


def test_a_bench_that_hangs_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "slow.py").write_text(
        '"""Slow."""\nimport threading\n\n\ndef run(*, quick):\n    threading.Event().wait()\n'
    )
    monkeypatch.setattr(bench.harness, "FOLDER", folder)
    monkeypatch.setattr(bench.harness, "QUICK_DEADLINE_S", 1.0)
    (outcome,) = run_all(["slow"], quick=True, console=Console(file=io.StringIO()))
    assert outcome == Outcome("slow", error="did not end within 1 s")


def test_what_run_returns_must_be_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bench.nothing", type(sys)("bench.nothing"))
    monkeypatch.setattr(sys.modules["bench.nothing"], "run", lambda *, quick: {}, raising=False)
    with pytest.raises(TypeError, match="must return a Report, got dict"):
        run_one("nothing", quick=True)


@pytest.mark.parametrize("key", ["Speed_ms", "speed", "ms", "speed__ms", "speed_furlongs", "speed_ms_"])
def test_a_key_without_a_unit_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="snake_case"):
        Report("x", ("a",), [], {key: 1})


def test_a_row_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="2 cells for 1 columns"):
        Report("x", ("a",), [(1, 2)], {})


def test_a_report_survives_the_way_through_json() -> None:
    report = Report("x", ("a", "b"), [("one", 2)], {"speed_ms": 1.5}, ("n",))
    back = restore(json.loads(json.dumps(describe(report))))
    assert back == Report("x", ("a", "b"), [("one", "2")], {"speed_ms": 1.5}, ("n",))
    assert "| `speed_ms` | 1.50 |" in to_markdown([Outcome("x", back)], quick=False)


def test_the_table_shows_notes_as_they_are() -> None:
    out = io.StringIO()
    print_report(Report("T", ("a",), [(0.5,)], {}, ("[bold] stays",)), Console(file=out, width=80))
    assert "0.500" in out.getvalue()
    assert "[bold] stays" in out.getvalue()
