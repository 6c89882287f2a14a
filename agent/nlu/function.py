"""Hooks written as Python functions or classes, and how one is found by name.

A target is `package.module:object`, `./file.py:object`, or the name of an entry point in the group `rejoinder.hooks`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, overload

from agent.errors import ConfigError
from agent.nlu.hook import Nlu, Turn
from agent.nlu.spread import spread
from agent.nlu.threads import call_in_thread

__all__ = ["ENTRY_POINT_GROUP", "FunctionNlu", "load_hook", "on_turn"]

ENTRY_POINT_GROUP = "rejoinder.hooks"

_EXPECTED = (
    "expected package.module:object, ./file.py:object or the name of an entry point in the group "
    f"{ENTRY_POINT_GROUP}, where the object is a function of one Turn, or an object or class with reply(turn)"
)


class FunctionNlu:
    """A function as a hook: an async generator, an async function, or a plain function (run in a thread).

    A function may return a string, an action, a list of both, None, a generator or an async generator.
    """

    def __init__(
        self, function: Callable[[Turn], Any], owner: object | None = None, *, speculate: bool | None = None
    ) -> None:
        """Wrap `function`; `owner` may lend `expect`, `close` and `speculate`.

        Args:
            speculate: whether it may be asked before the caller's turn is surely over, so that a turn may be asked
                twice; None takes the attribute `speculate` of the function or the owner, else yes.

        Raises:
            TypeError: it cannot be called with one Turn.
        """
        if not callable(function) or isinstance(function, type):
            raise TypeError(f"a hook is a function of one Turn, not {function!r}")
        try:
            inspect.signature(function).bind(None)
        except TypeError as exc:
            raise TypeError(f"a hook is a function of one Turn: {exc}") from None
        except ValueError:  # a built-in without a signature: the call will tell
            pass
        self.function = function
        self._owner = owner
        said = getattr(owner if owner is not None else function, "speculate", True)
        self.speculate = bool(said) if speculate is None else speculate
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, turn: Turn) -> Any:
        """What the bare function returns, for tests of the function itself."""
        return self.function(turn)

    async def reply(self, turn: Turn) -> AsyncIterator[Any]:
        """Run the function on one turn, yielding what it yields or returns."""
        if _is_async(self.function) or inspect.isgeneratorfunction(self.function):
            answer = self.function(turn)
        else:
            answer = await call_in_thread(lambda: self.function(turn))
        async with aclosing(spread(answer)) as items:
            async for item in items:
                yield item

    def expect(self, turn: Turn) -> Sequence[str]:
        """The owner's likely openings, if it has any."""
        ask = getattr(self._owner, "expect", None)
        openings: Sequence[str] = ask(turn) if ask is not None else ()
        return openings

    @property
    def greeting(self) -> object:
        """The owner's or the function's. Raises AttributeError where there is none."""
        found: object = getattr(self.function if self._owner is None else self._owner, "greeting")  # noqa: B009
        return found

    async def close(self) -> None:
        """Close the owner, if it can be closed."""
        close = getattr(self._owner, "close", None)
        if close is not None:
            result = close()
            if inspect.isawaitable(result):
                await result


@overload
def on_turn(function: Callable[[Turn], Any], /) -> FunctionNlu: ...
@overload
def on_turn(*, speculate: bool = True) -> Callable[[Callable[[Turn], Any]], FunctionNlu]: ...
def on_turn(
    function: Callable[[Turn], Any] | None = None, /, *, speculate: bool | None = None
) -> FunctionNlu | Callable[[Callable[[Turn], Any]], FunctionNlu]:
    """Make a function a hook: `@on_turn async def reply(turn): yield "Hello"`.

    `@on_turn(speculate=False)`: it is asked only once a turn is surely over, and so never twice for one turn.
    """
    if function is None:
        return partial(FunctionNlu, speculate=speculate)
    return FunctionNlu(function)


def load_hook(target: str) -> Nlu:
    """Find a hook by name and make it ready. The working directory is importable.

    Raises:
        ConfigError: a bad name, a failing import or the wrong kind of object; names the target and what was expected.
    """
    text = target.strip()
    if not text:
        raise ConfigError(f"nlu.target is empty: {_EXPECTED}")
    _make_importable(Path.cwd())
    module_name, colon, path = text.rpartition(":")
    if not colon:
        return _as_nlu(_load_entry_point(text), target)
    if not module_name or not path:
        raise ConfigError(f"nlu.target {target!r}: {_EXPECTED}")
    module = _load_file(module_name, target) if module_name.endswith(".py") else _load_module(module_name, target)
    found: Any = module
    for attribute in path.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            raise ConfigError(f"nlu.target {target!r}: {module_name} has no {path!r}; {_EXPECTED}") from None
    return _as_nlu(found, target)


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _load_entry_point(name: str) -> Any:
    known = {point.name: point for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}
    if name not in known:
        listing = ", ".join(sorted(known)) or "none installed"
        raise ConfigError(f"nlu.target {name!r} is no entry point ({ENTRY_POINT_GROUP}: {listing}); {_EXPECTED}")
    return _importing(lambda: known[name].load(), name)


def _load_module(name: str, target: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"nlu.target {target!r}: {name!r} is no module name; {_EXPECTED}")
    module: ModuleType = _importing(lambda: importlib.import_module(name), target)
    return module


def _load_file(name: str, target: str) -> ModuleType:
    file = Path(name).expanduser().resolve()
    if not file.is_file():
        raise ConfigError(f"nlu.target {target!r}: there is no file {file}")
    _make_importable(file.parent)
    spec = importlib.util.spec_from_file_location(f"rejoinder_hook_{file.stem}_{abs(hash(str(file))):x}", file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"nlu.target {target!r}: {file} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    loader = spec.loader

    def load() -> ModuleType:
        sys.modules[module.__name__] = module
        try:
            loader.exec_module(module)
        except BaseException:
            del sys.modules[module.__name__]
            raise
        return module

    loaded: ModuleType = _importing(load, target)
    return loaded


def _importing(load: Callable[[], Any], target: str) -> Any:
    try:
        return load()
    except (Exception, SystemExit) as exc:
        raise ConfigError(f"nlu.target {target!r} cannot be imported (from {Path.cwd()}): {_one_line(exc)}") from exc


def _as_nlu(found: Any, target: str) -> Nlu:
    if isinstance(found, FunctionNlu):
        return found
    if isinstance(found, type):
        if not callable(getattr(found, "reply", None)):
            raise ConfigError(f"nlu.target {target!r} is a class without reply(turn); {_EXPECTED}")
        try:
            found = found()
        except Exception as exc:
            raise ConfigError(f"nlu.target {target!r} cannot be made without arguments: {_one_line(exc)}") from exc
    method = getattr(found, "reply", None)
    try:
        if callable(method):
            return FunctionNlu(method, owner=found)
        if callable(found):
            return FunctionNlu(found)
    except TypeError as exc:
        raise ConfigError(f"nlu.target {target!r}: {exc}") from None
    raise ConfigError(f"nlu.target {target!r} is {_article(type(found).__name__)}; {_EXPECTED}")


def _is_async(function: Callable[..., Any]) -> bool:
    call = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    return any(
        check(candidate)
        for candidate in (function, call)
        for check in (inspect.isasyncgenfunction, inspect.iscoroutinefunction)
    )


def _one_line(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {exc}".replace("\n", " ")


def _article(noun: str) -> str:
    return ("an " if noun[0].lower() in "aeiou" else "a ") + noun
