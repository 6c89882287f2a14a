from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.nlu.linear_regex import MAX_STATES, LinearRegex, PatternError

PATTERNS = [
    r"\bwhen\b.*\bopen\b", "(a+)+b", "a{2,3}c?", "[a-c]+x|yz", "(ab|a)(c|bcd)", "(a|ab)*c", "(a*)*", "a{0}b", "a{2,}",
    "[^ab]c", r"\w+ \w+", r"a\.b", "(?:ab)+", "", "a|", r"\ba\b", "a[-x]b",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
@given(text=st.text("abcxyz .-whenop", max_size=12))
def test_it_agrees_with_the_standard_library(pattern: str, text: str) -> None:
    assert LinearRegex(pattern).search(text) == bool(re.search(pattern, text))


def test_a_pattern_that_would_backtrack_for_ever_takes_bounded_steps() -> None:
    tests = 0
    regex = LinearRegex("(a+)+b")
    for step in regex._steps:
        if step.test is not None:

            def counted(char: str, inner: object = step.test) -> bool:
                nonlocal tests
                tests += 1
                return inner(char)  # type: ignore[operator,no-any-return]

            step.test = counted
    assert not regex.search("a" * 400)
    assert tests <= 400 * len(regex._steps)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "not closed"),
        ("a)", "unmatched"),
        ("[a", "not closed"),
        ("*a", "nothing to repeat"),
        ("a**", "repeat of a repeat"),
        ("a{", "expected {m}"),
        ("a{x}", "expected {m}"),
        ("a{3,1}", "bounds in order"),
        ("a{99}", "at most 32"),
        (r"\q", "unknown escape"),
        ("\\", "unknown escape"),
        (r"\b*", "nothing to repeat"),
        (r"(a)\1", "unknown escape"),
        ("(?P<x>a)", "only plain"),
        ("(?=a)", "only plain"),
        ("^a", "anchors"),
        ("[z-a]", "reversed"),
        ("(" * 50, "nested too deeply"),
        ("((a{32}){32}){32}", "too large"),
    ],
)
def test_what_it_does_not_know_is_refused_by_place(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError, match=r"at character \d+: .*" + re.escape(reason)):
        LinearRegex(pattern)


def test_a_pattern_at_the_bound_compiles_to_what_was_counted() -> None:
    assert len(LinearRegex("(a{30}){6}")._steps) <= MAX_STATES
