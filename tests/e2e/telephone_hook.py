"""The hook of the telephone tests: writes down every turn, answers in one sentence."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

from agent import Turn


def _write(line: str) -> None:
    with Path(os.environ["TURNS"]).open("a") as file:
        file.write(line + "\n")


async def reply(turn: Turn) -> AsyncIterator[str]:
    """One line a turn goes to the file that TURNS names."""
    told = {
        "call": turn.session.id,
        "kind": turn.kind,
        "text": turn.text,
        "caller": turn.session.caller,
        "called": turn.session.called,
        "metadata": dict(turn.session.metadata),
        "data": dict(turn.data),
    }
    _write(json.dumps(told))
    match turn.kind:
        case "greeting":
            yield "Welcome."
        case "dtmf":
            yield "Thank you."
        case "speech":
            yield "We are open from nine in the morning until six in the evening."
