"""Text for speech: CPU time of cutting and reading a reply as a model streams it, and of text made to be slow."""

from __future__ import annotations

import time
from statistics import median

from agent.speech.chunker import ClauseChunker
from bench.harness import Report

__all__ = ["run"]

REPLIES = {
    "en": "Sure, I can help you with that. Order A12345 costs $1,299.50 and arrives on March 5 by 10:30 p.m. at "
    "5th St. Call 1-800-555-0199 or write to me@example.com, and **thank you** for waiting! ",
    "zh": "您好，订单号A12345已发货，预计3月5日送达。价格是¥1,299.50，打8折。请拨打400-810-1234转2，谢谢您的耐心等待！",
    "de": "Gerne, ich helfe Ihnen. Der Preis beträgt 1.299,50 € am 3. Mai um 10:30 Uhr, z. B. im 3. Stock der "
    "Hauptstr. 5. ",
}
TOKEN_CHARS = 4
"""About what a language model sends at a time."""

HOSTILE = ("(", "1", "123,", "[", "<|", "a. ", "1%", ", ")
SHORT_CHARS = 5_000
LONG_TIMES = 4


def run(*, quick: bool) -> Report:
    """Streamed replies by language, then hostile texts at two lengths."""
    rounds = 20 if quick else 200
    rows: list[tuple[object, ...]] = []
    keys: dict[str, float | int | str] = {}
    for language, reply in REPLIES.items():
        first_us, all_us = zip(*(_stream(reply, language) for _ in range(rounds)), strict=True)
        rows.append((f"{language}, {len(reply)} characters", f"{median(first_us):.0f}", f"{median(all_us):.0f}"))
        keys[f"first_clause_cpu_us_{language}"] = round(median(first_us))
        keys[f"reply_cpu_us_{language}"] = round(median(all_us))
    worst_ratio, worst_us = 0.0, 0.0
    for unit in HOSTILE:
        short, long = (min(_whole(unit, chars) for _ in range(3)) for chars in (SHORT_CHARS, LONG_TIMES * SHORT_CHARS))
        rows.append((f"{LONG_TIMES * SHORT_CHARS} characters of {unit!r}", "-", f"{long * 1e6:.0f}"))
        worst_ratio = max(worst_ratio, long / short)
        worst_us = max(worst_us, long / (LONG_TIMES * SHORT_CHARS) * 1e6)
    keys["hostile_four_times_longer_cpu_ratio"] = round(worst_ratio, 2)
    keys["hostile_cpu_us_per_char"] = round(worst_us, 1)
    columns = ("text", "CPU to the first clause, us", "CPU in all, us")
    return Report("Text for speech, in pieces of four characters; hostile text in one", columns, rows, keys)


def _stream(reply: str, language: str) -> tuple[float, float]:
    """CPU microseconds until the first clause is out, and for the whole reply."""
    chunker = ClauseChunker(language)
    started = time.process_time()
    first: float | None = None
    for at in range(0, len(reply), TOKEN_CHARS):
        if chunker.push(reply[at : at + TOKEN_CHARS]) and first is None:
            first = time.process_time() - started
    chunker.flush()
    whole = time.process_time() - started
    return (whole if first is None else first) * 1e6, whole * 1e6


def _whole(unit: str, chars: int) -> float:
    """CPU seconds for a text of `unit` alone."""
    text = (unit * chars)[:chars]
    chunker = ClauseChunker("en")
    started = time.process_time()
    chunker.push(text)
    chunker.flush()
    return time.process_time() - started
