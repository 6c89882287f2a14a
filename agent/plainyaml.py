"""YAML files that people write: every scalar is text, and what is surprising is refused."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from agent.errors import ConfigError

__all__ = ["MAX_FILE_BYTES", "read_plain_yaml"]

MAX_FILE_BYTES = 1024 * 1024


def read_plain_yaml(file: Path, what: str) -> Any:
    """Read a file of strings, lists and mappings only.

    Args:
        what: names the file's kind in errors, for example `rules file`.

    Raises:
        ConfigError: it cannot be read, is too large, or is not such a file.
    """
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except OSError as exc:
        raise ConfigError(f"cannot read the {what} {file}: {exc.strerror}") from exc
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(f"{file}: a {what} is at most {MAX_FILE_BYTES} bytes")
    try:
        return yaml.load(raw, Loader=_Loader)  # noqa: S506  (a BaseLoader: strings, lists and mappings only)
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{file} is not valid YAML: {' '.join(str(exc).split())[:300]}") from None
    except RecursionError:
        raise ConfigError(f"{file} is nested too deeply") from None


class _Loader(yaml.BaseLoader):
    """Every scalar is a string, so that `no`, `0142` and `12:30` mean themselves; no aliases, no duplicate keys."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not supported")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen if isinstance(key.value, str) else True:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is there twice, or is no text", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)
