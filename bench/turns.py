"""The end of a turn: delay against false cut-offs, for silence alone, for each source of evidence, and fused.

Turns are made of the recorded clips, their own pauses stretched (`bench/_pauses.py`), clean and in pink noise at 20, 10
and 5 dB. Listener, recogniser and turn model are the real ones, in virtual time. Delay counts from the last speech in
the audio to the decision. A turn is cut off when any of its inner pauses is taken for the end. Where the clip is
digits, the estimator knows that six are waited for, as a hook would say.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from agent import models
from agent.asr.moonshine import MoonshineModel
from agent.config import ListeningSettings, Settings, load_settings
from agent.errors import ModelMissing
from agent.listening import fused
from agent.listening.endpoint import EndOfTurn, Evidence, SilenceEndpoint
from agent.listening.fused import FusedEndpoint, Weights, create_endpoint
from agent.listening.graph import MODEL_FILE as VAD_FILE
from agent.listening.graph import SileroGraph
from agent.listening.smartturn import MODEL_FILE, SmartTurn
from agent.replay.engines import InlinePool, InlineVad
from bench._endings import Closing, Outcome, TimedRecognizer, Traced, decide, trace
from bench._pauses import HELD_OUT, add_noise, paused_turn
from bench._speech import clips
from bench.harness import Report, Value

__all__ = ["run"]

NOISES: tuple[float | None, ...] = (None, 20.0, 10.0, 5.0)
QUICK_NOISES: tuple[float | None, ...] = (None, 10.0)
QUICK_STEP = 2

SILENCES_MS = (300, 400, 500, 600, 800, 1000, 1200)
SURE = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
"""Points of a curve: how sure an estimator must be, in log odds."""

AUDIBLE_AFTER_MS = 150.0
"""From a decision to the first sound of a quick answer. Who goes on sooner was not talked over: the turn reopens."""

SOURCES: dict[str, Weights] = {
    "turn model": Weights(1.0, 0, 0, 0),
    "contour": Weights(1.0, 0, 0, 0),
    "recogniser": Weights(0, 1.0, 0, 0),
    "wording": Weights(0, 0, 1.0, 0),
    "expectation": Weights(0, 0, 0, 1.0),
    "fusion without a model": fused.WEIGHTS,
    "fusion": fused.WEIGHTS,
}

CHART = Path(__file__).parents[1] / "docs" / "endpointing.png"

Look = Callable[[Closing, bool], Evidence]


def run(*, quick: bool) -> Report:
    """Measure; about 35 s quick, 2 minutes in full."""
    return asyncio.run(_run(quick=quick))


async def _run(*, quick: bool) -> Report:
    settings = load_settings()
    traced = await _trace(settings, quick=quick)
    listening = settings.listening
    rows: list[tuple[object, ...]] = []
    keys: dict[str, Value] = {}
    for silence_ms in SILENCES_MS:
        outcomes = [_outcome(turn, SilenceEndpoint(silence_ms), "fusion") for turn in traced]
        rows.append((f"silence {silence_ms} ms", *_figures(outcomes)))
        if silence_ms in (500, 800):
            _keys(keys, f"silence{silence_ms}", outcomes)
    curves: dict[str, list[tuple[float, float]]] = {}
    for source, weights in SOURCES.items():
        points = []
        for sure in SURE:
            outcomes = [_outcome(turn, _fused(listening, weights, sure), source) for turn in traced]
            points.append((_delay(outcomes, 50), _cut_pct(outcomes)))
            if sure in (0.5, 1.0, 1.5, 2.0, 3.0):
                rows.append((f"{source}, sure at {sure:g}", *_figures(outcomes)))
        curves[source] = points
    outcomes = [_outcome(turn, create_endpoint(listening), "fusion") for turn in traced]
    rows.append(("fusion as set", *_figures(outcomes)))
    _keys(keys, "fusion", outcomes)
    keys["fusion_p95_ms"] = round(_delay(outcomes, 95), 1)
    # Cut-offs fall as delay grows along the curve; between its points a straight line.
    delays, cuts = zip(*reversed(curves["fusion"]), strict=True)
    at_equal = np.interp(float(keys["silence800_cutoff_pct"]), cuts, delays)
    keys["fusion_at_silence800_cutoff_p50_ms"] = round(float(at_equal), 1)
    drawn = not quick and importlib.util.find_spec("matplotlib") is not None
    if drawn:
        _chart(curves, [_point(traced, ms) for ms in SILENCES_MS])
    modelled = any(closing.model is not None for turn in traced for closing in turn.closings)
    columns = ("rule", "p50, ms", "p95, ms", "turns cut, %", "pauses cut, %", "turns talked over, %")
    notes = (
        f"{len(traced)} turns with {sum(outcome.pauses for outcome in outcomes)} inner pauses that closed a segment; "
        f"stop_ms {listening.stop_ms}.",
        "Weights and constants were fitted on the other half, but chosen with an eye on this one: the figures flatter.",
        f"Talked over: the caller went on more than {AUDIBLE_AFTER_MS:g} ms after the decision, so that a quick answer "
        "had begun. What goes on sooner is the same turn.",
        *(["The curves are drawn in docs/endpointing.png."] if drawn else []),
        *([] if modelled else ["No turn model is installed: `rejoinder models fetch turn`."]),
        "Read speech, cut where the readers paused, mostly behind whole clauses: harder than most of what callers say.",
    )
    return Report("End of turn: delay and false cut-offs", columns, rows, keys, notes)


async def _trace(settings: Settings, *, quick: bool) -> list[Traced]:
    held = [clip for clip in clips() if clip.name in HELD_OUT][:: QUICK_STEP if quick else 1]
    vad_file = models.require("silero-vad", settings.models) / VAD_FILE
    graph = SileroGraph(vad_file)
    turn_model = _turn_model(settings)
    reader = MoonshineModel(models.require("moonshine-base-en", settings.models))
    recognizer = TimedRecognizer(reader, InlinePool())
    traced: list[Traced] = []
    async with InlineVad(vad_file) as vad:
        for clip in held:
            for snr_db in QUICK_NOISES if quick else NOISES:
                turn = paused_turn(clip, graph)
                if snr_db is not None:
                    turn = add_noise(turn, snr_db)
                traced.append(await trace(turn, settings.listening, vad, recognizer, turn_model))
    return traced


def _fused(settings: ListeningSettings, weights: Weights, sure: float) -> FusedEndpoint:
    return FusedEndpoint(settings.endpoint_min_ms, settings.endpoint_max_ms, weights=weights, sure_odds=sure)


def _turn_model(settings: Settings) -> SmartTurn | None:
    try:
        return SmartTurn(models.require("smart-turn", settings.models) / MODEL_FILE)
    except ModelMissing:
        return None


def _outcome(traced: Traced, endpoint: EndOfTurn, source: str) -> Outcome:
    return decide(traced, endpoint, _look(traced, source), audible_after_ms=AUDIBLE_AFTER_MS)


def _look(traced: Traced, source: str) -> Look:
    digits = traced.turn.clip.kind == "digits8k"

    def look(closing: Closing, answered: bool) -> Evidence:
        evidence = Evidence(
            text=closing.final.text,
            stable=closing.final.text,
            speech_ms=closing.speech_ms,
            expect="digits" if digits else "free",
            min_digits=6 if digits else None,
            language=traced.turn.clip.language,
            end_of_turn=closing.final.end_of_turn,
            sound=closing.model if answered else None,
        )
        return replace(evidence, sound=closing.contour) if source in ("contour", "fusion without a model") else evidence

    return look


def _delay(outcomes: list[Outcome], percent: float) -> float:
    return float(np.percentile([o.delay_ms for o in outcomes if o.delay_ms is not None], percent))


def _cut_pct(outcomes: list[Outcome]) -> float:
    return 100 * sum(outcome.cut_offs > 0 for outcome in outcomes) / len(outcomes)


def _figures(outcomes: list[Outcome]) -> tuple[str, ...]:
    pauses = sum(outcome.pauses for outcome in outcomes)
    return (
        f"{_delay(outcomes, 50):.0f}",
        f"{_delay(outcomes, 95):.0f}",
        f"{_cut_pct(outcomes):.0f}",
        f"{100 * sum(outcome.cut_offs for outcome in outcomes) / max(1, pauses):.0f}",
        f"{_over_pct(outcomes):.0f}",
    )


def _over_pct(outcomes: list[Outcome]) -> float:
    return 100 * sum(outcome.audible > 0 for outcome in outcomes) / len(outcomes)


def _keys(keys: dict[str, Value], name: str, outcomes: list[Outcome]) -> None:
    keys[f"{name}_p50_ms"] = round(_delay(outcomes, 50), 1)
    keys[f"{name}_cutoff_pct"] = round(_cut_pct(outcomes), 1)
    keys[f"{name}_talked_over_pct"] = round(_over_pct(outcomes), 1)


def _point(traced: list[Traced], silence_ms: float) -> tuple[float, float]:
    outcomes = [_outcome(turn, SilenceEndpoint(silence_ms), "fusion") for turn in traced]
    return _delay(outcomes, 50), _cut_pct(outcomes)


def _chart(curves: dict[str, list[tuple[float, float]]], silence: list[tuple[float, float]]) -> None:
    """Draw the curves into docs/."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), dpi=110)
    axes = figure.subplots()
    axes.plot(*zip(*silence, strict=True), "k--o", label="silence alone")
    for source, points in curves.items():
        axes.plot(*zip(*points, strict=True), marker=".", linewidth=2.5 if source == "fusion" else 1.0, label=source)
    axes.set(xlabel="delay after the last speech, median, ms", ylabel="turns cut off, %", xlim=(200, 1400))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(CHART, bbox_inches="tight")
