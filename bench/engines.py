"""The embedded engines: word error rate, latency, cost and memory of the recogniser and of the voice.

- Word error rate of final readings at 16 kHz and at telephone band (raised to 16 kHz), and of streams.
- Real-time factor: CPU seconds a second of audio, for one final reading and for streaming with partials.
- Final latency, in the order of a call: frames of 20 ms, partials on the way, then (a) `final()` at the very end of
  speech, and (b) `final()` when the detector has closed the segment, the pause played in real time.
- The voice: its sentences read by the recogniser, real-time factor, time to the first clause.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soxr

from agent.asr.protocol import Recognizer
from agent.asr.rereading import RereadingRecognizer, RereadingStream
from agent.asr.segment import RATE_HZ, SpeechBuffer
from agent.config import Settings, load_settings
from agent.core.pool import WorkerPool
from agent.errors import EnvironmentFault
from bench._speech import Clip, clips, error_rate_pct, pair, spell
from bench.harness import Report, Value

__all__ = ["run"]

FRAME = RATE_HZ // 50
READ_DEADLINE_S = 20.0
QUICK_CLIPS = 8

SENTENCES = (
    "Thank you for calling. How can I help you today?",
    "Our store is open from nine in the morning until six in the evening.",
    "Your order has been shipped and will arrive on Thursday.",
    "Could you please repeat the number of your order?",
    "I am transferring you to a member of our team.",
    "The return was received, and the money is on its way to your account.",
    "Please hold the line while I look into that for you.",
    "I could not find an order with that number.",
    "Would you like me to send the details by email?",
    "The delivery is free for every order above fifty pounds.",
    "You can return any item within thirty days.",
    "I'm sorry, I did not understand. Could you say that again?",
    "The blue jacket is in stock in medium and large.",
    "Your appointment is on the third of October at half past two.",
    "Is there anything else I can do for you?",
    "We accept all major credit cards.",
    "The technician will call you about an hour before he arrives.",
    "Your subscription ends at the end of the month.",
    "Let me check the weather for the weekend.",
    "Thank you for your patience, and have a pleasant day.",
)


def run(*, quick: bool) -> Report:
    """Measure; see the module's docstring."""
    return asyncio.run(_run(quick=quick))


async def _run(*, quick: bool) -> Report:
    settings = load_settings()
    rows: list[tuple[object, ...]] = []
    keys: dict[str, Value] = {}
    notes: list[str] = []

    def add(what: str, key: str, value: float) -> None:
        rows.append((what, value, key.rsplit("_", 1)[1]))
        keys[key] = round(value, 4)

    english = clips("en")
    some = english[:: len(english) // QUICK_CLIPS] if quick else english
    if quick:
        english = english[::2]
    async with WorkerPool(1, name="bench") as pool:
        await _recogniser(settings, pool, english, some, add)
        await _voice(settings, pool, SENTENCES[:8] if quick else SENTENCES, add)
        try:
            await _mandarin(settings, pool, add)
        except EnvironmentFault as exc:
            notes.append(f"Mandarin was not measured: {exc}")
    notes += [
        f"{len(english)} English clips for word error rates of final readings, {len(some)} of them for streaming.",
        "The recogniser's limits were chosen with these clips and sentences: expect more errors on others.",
        "One worker thread. Latencies are wall-clock times on a machine that may be busy with other work.",
    ]
    return Report("Embedded engines", ("measure", "value", "unit"), rows, keys, tuple(notes))


Add = Callable[[str, str, float], None]


async def _recogniser(settings: Settings, pool: WorkerPool, english: list[Clip], some: list[Clip], add: Add) -> None:
    from agent.asr.moonshine import MoonshineRecognizer

    before_mb = _rss_mb()
    recognizer = await MoonshineRecognizer.load(settings, pool)
    audio_s = 0.0
    wide: list[tuple[str, str]] = []
    cpu_s = time.process_time()
    for clip in english:
        pcm = clip.pcm()
        audio_s += len(pcm) / RATE_HZ
        wide.append(pair(clip, await _at_once(recognizer, pcm)))
    cpu_s = time.process_time() - cpu_s
    add("recogniser: word error rate, 16 kHz", "wer_16k_pct", error_rate_pct(wide))
    narrow = [
        pair(clip, await _at_once(recognizer, clip.pcm(telephone=True))) for clip in english if clip.narrow is not None
    ]
    add("recogniser: word error rate, telephone band", "wer_8k_pct", error_rate_pct(narrow))
    add("recogniser: CPU a second of audio, final only", "asr_rtf_final_ratio", cpu_s / audio_s)

    streamed: list[tuple[str, str]] = []
    after_pause_ms: list[float] = []
    streaming_s = cpu_s = 0.0
    for clip in some:
        pcm = clip.pcm()
        began_s = time.process_time()
        text, waited_ms = await _as_a_call(recognizer, pcm, settings.listening.stop_ms)
        cpu_s += time.process_time() - began_s
        streaming_s += len(pcm) / RATE_HZ
        streamed.append(pair(clip, text))
        after_pause_ms.append(waited_ms)
    add("recogniser: word error rate, streamed with partials", "wer_streaming_pct", error_rate_pct(streamed))
    add("recogniser: CPU a second of audio, with partials", "asr_rtf_streaming_ratio", cpu_s / streaming_s)

    at_end = [await _to_the_end(recognizer, clip.pcm()) for clip in some]
    at_end_ms, at_end_cpu_ms = zip(*at_end, strict=True)
    add("final() at the end of speech, median", "asr_final_p50_ms", statistics.median(at_end_ms))
    add("final() at the end of speech, 95th percentile", "asr_final_p95_ms", float(np.percentile(at_end_ms, 95)))
    add("  its CPU time, median", "asr_final_cpu_p50_ms", statistics.median(at_end_cpu_ms))
    add("  its CPU time, 95th percentile", "asr_final_cpu_p95_ms", float(np.percentile(at_end_cpu_ms, 95)))
    add("final() when the pause is detected, median", "asr_final_after_pause_p50_ms", statistics.median(after_pause_ms))
    add(
        "final() when the pause is detected, 95th percentile",
        "asr_final_after_pause_p95_ms",
        float(np.percentile(after_pause_ms, 95)),
    )
    fives = [clip for clip in english if 4.5 <= len(clip.pcm()) / RATE_HZ <= 5.7]
    with _one_core():
        after_five = [await _to_the_end(recognizer, clip.pcm()) for clip in fives]
    five_ms, five_cpu_ms = zip(*after_five, strict=True)
    add("final() after 5 s of speech, one core, median", "final_after_5s_utterance_ms", statistics.median(five_ms))
    add("  its CPU time, worst", "final_after_5s_utterance_cpu_ms", max(five_cpu_ms))
    add("recogniser: memory", "rss_asr_mb", _rss_mb() - before_mb)
    await recognizer.close()


async def _voice(settings: Settings, pool: WorkerPool, sentences: tuple[str, ...], add: Add) -> None:
    from agent.asr.moonshine import MoonshineRecognizer
    from agent.tts.factory import create_synthesizer
    from agent.tts.protocol import Style, Voice

    before_mb = _rss_mb()
    synthesizer = await create_synthesizer(settings, pool)
    voice, style = Voice(settings.tts.voice, settings.tts.language), Style(settings.tts.rate)
    rate_hz = synthesizer.info.sample_rate_hz
    first_ms: list[float] = []
    spoken: list[npt.NDArray[np.int16]] = []
    cpu_s = time.process_time()
    for sentence in sentences:
        began_s = time.monotonic()
        pieces: list[npt.NDArray[np.int16]] = []
        async for speech in synthesizer.stream(sentence, voice, style):
            if not pieces:
                first_ms.append(1000 * (time.monotonic() - began_s))
            pieces.append(speech.pcm)
        spoken.append(np.concatenate(pieces))
    cpu_s = time.process_time() - cpu_s
    rss_mb = _rss_mb() - before_mb
    recognizer = await MoonshineRecognizer.load(settings, pool)
    pairs = [
        (spell(sentence), spell(await _at_once(recognizer, soxr.resample(pcm, rate_hz, RATE_HZ))))
        for sentence, pcm in zip(sentences, spoken, strict=True)
    ]
    add("voice: word error rate of the recogniser over it", "tts_wer_pct", error_rate_pct(pairs))
    add("voice: CPU a second of audio", "tts_rtf_ratio", cpu_s / (sum(map(len, spoken)) / rate_hz))
    add("voice: first clause, median", "tts_first_clause_ms", statistics.median(first_ms))
    add("voice: memory", "rss_tts_mb", rss_mb)
    await recognizer.close()
    await synthesizer.close()


async def _mandarin(settings: Settings, pool: WorkerPool, add: Add) -> None:
    from agent.asr.whisper import WhisperRecognizer

    recognizer = await WhisperRecognizer.load(settings, pool)
    audio_s = 0.0
    pairs: list[tuple[str, str]] = []
    cpu_s = time.process_time()
    for clip in clips("zh"):
        pcm = clip.pcm()
        audio_s += len(pcm) / RATE_HZ
        heard = await _at_once(recognizer, pcm, language="zh")
        # Spaces between characters mean nothing.
        pairs.append((spell(clip.text), spell(heard).replace(" ", "")))
    cpu_s = time.process_time() - cpu_s
    add("recogniser, Mandarin: character error rate", "cer_zh_pct", error_rate_pct(pairs, characters=True))
    add("recogniser, Mandarin: CPU a second of audio, final only", "asr_zh_rtf_final_ratio", cpu_s / audio_s)
    await recognizer.close()


async def _at_once(recognizer: Recognizer, pcm: npt.NDArray[np.int16], language: str = "en") -> str:
    """A final reading of a whole clip, without partials."""
    stream = recognizer.stream(language=language)
    stream.push(pcm)
    hypothesis = await stream.final()
    stream.close()
    return hypothesis.text


async def _feed(stream: RereadingStream, pcm: npt.NDArray[np.int16]) -> None:
    """Push in frames of 20 ms, as fast as the readings that fall due come to their end.

    A reading of the last step is left in flight, as it would be in a call.
    """
    for at in range(0, len(pcm), FRAME):
        await stream.settled()
        stream.push(pcm[at : at + FRAME])
        # The task that a push may have started takes up its audio before more comes.
        await asyncio.sleep(0)


def _speech_end(pcm: npt.NDArray[np.int16]) -> int:
    buffer = SpeechBuffer()
    buffer.append(pcm)
    return buffer.speech()[1]


async def _to_the_end(recognizer: RereadingRecognizer, pcm: npt.NDArray[np.int16]) -> tuple[float, float]:
    """Milliseconds, on the wall and of CPU, from the last loud sample to the final reading asked for at once."""
    stream = recognizer.stream(language="en")
    await _feed(stream, pcm[: _speech_end(pcm)])
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    async with asyncio.timeout(READ_DEADLINE_S):
        await stream.final()
    took_ms, cpu_ms = 1000 * (time.monotonic() - began_s), 1000 * (time.process_time() - began_cpu_s)
    stream.close()
    return took_ms, cpu_ms


async def _as_a_call(recognizer: RereadingRecognizer, pcm: npt.NDArray[np.int16], stop_ms: int) -> tuple[str, float]:
    """Text, and milliseconds from the detected pause to the final reading; the pause is played in real time."""
    stream = recognizer.stream(language="en")
    end = _speech_end(pcm)
    await _feed(stream, pcm[:end])
    room = np.random.default_rng(0).integers(-8, 8, stop_ms * RATE_HZ // 1000, np.int16)
    tail = np.concatenate([pcm[end : end + len(room)], room])[: len(room)]
    began_s = time.monotonic()
    for number, at in enumerate(range(0, len(tail), FRAME), start=1):
        stream.push(tail[at : at + FRAME])
        await asyncio.sleep(max(0.0, began_s + number * 0.02 - time.monotonic()))
    began_s = time.monotonic()
    async with asyncio.timeout(READ_DEADLINE_S):
        hypothesis = await stream.final()
    took_ms = 1000 * (time.monotonic() - began_s)
    stream.close()
    return hypothesis.text, took_ms


@contextmanager
def _one_core() -> Iterator[None]:
    """Keep this process on one core, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    threads = [int(path.name) for path in Path("/proc/self/task").iterdir()]
    before = os.sched_getaffinity(0)
    try:
        for thread in threads:
            os.sched_setaffinity(thread, {min(before)})
        yield
    finally:
        for thread in threads:
            os.sched_setaffinity(thread, before)


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6
