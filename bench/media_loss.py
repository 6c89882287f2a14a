"""The same packet traces through stock aiortc's receive path and ours: what is left of the speech, and how late.

In virtual time: recorded speech, encoded with in-band FEC as a browser does, dropped, delayed and reordered by seeded
chance. A frame is "ok" if its own packet or a FEC copy of it was decoded. A stall is time without new speech. The delay
is that of the last frames behind the microphone. The word error rate is the recogniser's over what came out, each clip
under a seed of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np

from agent.asr.protocol import Recognizer
from agent.config import load_settings
from agent.core.pool import WorkerPool
from agent.errors import EngineError
from agent.media.frames import HEARING_HZ, HEARING_SAMPLES, Pcm
from agent.media.opus import Encoder
from bench._media import speech
from bench._speech import Clip, clips, error_rate_pct, pair
from bench._traces import TRACES, Outcome, make_trace, through_ours, through_stock
from bench.harness import Report, Value

__all__ = ["run"]

QUICK_CLIPS = 12
ATTEMPTS = 3
READERS = 2
"""Readings at once; the pool gives up on those that wait for long."""
SEED = 7
HEAD_SAMPLES = HEARING_HZ * 3 // 10
"""Silence before a clip, as a segment's preroll: some begin in mid-breath, and are read by how much comes before."""
TAIL_SAMPLES = HEARING_HZ // 2
"""Silence after it: the delay of a path must not cut its last word."""
COMPARED = ("no loss", "2 % loss")
"""Traces whose stock word error rate is measured in a quick run too."""

Path = Callable[[list[bytes], list[tuple[float, int]]], Outcome]


def run(*, quick: bool) -> Report:
    """20 s of speech a trace and a few clips (quick), or 120 s and all English clips."""
    seconds = 20 if quick else 120
    pcm = speech(HEARING_HZ)
    repeated = np.tile(pcm, -(-seconds * HEARING_HZ // len(pcm)))[: seconds * HEARING_HZ]
    payloads = _encode(repeated)
    results: dict[str, tuple[Outcome, Outcome]] = {}
    for name, delay in TRACES.items():
        trace = make_trace(len(payloads), delay, SEED)
        results[name] = (through_ours(payloads, trace), through_stock(payloads, trace))
    spoken = clips("en")
    if quick:
        spoken = spoken[:: len(spoken) // QUICK_CLIPS][:QUICK_CLIPS]
    errors = asyncio.run(_word_errors(spoken, quick=quick))

    rows: list[tuple[object, ...]] = []
    for name, (ours, stock) in results.items():
        theirs = errors.get((name, "stock"))
        rows.append(
            (
                name,
                f"{ours.ok_pct:.1f} / {stock.ok_pct:.1f}",
                f"{ours.fec} / {ours.concealed}",
                f"{ours.stall_ms:.0f} / {stock.stall_ms:.0f}",
                f"{ours.delay_ms:.0f} / {stock.delay_ms:.0f}",
                f"{errors[name, 'ours']:.2f} / {'-' if theirs is None else f'{theirs:.2f}'}",
            )
        )
    calm, one = results["no loss"], results["one packet lost"]
    keys: dict[str, Value] = {
        "ours_ok_pct_loss2": round(results["2 % loss"][0].ok_pct, 2),
        "stock_ok_pct_loss2": round(results["2 % loss"][1].ok_pct, 2),
        "ours_added_delay_ms_one_loss": round(one[0].delay_ms - calm[0].delay_ms, 1),
        "stock_added_delay_ms_one_loss": round(one[1].delay_ms - calm[1].delay_ms, 1),
        "ours_longest_stall_ms_loss5": round(results["5 % loss"][0].stall_ms, 1),
        "stock_longest_stall_ms_loss5": round(results["5 % loss"][1].stall_ms, 1),
        "wer_loss0": round(errors["no loss", "ours"], 2),
        "wer_loss2": round(errors["2 % loss", "ours"], 2),
        "wer_loss5": round(errors["5 % loss", "ours"], 2),
        "wer_loss10": round(errors["10 % loss", "ours"], 2),
        "wer_jitter60": round(errors["60 ms jitter", "ours"], 2),
        "stock_wer_loss2": round(errors["2 % loss", "stock"], 2),
    }
    columns = (
        "trace: ours / stock", "ok, %", "FEC / concealed (ours)", "longest stall, ms", "delay, ms", "word errors, %",
    )  # fmt: skip
    note = f"Word error rates over {len(spoken)} clips, {sum(len(clip.pcm()) for clip in spoken) // HEARING_HZ} s."
    return Report(f"Receive path under {seconds} s of speech a trace", columns, rows, keys, (note,))


def _encode(pcm: Pcm) -> list[bytes]:
    encoder = Encoder(HEARING_HZ, bitrate=32_000, expected_loss_pct=5)
    whole = len(pcm) // HEARING_SAMPLES * HEARING_SAMPLES
    try:
        return [encoder.encode(pcm[at : at + HEARING_SAMPLES]) for at in range(0, whole, HEARING_SAMPLES)]
    finally:
        encoder.close()


async def _word_errors(spoken: list[Clip], *, quick: bool) -> dict[tuple[str, str], float]:
    """Word error rate in percent by (trace, path)."""
    from agent.asr.moonshine import MoonshineRecognizer

    encoded = [_encode(np.pad(clip.pcm(), (HEAD_SAMPLES, TAIL_SAMPLES))) for clip in spoken]
    paths: dict[str, Path] = {"ours": through_ours, "stock": through_stock}
    errors: dict[tuple[str, str], float] = {}
    turns = asyncio.Semaphore(READERS)
    async with WorkerPool(READERS, name="bench") as pool:
        recognizer = await MoonshineRecognizer.load(load_settings(), pool)
        for name, delay in TRACES.items():
            for kind, through in paths.items():
                if quick and kind == "stock" and name not in COMPARED:
                    continue
                outcomes = [
                    through(payloads, make_trace(len(payloads), delay, SEED + number))
                    for number, payloads in enumerate(encoded)
                ]
                texts = await asyncio.gather(*(_read(recognizer, outcome.pcm, turns) for outcome in outcomes))
                errors[name, kind] = error_rate_pct(map(pair, spoken, texts))
        await recognizer.close()
    return errors


async def _read(recognizer: Recognizer, pcm: Pcm, turns: asyncio.Semaphore) -> str:
    async with turns:
        for attempt in range(ATTEMPTS):
            stream = recognizer.stream(language="en")
            stream.push(pcm)
            try:
                return (await stream.final()).text
            except EngineError:
                # A reading that missed its deadline says that the machine is busy, nothing of the path.
                if attempt == ATTEMPTS - 1:
                    raise
            finally:
                stream.close()
    raise AssertionError("unreachable")
