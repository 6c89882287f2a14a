"""The end of a turn: delay against false cut-offs, for silence alone, for each source of evidence, and fused.

Turns are made of the recorded clips (`bench/utterances.toml`, `bench/_pauses.py`), clean and in pink noise at 20, 10
and 5 dB. Listener, recogniser and turn model are the real ones, in virtual time. Delay counts from the last speech in
the audio to the decision. A turn is cut off when any of its inner pauses is taken for the end. Where digits are said,
the estimator knows how many are waited for, as a hook would say.

The fusion is cross-validated: each turn is decided with weights and threshold fitted on the other groups of speakers.
"""

from __future__ import annotations

import asyncio
import importlib.util
import re
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
from bench._endings import Closing, Outcome, TimedRecognizer, Traced, decide, is_inner, trace
from bench._fitting import Example, fit_weights, least_sure
from bench._pauses import Before, add_noise, paused_turn, utterances
from bench.harness import Report, Value

__all__ = ["run"]

NOISES: tuple[float | None, ...] = (None, 20.0, 10.0, 5.0)
QUICK_NOISES: tuple[float | None, ...] = (None, 10.0)
QUICK_STEP = 4

MARGIN = 0.9
"""Thresholds are fitted to this share of the 800 ms rule's cut-offs: on other speakers there are a few more."""

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
    """Measure; about 20 s quick, 4 minutes in full."""
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
    by_noise: dict[float | None, dict[str, list[Outcome]]] = {}
    curves: dict[str, list[tuple[float, float]]] = {}
    for source, weights in SOURCES.items():
        points = []
        for sure in SURE:
            outcomes = [_outcome(turn, _fused(listening, weights, sure), source) for turn in traced]
            points.append((_delay(outcomes, 50), _cut_pct(outcomes)))
            if sure in (0.5, 1.0, 1.5, 2.0, 3.0):
                rows.append((f"{source}, sure at {sure:g}", *_figures(outcomes)))
        curves[source] = points
    fitted = _cross_validated(traced, listening)
    outcomes = [_outcome(turn, endpoint, "fusion") for turn, endpoint in fitted]
    rows.append(("fusion, cross-validated", *_figures(outcomes)))
    _keys(keys, "fusion", outcomes)
    keys["fusion_p95_ms"] = round(_delay(outcomes, 95), 1)
    as_set = [_outcome(turn, create_endpoint(listening), "fusion") for turn in traced]
    rows.append(("fusion as set (fitted on these turns)", *_figures(as_set)))
    unmarked = [
        decide(turn, create_endpoint(listening), _unmarked(turn), audible_after_ms=AUDIBLE_AFTER_MS) for turn in traced
    ]
    rows.append(("the same, of a recogniser without capitals and marks", *_figures(unmarked)))
    for (turn, _), outcome in zip(fitted, outcomes, strict=True):
        kinds = by_noise.setdefault(turn.turn.snr_db, {"fusion, cross-validated": [], "silence 800 ms": []})
        kinds["fusion, cross-validated"].append(outcome)
        kinds["silence 800 ms"].append(_outcome(turn, SilenceEndpoint(800), "fusion"))
    for snr_db, kinds in by_noise.items():
        noise = "clean" if snr_db is None else f"{snr_db:g} dB"
        rows += [(f"{rule}, {noise}", *_figures(those)) for rule, those in kinds.items()]
    drawn = not quick and importlib.util.find_spec("matplotlib") is not None
    if drawn:
        _chart(curves, [_point(traced, ms) for ms in SILENCES_MS], (_delay(outcomes, 50), _cut_pct(outcomes)))
    modelled = any(closing.model is not None for turn in traced for closing in turn.closings)
    columns = (
        "rule",
        "p50, ms",
        "p95, ms",
        "turns cut, %",
        "pauses cut, %",
        "behind a part",
        "behind a sentence",
        "over, %",
    )
    notes = (
        f"{len(traced)} turns with {sum(len(outcome.judged) for outcome in outcomes)} inner pauses; "
        f"stop_ms {listening.stop_ms}.",
        "Cross-validated: weights and threshold come from the other groups of speakers. Which sources there are, their "
        "tables and the scale were chosen with all turns in sight.",
        "Behind a part, behind a sentence: pauses cut off, in % of those behind part of a sentence, or a whole one.",
        f"Over: turns whose caller went on more than {AUDIBLE_AFTER_MS:g} ms after the decision, so an answer "
        "had begun. What goes on sooner is the same turn.",
        "Curves and rows of a source alone use no fit; those of the fusion, its shipped weights.",
        *(["Quick: too few turns to judge by."] if quick else []),
        *(["The curves are drawn in docs/endpointing.png."] if drawn else []),
        *([] if modelled else ["No turn model is installed: `rejoinder models fetch turn`."]),
        "Read speech with pauses stretched and put in: no real caller hesitates in it.",
    )
    return Report("End of turn: delay and false cut-offs", columns, rows, keys, notes)


def _cross_validated(traced: list[Traced], settings: ListeningSettings) -> list[tuple[Traced, FusedEndpoint]]:
    """Each turn with an estimator that was fitted without its group."""
    fitted: list[tuple[Traced, FusedEndpoint]] = []
    for group in dict.fromkeys(turn.turn.utterance.group for turn in traced):
        others = [turn for turn in traced if turn.turn.utterance.group != group]
        endpoint = _fit(others, settings)
        fitted += [(turn, endpoint) for turn in traced if turn.turn.utterance.group == group]
    return fitted


def _fit(traced: list[Traced], settings: ListeningSettings) -> FusedEndpoint:
    examples: list[Example] = []
    for turn in traced:
        look = _look(turn, "fusion")
        inner = [closing for closing in turn.closings if is_inner(turn.turn, closing)]
        last = [closing for closing in turn.closings if not is_inner(turn.turn, closing)][:1]
        for closings, ended in ((inner, False), (last, True)):
            examples += [Example(look(closing, True), ended) for closing in closings if closing.final.text]
    weights = fit_weights(examples, fused.WEIGHTS.expectation)

    def cut_pct(sure: float) -> float:
        return _cut_pct([_outcome(turn, _fused(settings, weights, sure), "fusion") for turn in traced])

    silence = _cut_pct([_outcome(turn, SilenceEndpoint(800), "fusion") for turn in traced])
    return _fused(settings, weights, least_sure(cut_pct, MARGIN * silence))


async def _trace(settings: Settings, *, quick: bool) -> list[Traced]:
    vad_file = models.require("silero-vad", settings.models) / VAD_FILE
    graph = SileroGraph(vad_file)
    turn_model = _turn_model(settings)
    reader = MoonshineModel(models.require("moonshine-base-en", settings.models))
    recognizer = TimedRecognizer(reader, InlinePool())
    traced: list[Traced] = []
    async with InlineVad(vad_file) as vad:
        for utterance in utterances()[:: QUICK_STEP if quick else 1]:
            for snr_db in QUICK_NOISES if quick else NOISES:
                turn = paused_turn(utterance, graph)
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
    utterance = traced.turn.utterance

    def look(closing: Closing, answered: bool) -> Evidence:
        evidence = Evidence(
            text=closing.final.text,
            stable=closing.final.text,
            speech_ms=closing.speech_ms,
            expect="digits" if utterance.digits else "free",
            min_digits=utterance.digits,
            language=utterance.language,
            end_of_turn=closing.final.end_of_turn,
            sound=closing.model if answered else None,
        )
        return replace(evidence, sound=closing.contour) if source in ("contour", "fusion without a model") else evidence

    return look


def _unmarked(traced: Traced) -> Look:
    """What a plain recogniser would have told: small letters, no marks, nothing about the turn's end."""
    told = _look(traced, "fusion")

    def look(closing: Closing, answered: bool) -> Evidence:
        evidence = told(closing, answered)
        text = " ".join(re.sub(r"[^\w\s']+", " ", evidence.text.lower()).split())
        return replace(evidence, text=text, stable=text, end_of_turn=None)

    return look


def _delay(outcomes: list[Outcome], percent: float) -> float:
    return float(np.percentile([o.delay_ms for o in outcomes if o.delay_ms is not None], percent))


def _cut_pct(outcomes: list[Outcome]) -> float:
    return 100 * sum(outcome.cut_off for outcome in outcomes) / len(outcomes)


def _figures(outcomes: list[Outcome]) -> tuple[str, ...]:
    return (
        f"{_delay(outcomes, 50):.0f}",
        f"{_delay(outcomes, 95):.0f}",
        f"{_cut_pct(outcomes):.0f}",
        f"{_pauses_pct(outcomes, 'part', 'sentence'):.0f}",
        f"{_pauses_pct(outcomes, 'part'):.0f}",
        f"{_pauses_pct(outcomes, 'sentence'):.0f}",
        f"{_over_pct(outcomes):.0f}",
    )


def _pauses_pct(outcomes: list[Outcome], *kinds: Before) -> float:
    cuts = [pause.cut for outcome in outcomes for pause in outcome.judged if pause.before in kinds]
    return 100 * sum(cuts) / max(1, len(cuts))


def _over_pct(outcomes: list[Outcome]) -> float:
    return 100 * sum(outcome.talked_over for outcome in outcomes) / len(outcomes)


def _keys(keys: dict[str, Value], name: str, outcomes: list[Outcome]) -> None:
    keys[f"{name}_p50_ms"] = round(_delay(outcomes, 50), 1)
    keys[f"{name}_cutoff_pct"] = round(_cut_pct(outcomes), 1)
    keys[f"{name}_talked_over_pct"] = round(_over_pct(outcomes), 1)


def _point(traced: list[Traced], silence_ms: float) -> tuple[float, float]:
    outcomes = [_outcome(turn, SilenceEndpoint(silence_ms), "fusion") for turn in traced]
    return _delay(outcomes, 50), _cut_pct(outcomes)


def _chart(
    curves: dict[str, list[tuple[float, float]]], silence: list[tuple[float, float]], fitted: tuple[float, float]
) -> None:
    """Draw the curves into docs/."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), dpi=110)
    axes = figure.subplots()
    axes.plot(*zip(*silence, strict=True), "k--o", label="silence alone")
    for source, points in curves.items():
        axes.plot(*zip(*points, strict=True), marker=".", linewidth=2.5 if source == "fusion" else 1.0, label=source)
    axes.plot(*fitted, "k*", markersize=12, label="fusion, cross-validated")
    axes.set(xlabel="delay after the last speech, median, ms", ylabel="turns cut off, %", xlim=(200, 1400))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(CHART, bbox_inches="tight")
