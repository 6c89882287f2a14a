"""Turns with pauses in them, made of the recorded clips: where a speaker pauses, it is for as long as people do.

What is a turn, where it may end and what stands before each pause is written in `utterances.toml`, from the words and
before anything was measured. Clips are cut in the middle of their own pauses, and between two words where a hesitation
is wanted; each pause is made 300 to 1500 ms long. Truth is energy: a frame of 20 ms is speech within 30 dB of the
clip's loudest and 6 dB above its room, unless the neural detector is sure that it is none (breath, clicks and the noise
of some recordings are as loud).
"""

from __future__ import annotations

import re
import tomllib
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from agent.listening.graph import CONTEXT_SAMPLES, STATE_WIDTH, WINDOW_SAMPLES, VadGraph
from agent.media.frames import FRAME_MS, HEARING_HZ, HEARING_SAMPLES, Pcm
from bench._speech import Clip, clips

__all__ = ["Pause", "PausedTurn", "Piece", "Utterance", "add_noise", "paused_turn", "utterances"]

BELOW_PEAK_DB = 30.0
ABOVE_ROOM_DB = 6.0
SURELY_NOT_SPEECH = 0.1
SHORTEST_FRAMES = 10
"""200 ms: shorter dips are closures inside words, or between two of one phrase."""

PAUSE_MEDIAN_MS, PAUSE_SIGMA = 550.0, 0.5
PAUSE_MS = (300.0, 1500.0)
"""Pauses inside turns are log-normal (Campione and Veronis, 2002: most of spontaneous speech lies between 200 and
1000 ms, with a tail of hesitations); drawn again outside these bounds."""

LEAD_MS = 500
REST_MS = 3000
"""Silence after the turn: longer than any endpoint waits."""

FADE_SAMPLES = HEARING_HZ // 200
"""5 ms, where a hesitation cuts into voice: no click."""

UTTERANCES = Path(__file__).with_name("utterances.toml")

Before = Literal["part", "sentence"]
"""What was said before a pause: part of a sentence, or a whole one."""

_MARK = re.compile(r"\s(\|\||\||~~|~)(?=\s|$)")


@dataclass(frozen=True)
class Piece:
    """One clip's part of a turn."""

    clip: Clip
    own: tuple[Before, ...]
    """What stands before each of its own pauses."""
    cuts: tuple[tuple[int, Before], ...]
    """Hesitations: where, in milliseconds of the clip, and what stands before."""
    joint: Before | None
    """What stands before the pause that joins the next clip; None for the last."""
    used_ms: tuple[int, int] | None
    """The part of the clip that is used; None for all. What is left out are clicks."""


@dataclass(frozen=True)
class Utterance:
    """A turn as it is said."""

    group: str
    """Speakers that share voice or texts."""
    digits: int | None
    """How many the hook waits for."""
    pieces: tuple[Piece, ...]

    @property
    def name(self) -> str:
        return self.pieces[0].clip.name

    @property
    def language(self) -> str:
        return self.pieces[0].clip.language


@dataclass(frozen=True)
class Pause:
    """A pause inside a turn, in milliseconds of its audio: end of the speech before, begin of the speech after."""

    start_ms: int
    end_ms: int
    before: Before


@dataclass(frozen=True)
class PausedTurn:
    """A turn and its pauses, in milliseconds of its audio."""

    utterance: Utterance
    pcm: Pcm
    pauses: list[Pause]
    end_ms: int
    """End of the last speech."""
    snr_db: float | None = None
    """None: no noise added."""


def utterances() -> list[Utterance]:
    """The turns of `utterances.toml`.

    Raises:
        EnvironmentFault: the recorded speech is not there.
        KeyError: a clip that is named has no recording.
    """
    recorded = {clip.name: clip for clip in clips()}
    turns = tomllib.loads(UTTERANCES.read_text(encoding="utf-8"))["turn"]
    return [
        Utterance(
            turn["group"],
            turn.get("digits"),
            tuple(_piece(recorded[part["name"]], part) for part in turn["clips"]),
        )
        for turn in turns
    ]


def _piece(clip: Clip, part: dict[str, object]) -> Piece:
    said, cut_ms, used = str(part["said"]), part.get("cut_ms", []), part.get("used_ms")
    marks = _MARK.findall(said)
    joined = said.rstrip().endswith("|")
    joint = _before(marks.pop()) if joined else None
    assert isinstance(cut_ms, list)
    assert used is None or isinstance(used, list)
    cuts = zip(cut_ms, (_before(mark) for mark in marks if "~" in mark), strict=True)
    own = tuple(_before(mark) for mark in marks if "|" in mark)
    return Piece(clip, own, tuple(cuts), joint, (used[0], used[1]) if used else None)


def _before(mark: str) -> Before:
    return "sentence" if len(mark) == 2 else "part"


def paused_turn(utterance: Utterance, graph: VadGraph) -> PausedTurn:
    """The turn with its pauses; the same for every run.

    Raises:
        ValueError: a clip does not pause as often as its text says.
    """
    rng = np.random.default_rng(zlib.crc32(utterance.name.encode()))
    track = _Track(rng)
    for piece in utterance.pieces:
        track.add(piece, graph, stretch=utterance.digits is None)
    return track.turn(utterance)


class _Track:
    """A turn's audio as it grows."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._parts: list[Pcm] = [_room(1.0, LEAD_MS, rng)]
        self._at_ms = LEAD_MS
        self._end_ms = LEAD_MS
        self._floor = 1.0
        self._pauses: list[Pause] = []

    def add(self, piece: Piece, graph: VadGraph, *, stretch: bool) -> None:
        """Append a clip. `stretch`: its own pauses are made longer; those between digits stay as they are."""
        pcm = piece.clip.pcm()
        if piece.used_ms is not None:
            pcm = pcm[piece.used_ms[0] * HEARING_HZ // 1000 : piece.used_ms[1] * HEARING_HZ // 1000]
        pcm = pcm[: len(pcm) // HEARING_SAMPLES * HEARING_SAMPLES]
        loud = _loud(pcm) & (_probabilities(pcm, graph) >= SURELY_NOT_SPEECH)
        self._floor = _floor(pcm)
        frames = pcm.reshape(-1, HEARING_SAMPLES)
        first, last = int(np.flatnonzero(loud)[0]), int(np.flatnonzero(loud)[-1])
        cuts = [(ms // FRAME_MS, ms // FRAME_MS, before, True) for ms, before in piece.cuts]
        dips = [dip for dip in _dips(loud, first, last) if not any(dip[0] <= cut[0] < dip[1] for cut in cuts)]
        if len(dips) != len(piece.own):
            raise ValueError(
                f"{piece.clip.name}: expected {len(piece.own)} pauses as written, found {len(dips)}: {dips}"
            )
        own = [(start, stop, before, stretch) for (start, stop), before in zip(dips, piece.own, strict=True)]
        begin = first
        for start, stop, before, grows in sorted(cuts + own):
            level = (frames[start : stop + (start == stop)].astype(np.float64) ** 2).mean(axis=1)
            cut = start + int(level.argmin()) if start < stop else start
            dip_ms = (stop - start) * FRAME_MS
            gap_ms = (int(max(_draw_ms(self._rng), dip_ms)) // FRAME_MS * FRAME_MS - dip_ms) if grows else 0
            offset_ms = self._at_ms - begin * FRAME_MS
            self._pauses.append(Pause(offset_ms + start * FRAME_MS, offset_ms + stop * FRAME_MS + gap_ms, before))
            self._append(_faded(frames[begin:cut].reshape(-1)), (cut - begin) * FRAME_MS)
            self._append(_room(self._floor, gap_ms, self._rng), gap_ms)
            begin = cut
        self._end_ms = self._at_ms + (last + 1 - begin) * FRAME_MS
        tail = frames[begin : last + 6].reshape(-1)
        self._append(tail, len(tail) * 1000 // HEARING_HZ)
        if piece.joint is not None:
            gap_ms = max(0, int(_draw_ms(self._rng)) // FRAME_MS * FRAME_MS - (self._at_ms - self._end_ms))
            self._pauses.append(Pause(self._end_ms, self._at_ms + gap_ms, piece.joint))
            self._append(_room(self._floor, gap_ms, self._rng), gap_ms)

    def turn(self, utterance: Utterance) -> PausedTurn:
        self._parts[0] = _room(self._floor, LEAD_MS, self._rng)
        self._parts.append(_room(self._floor, REST_MS, self._rng))
        return PausedTurn(utterance, np.concatenate(self._parts), self._pauses, self._end_ms)

    def _append(self, pcm: Pcm, ms: int) -> None:
        self._parts.append(pcm)
        self._at_ms += ms


def add_noise(turn: PausedTurn, snr_db: float) -> PausedTurn:
    """The turn over pink noise, `snr_db` below the speech (both as power, speech without its pauses)."""
    rng = np.random.default_rng(zlib.crc32(turn.utterance.name.encode()) ^ int(snr_db))
    samples = turn.pcm.astype(np.float64)
    loud = np.repeat(_loud(turn.pcm[: len(turn.pcm) // HEARING_SAMPLES * HEARING_SAMPLES]), HEARING_SAMPLES)
    power = float((samples[: len(loud)][loud] ** 2).mean())
    spectrum = np.fft.rfft(rng.standard_normal(len(samples)))
    spectrum[1:] /= np.sqrt(np.arange(1, len(spectrum)))
    spectrum[0] = 0
    noise = np.fft.irfft(spectrum, len(samples))
    noise *= np.sqrt(power / 10 ** (snr_db / 10) / (noise**2).mean())
    mixed = np.clip(samples + noise, -32768, 32767).astype(np.int16)
    return replace(turn, pcm=mixed, snr_db=snr_db)


def _levels(pcm: Pcm) -> npt.NDArray[np.float64]:
    power = (pcm.reshape(-1, HEARING_SAMPLES).astype(np.float64) ** 2).mean(axis=1)
    levels: npt.NDArray[np.float64] = 10 * np.log10(power + 1e-3)
    return levels


def _loud(pcm: Pcm) -> npt.NDArray[np.bool_]:
    levels = _levels(pcm)
    loud: npt.NDArray[np.bool_] = levels > max(levels.max() - BELOW_PEAK_DB, levels.min() + ABOVE_ROOM_DB)
    return loud


def _probabilities(pcm: Pcm, graph: VadGraph) -> npt.NDArray[np.float64]:
    """The detector's for each frame: the highest of the windows that touch it."""
    padded = np.concatenate([np.zeros(CONTEXT_SAMPLES), pcm, np.zeros(WINDOW_SAMPLES)])
    samples: npt.NDArray[np.float32] = (padded / 32768).astype(np.float32)
    state = np.zeros((2, 1, STATE_WIDTH), np.float32)
    windows: list[float] = []
    for at in range(0, len(pcm), WINDOW_SAMPLES):
        answer, state = graph.run(samples[np.newaxis, at : at + CONTEXT_SAMPLES + WINDOW_SAMPLES], state)
        windows.append(float(answer[0]))
    starts = np.arange(0, len(pcm), HEARING_SAMPLES)
    touched = np.array(windows)[[starts // WINDOW_SAMPLES, (starts + HEARING_SAMPLES - 1) // WINDOW_SAMPLES]]
    highest: npt.NDArray[np.float64] = touched.max(axis=0)
    return highest


def _floor(pcm: Pcm) -> float:
    """RMS of the recording's room: of its quietest frame, since some clips hold no more of it."""
    return float(10 ** (_levels(pcm).min() / 20))


def _dips(loud: npt.NDArray[np.bool_], first: int, last: int) -> list[tuple[int, int]]:
    """Inner stretches without speech, as [start, stop) frames."""
    edges = np.flatnonzero(np.diff(loud[first : last + 1].astype(np.int8))) + first + 1
    quiet = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return [(start, stop) for start, stop in quiet if stop - start >= SHORTEST_FRAMES]


def _draw_ms(rng: np.random.Generator) -> float:
    while True:
        drawn = float(rng.lognormal(np.log(PAUSE_MEDIAN_MS), PAUSE_SIGMA))
        if PAUSE_MS[0] <= drawn <= PAUSE_MS[1]:
            return drawn


def _faded(pcm: Pcm) -> Pcm:
    faded = pcm.astype(np.float64)
    faded[-FADE_SAMPLES:] *= np.linspace(1.0, 0.0, min(FADE_SAMPLES, len(faded)))
    return faded.astype(np.int16)


def _room(rms: float, ms: int, rng: np.random.Generator) -> Pcm:
    samples = rng.standard_normal(ms * HEARING_HZ // 1000) * max(rms, 1.0)
    return np.clip(samples, -32768, 32767).astype(np.int16)
