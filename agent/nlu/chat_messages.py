"""A turn as chat messages. Pure.

Roles alternate, because many open models' templates refuse anything else: whatever happened beside speech (keys, a
silence, an interruption) is a bracketed note in the caller's message.
"""

from __future__ import annotations

import json

from agent.language import primary_language
from agent.nlu.hook import Turn

__all__ = ["DEFAULT_SYSTEM_PROMPT", "messages"]

DEFAULT_SYSTEM_PROMPT = (
    "You are a helpful voice assistant on a telephone call. Everything you write is spoken aloud, so answer in one to "
    "three short sentences of plain spoken language, begin with a short clause, and use no lists, markup or emoji. "
    "What you hear comes from a speech recogniser and may contain mistakes. Text in square brackets tells you what "
    "happened in the call; the caller did not say it."
)

MAX_HISTORY_ITEMS = 60
"""About ten minutes of talk; older contributions are left out."""
MAX_HISTORY_CHARS = 24_000


def messages(turn: Turn, system_prompt: str = "") -> list[dict[str, str]]:
    """System prompt, history as it was heard, and what the caller just did."""
    out = [{"role": "system", "content": system_prompt.strip() or DEFAULT_SYSTEM_PROMPT}]
    if primary_language(turn.language) != "en":
        out[0]["content"] += f" Answer in the language {turn.language}."
    note = ""
    for role, text, unheard, interrupted in _recent(turn):
        if role == "user":
            _add(out, "user", f"{note}{text}")
            note = ""
            continue
        _add(out, "assistant", f"{text.rstrip()}…" if interrupted and text else text)
        if interrupted:
            note = _cut(unheard)
    _add(out, "user", note + _now(turn))
    return out


def _recent(turn: Turn) -> list[tuple[str, str, str, bool]]:
    kept: list[tuple[str, str, str, bool]] = []
    chars = 0
    for item in reversed(turn.history[-MAX_HISTORY_ITEMS:]):
        chars += len(item.text) + len(item.unheard)
        if chars > MAX_HISTORY_CHARS:
            break
        kept.append((item.role, item.text, item.unheard, item.interrupted))
    kept.reverse()
    return kept


def _cut(unheard: str) -> str:
    missed = unheard.strip()
    return f"[The caller interrupted and did not hear: {missed}] " if missed else "[The caller interrupted.] "


def _now(turn: Turn) -> str:
    if turn.kind == "greeting":
        return "[The call begins. Greet the caller.]"
    if turn.kind == "silence":
        return "[The caller has said nothing.]"
    if turn.kind == "dtmf":
        return f"[The caller pressed the keys {' '.join(turn.text)}.]"
    if turn.kind == "event":
        return f"[Event: {json.dumps(dict(turn.data), ensure_ascii=False)}]"
    return turn.text


def _add(out: list[dict[str, str]], role: str, text: str) -> None:
    if not text:
        return
    if out[-1]["role"] == role:
        out[-1]["content"] += "\n" + text
    else:
        out.append({"role": role, "content": text})
