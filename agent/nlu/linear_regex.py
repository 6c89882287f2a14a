r"""A small regular-expression matcher whose time is bounded by pattern length times text length. Pure.

Python's `re` backtracks: an innocent `(a+)+b` in a rules file can hold the event loop for hours. This one keeps the
set of all positions in the pattern at once (Thompson, "Regular expression search algorithm", CACM 1968), so no pattern
and no text can make it slow. It knows literals, `.`, classes `[a-z]` and `[^...]`, groups, `|`, `? * + {m} {m,n}`,
`\d \w \s \b`, and escaped punctuation; anything else is refused when the pattern is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

__all__ = ["LinearRegex", "PatternError"]

MAX_STATES = 400
"""Largest compiled pattern: with 400 characters of text that is at most 160,000 steps."""
MAX_REPEAT = 32
MAX_DEPTH = 20


class PatternError(ValueError):
    """The pattern is not in the language. The message says where and why."""


@dataclass(slots=True)
class _Step:
    """One instruction: `test` consumes a character; `boundary` needs a word edge; without either it only branches."""

    next: tuple[int, ...]
    test: Callable[[str], bool] | None = None
    boundary: bool = False


class LinearRegex:
    """A compiled pattern; `search` finds it anywhere in a text."""

    def __init__(self, pattern: str) -> None:
        """Raises PatternError."""
        self.pattern = pattern
        parser = _Parser(pattern)
        self._start, self._steps = parser.compile()
        self._accept = len(self._steps)

    def search(self, text: str) -> bool:
        """Whether some part of `text` matches."""
        current: set[int] = set()
        for index in range(len(text) + 1):
            edge = _is_word(text, index - 1) != _is_word(text, index)
            current.add(self._start)  # a match may begin at every character
            live = self._closure(current, edge)
            if self._accept in live:
                return True
            if index == len(text):
                return False
            current = set()
            for state in live:
                step = self._steps[state]
                if step.test is not None and step.test(text[index]):
                    current.update(step.next)
        return False

    def _closure(self, states: set[int], edge: bool) -> set[int]:
        seen: set[int] = set()
        stack = list(states)
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen.add(state)
            if state == self._accept:
                continue
            step = self._steps[state]
            if step.test is None and (edge or not step.boundary):
                stack.extend(step.next)
        return seen


def _is_word(text: str, index: int) -> bool:
    return 0 <= index < len(text) and (text[index].isalnum() or text[index] == "_")


class _Parser:
    """Recursive descent to a tree, then the tree to steps written backwards from the accepting state."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0

    def compile(self) -> tuple[int, list[_Step]]:
        tree = self._alternatives()
        if self._at < len(self._pattern):
            self._fail("unmatched )")
        size = _size(tree)
        if size > MAX_STATES:
            self._fail(f"the pattern is too large ({size} states, at most {MAX_STATES})")
        steps: list[_Step] = []
        start = _emit(tree, -1, steps)
        accept = len(steps)
        for step in steps:
            step.next = tuple(accept if target == -1 else target for target in step.next)
        return (accept if start == -1 else start), steps

    def _alternatives(self) -> _Node:
        options = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            options.append(self._sequence())
        return options[0] if len(options) == 1 else _Node("either", options)

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return _Node("all", parts)

    def _repeated(self, node: _Node) -> _Node:
        char = self._peek()
        if char not in ("?", "*", "+", "{"):
            return node
        if node.kind == "edge":
            self._fail("nothing to repeat")
        least, most = {"?": (0, 1), "*": (0, None), "+": (1, None)}.get(char) or self._bounds()
        if char != "{":
            self._at += 1
        if self._peek() in ("?", "*", "+", "{"):
            self._fail("a repeat of a repeat (lazy and possessive repeats mean nothing here)")
        return _Node("repeat", [node], least=least, most=most)

    def _bounds(self) -> tuple[int, int | None]:
        end = self._pattern.find("}", self._at)
        low, comma, high = self._pattern[self._at + 1 : max(end, self._at)].partition(",")
        if end < 0 or not low.isdecimal() or not (high.isdecimal() or not high):
            self._fail("expected {m}, {m,} or {m,n}")
        least, most = int(low[:4]), (int(high[:4]) if high else None) if comma else int(low[:4])
        if least > MAX_REPEAT or (most is not None and not least <= most <= MAX_REPEAT):
            self._fail(f"a repeat is at most {MAX_REPEAT}, its bounds in order")
        self._at = end + 1
        return least, most

    def _atom(self) -> _Node:
        char = self._pattern[self._at]
        self._at += 1
        if char == "(":
            return self._group()
        if char == "[":
            return _Node("char", test=self._char_class())
        if char == ".":
            return _Node("char", test=lambda _: True)
        if char == "\\":
            escape = self._escape()
            return _Node("edge") if escape is None else _Node("char", test=escape)
        if char in "?*+{^$":
            self._at -= 1
            self._fail("nothing to repeat" if char not in "^$" else "anchors are not supported; use \\b")
        return _Node("char", test=lambda c: c == char)

    def _group(self) -> _Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail("groups are nested too deeply")
        if self._peek() == "?":
            if not self._pattern.startswith("?:", self._at):
                self._fail("only plain ( ) and (?: ) groups are supported")
            self._at += 2
        inner = self._alternatives()
        if self._peek() != ")":
            self._fail("a ( is not closed")
        self._at += 1
        self._depth -= 1
        return inner

    def _escape(self) -> Callable[[str], bool] | None:
        char = self._peek()
        self._at += 1
        classes: dict[str, Callable[[str], bool]] = {
            "d": str.isdigit,
            "s": str.isspace,
            "w": lambda c: c.isalnum() or c == "_",
        }
        if char == "b":
            return None
        if char in classes:
            return classes[char]
        if not char or char.isalnum():
            self._at -= 1
            self._fail("unknown escape; known are \\d \\w \\s \\b and escaped punctuation")
        return lambda c: c == char

    def _char_class(self) -> Callable[[str], bool]:
        negated = self._peek() == "^"
        self._at += negated
        tests: list[Callable[[str], bool]] = []
        while self._peek() != "]" or not tests:
            low = self._peek()
            if not low:
                self._fail("a [ is not closed")
            self._at += 1
            if low == "\\":
                escape = self._escape()
                if escape is None:
                    self._fail("\\b has no meaning in a class")
                tests.append(escape)
                continue
            high = low
            if self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("", "]"):
                high = self._pattern[self._at + 1]
                self._at += 2
                if high < low:
                    self._fail("a range in a class is reversed")
            tests.append(lambda c, low=low, high=high: low <= c <= high)  # type: ignore[misc]
        self._at += 1
        return lambda c: any(test(c) for test in tests) != negated

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _fail(self, reason: str) -> NoReturn:
        raise PatternError(f"at character {self._at + 1}: {reason}")


class _Node:
    __slots__ = ("kind", "least", "most", "parts", "test")

    def __init__(
        self,
        kind: str,
        parts: list[_Node] | None = None,
        *,
        test: Callable[[str], bool] | None = None,
        least: int = 1,
        most: int | None = 1,
    ) -> None:
        self.kind = kind
        self.parts = parts or []
        self.test = test
        self.least = least
        self.most = most


def _size(node: _Node) -> int:
    inner = sum(_size(part) for part in node.parts)
    if node.kind != "repeat":
        return inner + 1
    return (inner + 1) * (node.least + 1 if node.most is None else node.most) + 1


def _emit(node: _Node, after: int, steps: list[_Step]) -> int:
    """Write `node` so that it goes on to state `after` (-1 is acceptance); returns its first state."""
    if node.kind == "all":
        for part in reversed(node.parts):
            after = _emit(part, after, steps)
        return after
    if node.kind == "either":
        return _add(steps, _Step(tuple(_emit(part, after, steps) for part in node.parts)))
    if node.kind == "repeat":
        return _emit_repeat(node, after, steps)
    return _add(steps, _Step((after,), test=node.test, boundary=node.kind == "edge"))


def _emit_repeat(node: _Node, after: int, steps: list[_Step]) -> int:
    body = node.parts[0]
    state = after
    if node.most is None:
        state = _add(steps, _Step(()))
        steps[state].next = (_emit(body, state, steps), after)
    else:
        for _ in range(node.most - node.least):
            state = _add(steps, _Step((_emit(body, state, steps), after)))
    for _ in range(node.least):
        state = _emit(body, state, steps)
    return state


def _add(steps: list[_Step], step: _Step) -> int:
    steps.append(step)
    return len(steps) - 1
