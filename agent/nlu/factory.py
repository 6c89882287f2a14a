"""From settings to a hook."""

from __future__ import annotations

from pathlib import Path

from agent.config import NluSettings
from agent.errors import ConfigError
from agent.nlu.echo import EchoNlu
from agent.nlu.function import load_hook
from agent.nlu.hook import Nlu
from agent.nlu.http import HttpNlu
from agent.nlu.openai_chat import OpenAIChatNlu
from agent.nlu.rules import SHOP_EXAMPLE, RulesNlu

__all__ = ["create_nlu"]


def create_nlu(settings: NluSettings) -> Nlu:
    """Make the configured hook. Connections are opened with the first turn, not here.

    Raises:
        ConfigError: the target does not fit its kind; says what was expected.
    """
    target = settings.target.strip()
    key = settings.api_key.get_secret_value() if settings.api_key else None
    if settings.kind == "echo":
        if target:
            raise ConfigError(f"nlu.target: the echo hook has no target, got {target!r}; is nlu.kind right?")
        return EchoNlu()
    if settings.kind == "function":
        return load_hook(target)
    if settings.kind == "rules":
        return RulesNlu(Path(target).expanduser() if target else SHOP_EXAMPLE)
    if settings.kind == "http":
        return HttpNlu(target, api_key=key, timeout_s=settings.timeout_s)
    return OpenAIChatNlu(
        target,
        model=settings.model,
        api_key=key,
        system_prompt=settings.system_prompt,
        timeout_s=settings.timeout_s,
    )
