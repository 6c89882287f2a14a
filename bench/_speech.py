"""The recorded speech, and error rates over it."""

from __future__ import annotations

import csv
import os
import re
import wave
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import jiwer
import numpy as np
import numpy.typing as npt
import soxr
from num2words import num2words

from agent.asr.segment import RATE_HZ
from agent.errors import EnvironmentFault

__all__ = ["Clip", "clips", "error_rate_pct", "pair", "spell"]

FOLDER = Path(os.environ.get("REJOINDER_SPEECH") or Path(__file__).parents[1] / ".." / "shared" / "speech").resolve()

_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:st|nd|rd|th)?|\d")
_FULL_HOUR = re.compile(r"\b(\d{1,2}):00\b")
_SPELLINGS = {"mr": "mister", "mrs": "missus", "metres": "meters"}

_CLEAN = jiwer.Compose(
    [
        jiwer.ToLowerCase(),
        jiwer.SubstituteRegexes({r"[-\u2013\u2014]": " "}),
        jiwer.RemovePunctuation(),  # type: ignore[no-untyped-call]
        jiwer.RemoveMultipleSpaces(),
        jiwer.Strip(),
    ]
)


@dataclass(frozen=True)
class Clip:
    """One recording with what is said in it."""

    name: str
    language: str
    kind: str
    text: str
    wide: Path
    narrow: Path | None
    """The same at telephone band, where there is one."""

    def pcm(self, *, telephone: bool = False) -> npt.NDArray[np.int16]:
        """int16 [n], 16 kHz; the telephone band is raised to it as a gateway would."""
        path = self.narrow if telephone else self.wide
        if path is None:
            raise EnvironmentFault(f"{self.name} has no telephone-band recording")
        with wave.open(str(path)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
            rate_hz = file.getframerate()
        return samples if rate_hz == RATE_HZ else soxr.resample(samples, rate_hz, RATE_HZ)


def clips(language: str = "en", folder: Path = FOLDER) -> list[Clip]:
    """The clips of a language whose words are known.

    Raises:
        EnvironmentFault: the folder of recordings is not there.
    """
    manifest = folder / "manifest.tsv"
    if not manifest.exists():
        raise EnvironmentFault(f"no recorded speech in {folder}: set REJOINDER_SPEECH to the folder that has it")
    with manifest.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [
        Clip(
            name=Path(row["path"]).stem,
            language=row["lang"],
            kind=row["kind"],
            text=row["transcript"],
            wide=folder / row["path"],
            narrow=folder / row["path_8k"] if (folder / row["path_8k"]).is_file() else None,
        )
        for row in rows
        if row["lang"] == language and row["transcript"] != "?"
    ]


def spell(text: str, *, digits: bool = False) -> str:
    """Text as both sides of a word error rate are compared: lower case, no punctuation, numbers as words.

    Args:
        digits: the speaker said digits one by one, so "769" is "seven six nine".
    """

    def words(match: re.Match[str]) -> str:
        number = match[0].replace(",", "")
        if number.isdigit():
            each = number if digits else [number]
            return " " + " ".join(num2words(int(part)) for part in each) + " "
        return " " + str(num2words(int(number[:-2]), to="ordinal")) + " "

    cleaned = str(_CLEAN(_NUMBER.sub(words, _FULL_HOUR.sub(r"\1", text))))
    return " ".join(_SPELLINGS.get(word, word) for word in cleaned.split())


def pair(clip: Clip, text: str) -> tuple[str, str]:
    """Reference and hypothesis of one clip, spelled alike."""
    digits = clip.kind == "digits8k"
    return spell(clip.text, digits=digits), spell(text, digits=digits)


def error_rate_pct(pairs: Iterable[tuple[str, str]], *, characters: bool = False) -> float:
    """Word (or character) error rate over pairs of reference and hypothesis, both already spelled alike."""
    references, hypotheses = zip(*pairs, strict=True)
    measure = jiwer.cer if characters else jiwer.wer
    return 100.0 * float(measure(list(references), list(hypotheses)))
