"""Listening without a recogniser: is speech found, how soon, what does noise do, and what does it cost a call.

Truth is energy: a 20 ms frame of a clip counts as speech within 25 dB of the clip's loudest. Clips are joined with
pauses of 1.2 s over a faint room (-65 dBFS). Delays are in audio time, from the first or last such frame to the frame
with which the event came; they hold the durations that the settings ask for (`start_ms`, `stop_ms`). CPU is of the
whole process, feeding frames at the pace of a call.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent import models
from agent.config import ListeningSettings, Settings
from agent.listening.listener import Heard, Listener, VoiceStarted, VoiceStopped
from agent.listening.silero import MODEL_FILE, WINDOW_SAMPLES, VadEngine
from agent.media.frames import FRAME_MS, HEARING_HZ, HEARING_SAMPLES, Pcm
from bench._speech import clips
from bench.harness import Report

__all__ = ["run"]

BELOW_PEAK_DB = 25.0
PAUSE_S = 1.2
ROOM_DB = -65.0
CALLS = 20


@dataclass(frozen=True)
class Joined:
    """Clips with pauses, and where each clip's energy begins and ends, in milliseconds."""

    pcm: Pcm
    spans: list[tuple[int, int]]
    loud: npt.NDArray[np.bool_]
    """Truth for each 20 ms frame."""


@dataclass(frozen=True)
class Timed:
    """An event and the audio clock when it came."""

    event: Heard
    at_ms: int


_Delays = tuple[list[float], list[float], list[float], float, float]


def run(*, quick: bool) -> Report:
    """Measure; about 35 s quick, 100 s in full."""
    return asyncio.run(_run(quick))


async def _run(quick: bool) -> Report:
    recorded = [clip.pcm() for clip in clips()][:: 2 if quick else 1]
    settings = ListeningSettings()
    rows: list[tuple[object, ...]] = []
    keys: dict[str, float | int | str] = {}
    async with VadEngine(models.require("silero-vad", Settings().models) / MODEL_FILE) as vad:
        for label, peak_db in (("normal, -6 dBFS", -6.0), ("soft, -30 dBFS", -30.0)):
            joined = _join(recorded, peak_db)
            found = await _hear(vad, joined.pcm, settings)
            starts, stops, late, hits, onsets = _delays(joined, found, settings.preroll_ms)
            extra = sum(isinstance(t.event, VoiceStarted) for t in found) / len(joined.spans)
            rows += [
                (f"clips found ({label})", f"{100 * hits:.1f} %", f"{len(recorded)} clips, {extra:.2f} segments each"),
                (f"start delay p50 / p95 ({label})", _pair(starts), f"includes start_ms {settings.start_ms}"),
                (f"stop delay p50 / p95 ({label})", _pair(stops), f"includes stop_ms {settings.stop_ms}"),
                (f"end_ms after the last energy p50 / p95 ({label})", _pair(late), "soft tails count as speech"),
                (f"onset inside the preroll ({label})", f"{100 * onsets:.1f} %", f"preroll {settings.preroll_ms} ms"),
            ]
            if peak_db == -6.0:
                keys["start_delay_p50_ms"], keys["start_delay_p95_ms"] = _percentiles(starts)
                keys["stop_delay_p50_ms"], keys["stop_delay_p95_ms"] = _percentiles(stops)
                keys["end_late_p50_ms"], keys["end_late_p95_ms"] = _percentiles(late)
                keys["clips_found_pct"] = round(100 * hits, 1)
                keys["onset_covered_pct"] = round(100 * onsets, 1)
                auc = _auc(*(await _window_scores(vad, joined)))
                keys["auc_ratio"] = round(auc, 4)
                rows.append(("detector alone, AUC against energy", f"{auc:.3f}", "32 ms windows"))
        for name, source in _noises(10.0 if quick else 30.0):
            found = await _hear(vad, source, settings)
            false = sum(isinstance(t.event, VoiceStarted) for t in found)
            readable = sum(
                isinstance(t.event, VoiceStopped) and t.event.speech_ms >= settings.min_segment_ms for t in found
            )
            minutes = len(source) / HEARING_HZ / 60
            unit = name.split()[0]
            keys[f"false_starts_per_minute_{unit}_count"] = round(false / minutes, 2)
            rows.append((f"false starts a minute, {name}", f"{false / minutes:.2f}", f"{readable} long enough to read"))
        loop = _join(recorded, -6.0).pcm
        for calls in (1, CALLS):
            pct, lag = await _cpu(vad, loop, calls, 7.0 if quick else 20.0, settings)
            keys[f"cpu_pct_per_call_{calls}_pct"] = round(pct, 3)
            keys[f"detector_lag_p95_{calls}_ms"] = round(lag, 2)
            rows.append((f"CPU a call, {calls} speaking", f"{pct:.2f} %", f"results {lag:.1f} ms after the frame, p95"))
        pct, _ = await _cpu(vad, np.zeros(HEARING_HZ, dtype=np.int16), CALLS, 3.0, settings)
        keys["cpu_pct_per_call_silent_pct"] = round(pct, 3)
        rows.append((f"CPU a call, {CALLS} silent", f"{pct:.2f} %", "the gate stays shut"))
        counts = vad.snapshot()
        keys["largest_batch_count"] = counts.largest_batch
    return Report(
        "Listening (gate, neural VAD, segments)",
        ("what", "measured", "note"),
        rows,
        keys,
        ("CPU is a share of one core; every call has someone speaking for 4/5 of the time.",),
    )


def _join(recorded: list[Pcm], peak_db: float) -> Joined:
    frame = HEARING_SAMPLES
    pause = int(PAUSE_S * HEARING_HZ) // frame * frame
    pieces: list[npt.NDArray[np.float64]] = [np.zeros(pause)]
    loud = [np.zeros(pause // frame, dtype=np.bool_)]
    spans, at = [], pause
    for clip in recorded:
        samples = clip[: len(clip) // frame * frame].astype(np.float64)
        samples *= 10 ** (peak_db / 20) * 32767 / np.abs(samples).max()
        level = 10 * np.log10((samples.reshape(-1, frame) ** 2).mean(axis=1) + 1e-3)
        is_loud = level > level.max() - BELOW_PEAK_DB
        where = np.flatnonzero(is_loud)
        begin = at // frame
        spans.append(((begin + int(where[0])) * FRAME_MS, (begin + int(where[-1]) + 1) * FRAME_MS))
        pieces += [samples, np.zeros(pause)]
        loud += [is_loud, np.zeros(pause // frame, dtype=np.bool_)]
        at += len(samples) + pause
    joined = np.concatenate(pieces)
    joined += np.random.default_rng(1).standard_normal(len(joined)) * 10 ** (ROOM_DB / 20) * 32768
    return Joined(np.clip(joined, -32768, 32767).astype(np.int16), spans, np.concatenate(loud))


async def _hear(vad: VadEngine, pcm: Pcm, settings: ListeningSettings) -> list[Timed]:
    found: list[Timed] = []

    def keep(event: Heard) -> None:
        if isinstance(event, VoiceStarted | VoiceStopped):
            found.append(Timed(event, listener.audio_ms))

    listener = Listener(settings, vad, keep)
    for at in range(0, len(pcm) - HEARING_SAMPLES + 1, HEARING_SAMPLES):
        listener.feed(pcm[at : at + HEARING_SAMPLES])
        await vad.settled()
    listener.close()
    return found


def _delays(joined: Joined, found: list[Timed], preroll_ms: int) -> _Delays:
    """Start and stop delays and lateness of `end_ms`, each a clip; share of clips found, and with their first sound."""
    starts: list[float] = []
    stops: list[float] = []
    late: list[float] = []
    covered = 0
    margin = int(PAUSE_S * 1000) // 2
    for first, last in joined.spans:
        mine = [t for t in found if first - margin < t.at_ms < last + 2 * margin]
        begun = [t for t in mine if isinstance(t.event, VoiceStarted) and t.at_ms < last + margin]
        ended = [t for t in mine if isinstance(t.event, VoiceStopped)]
        if begun and ended:
            starts.append(begun[0].at_ms - first)
            stops.append(ended[-1].at_ms - last)
            assert isinstance(begun[0].event, VoiceStarted)
            assert isinstance(ended[-1].event, VoiceStopped)
            late.append(ended[-1].event.end_ms - last)
            covered += begun[0].event.start_ms - preroll_ms <= first
    return starts, stops, late, len(starts) / len(joined.spans), covered / max(1, len(starts))


async def _window_scores(vad: VadEngine, joined: Joined) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    scores: list[float] = []
    ends: list[int] = []

    def keep(probability: float, end_sample: int) -> None:
        scores.append(probability)
        ends.append(end_sample)

    failures: list[Exception] = []
    stream = vad.open(keep, failures.append)
    for at in range(0, len(joined.pcm) - WINDOW_SAMPLES + 1, WINDOW_SAMPLES):
        stream.push(joined.pcm[at : at + WINDOW_SAMPLES])
        await vad.settled()
    stream.close()
    if failures:
        raise failures[0]
    middle = (np.array(ends) - WINDOW_SAMPLES // 2) // HEARING_SAMPLES
    return np.array(scores), joined.loud[np.minimum(middle, len(joined.loud) - 1)]


def _auc(scores: npt.NDArray[np.float64], truth: npt.NDArray[np.bool_]) -> float:
    """Probability that a window of speech scores above one without (Mann-Whitney; ties are rare in float32)."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores)] = np.arange(1, len(scores) + 1)
    yes, no = int(truth.sum()), int((~truth).sum())
    return float((ranks[truth].sum() - yes * (yes + 1) / 2) / (yes * no))


def _noises(seconds: float) -> list[tuple[str, Pcm]]:
    """Ten seconds or more of each kind at -50, -40, -30 and -20 dBFS, one after the other."""
    n = int(seconds * HEARING_HZ) // HEARING_SAMPLES * HEARING_SAMPLES
    rng = np.random.default_rng(2)
    t = np.arange(n) / HEARING_HZ
    spectrum = np.fft.rfft(rng.standard_normal(n))
    spectrum[1:] /= np.sqrt(np.arange(1, len(spectrum)))
    spectrum[0] = 0
    hum = sum(a * np.sin(2 * np.pi * 50 * k * t) for k, a in ((1, 1.0), (2, 0.3), (3, 0.5), (7, 0.1)))
    kinds = {"white": rng.standard_normal(n), "pink": np.fft.irfft(spectrum, n), "hum": np.asarray(hum)}
    out = []
    for name, noise in kinds.items():
        unit = noise / np.sqrt(np.mean(noise**2)) * 32768
        levels = [np.clip(unit * 10 ** (db / 20), -32768, 32767) for db in (-50, -40, -30, -20)]
        out.append((f"{name} noise, -50 to -20 dBFS in steps", np.concatenate(levels).astype(np.int16)))
    return out


async def _cpu(
    vad: VadEngine, source: Pcm, calls: int, seconds: float, settings: ListeningSettings
) -> tuple[float, float]:
    """Percent of a core a call, and p95 in ms from a tick to its last result."""

    def ignore(event: Heard) -> None:
        del event

    frames = [source[at : at + HEARING_SAMPLES] for at in range(0, len(source) - HEARING_SAMPLES + 1, HEARING_SAMPLES)]
    listeners = [Listener(settings, vad, ignore) for _ in range(calls)]
    loop = asyncio.get_running_loop()
    lags: list[float] = []
    cpu, began = time.process_time(), loop.time()
    for tick in range(int(seconds * 1000) // FRAME_MS):
        # Calls are apart by a prime number of frames, so that they neither speak nor pause together.
        for index, listener in enumerate(listeners):
            listener.feed(frames[(tick + index * 101) % len(frames)])
        fed = loop.time()
        await vad.settled()
        lags.append((loop.time() - fed) * 1000)
        await asyncio.sleep(max(0.0, began + (tick + 1) * FRAME_MS / 1000 - loop.time()))
    spent, wall = time.process_time() - cpu, loop.time() - began
    for listener in listeners:
        listener.close()
    return 100 * spent / wall / calls, float(np.percentile(lags, 95))


def _percentiles(values: list[float]) -> tuple[float, float]:
    return round(float(np.percentile(values, 50)), 1), round(float(np.percentile(values, 95)), 1)


def _pair(values: list[float]) -> str:
    p50, p95 = _percentiles(values)
    return f"{p50:.0f} / {p95:.0f} ms"
