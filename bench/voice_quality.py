"""What the Opus settings of outgoing speech cost in CPU and in likeness to the voice: why the defaults are as they are.

Likeness is the frequency-weighted segmental SNR of Hu and Loizou (2008): 30 ms windows, 25 critical bands, each band's
SNR held to -10 to 35 dB and weighted by its level to the power of 0.2. It follows listeners' ratings of coded speech
more closely than plain SNR, and is no substitute for them. Silence is left out.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from agent.config import MediaSettings
from agent.media.frames import SPEAKING_HZ, Pcm
from agent.media.opus import Decoder, Encoder, has_fec
from bench._media import speech
from bench.harness import Report

__all__ = ["likeness_db", "run"]

FRAME = SPEAKING_HZ // 50
FFT = 1024
WINDOW = SPEAKING_HZ * 30 // 1000
HOP = WINDOW // 4
BANDS = 25
FORMER = (5, 32_000)
"""Complexity and bit rate of the defaults that the present ones are held against; FEC was always on."""
QUICK_SETTINGS = (FORMER, (1, 32_000), (2, 40_000))
MORE_SETTINGS = ((0, 44_000), (2, 44_000), (5, 44_000), (10, 44_000))
SEARCH = 1_000
"""A codec delays by less than this many samples."""


def likeness_db(wanted: Pcm, coded: Pcm, rate_hz: int) -> float:
    """Frequency-weighted segmental SNR of two recordings, the second one delayed or not; int16 [n] each."""
    count = min(len(wanted), len(coded))
    a, b = wanted[:count].astype(np.float64), coded[:count].astype(np.float64)
    cross = np.fft.irfft(np.fft.rfft(b, 2 * count) * np.conj(np.fft.rfft(a, 2 * count)))[:SEARCH]
    delay = int(np.argmax(cross))
    first, second = _bands(a[: count - delay], rate_hz), _bands(b[delay:], rate_hz)
    snr = np.clip(10 * np.log10(first**2 / ((first - second) ** 2 + 1e-9) + 1e-9), -10, 35)
    weight = first**0.2
    heard = first.sum(axis=1) > 0.01 * first.sum(axis=1).max()
    return float(((snr * weight).sum(axis=1)[heard] / weight.sum(axis=1)[heard]).mean())


def _bands(signal: npt.NDArray[np.float64], rate_hz: int) -> npt.NDArray[np.float64]:
    """Magnitude in each critical band, [windows, BANDS]."""
    hz = np.arange(FFT // 2 + 1) * rate_hz / FFT
    bark = 13 * np.arctan(0.00076 * hz) + 3.5 * np.arctan((hz / 7_500) ** 2)
    edges = np.linspace(0, bark[-1], BANDS + 1)
    centres, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
    shape = np.exp(-0.5 * ((bark[None] - centres[:, None]) / (width / 2)) ** 2)
    windows = np.lib.stride_tricks.sliding_window_view(signal, WINDOW)[::HOP] * np.hanning(WINDOW)
    magnitudes: npt.NDArray[np.float64] = np.abs(np.fft.rfft(windows, FFT)) @ shape.T
    return magnitudes


def run(*, quick: bool) -> Report:
    """Recorded speech through each setting, with in-band FEC and without."""
    now = MediaSettings()
    present = (now.opus_complexity, now.opus_bitrate)
    pcm = speech(SPEAKING_HZ, 10.0 if quick else 30.0)
    rows: list[tuple[object, ...]] = []
    results: dict[tuple[int, int, bool], tuple[float, float]] = {}
    for complexity, bitrate in (present, *QUICK_SETTINGS, *(() if quick else MORE_SETTINGS)):
        for fec in (False, True):
            us, packets = _encode(pcm, complexity, bitrate, now.expected_loss_pct if fec else 0)
            decoder = Decoder(SPEAKING_HZ)
            db = likeness_db(pcm, np.concatenate([decoder.decode(packet) for packet in packets]), SPEAKING_HZ)
            results[complexity, bitrate, fec] = us, db
            rate = sum(map(len, packets)) * 8 * 50 / len(packets) / 1000
            copies = 100 * sum(map(has_fec, packets)) / len(packets)
            rows.append((complexity, bitrate // 1000, f"{copies:.0f}", f"{rate:.1f}", f"{us:.0f}", f"{db:.2f}"))
    keys: dict[str, float | int | str] = {
        "encode_us": round(results[*present, False][0], 1),
        "encode_fec_us": round(results[*present, True][0], 1),
        "former_encode_us": round(results[*FORMER, True][0], 1),
        "likeness_db": round(results[*present, False][1], 2),
        "likeness_fec_db": round(results[*present, True][1], 2),
        "former_likeness_db": round(results[*FORMER, True][1], 2),
    }
    columns = ("complexity", "kbit/s set", "packets with FEC, %", "kbit/s made", "CPU a frame, us", "likeness, dB")
    return Report("Outgoing Opus: cost and likeness; the first rows are the defaults", columns, rows, keys)


def _encode(pcm: Pcm, complexity: int, bitrate: int, loss_pct: int) -> tuple[float, list[bytes]]:
    """Least CPU a frame of three runs in us, and the packets."""
    frames = [pcm[at : at + FRAME] for at in range(0, len(pcm) - FRAME + 1, FRAME)]
    best, packets = float("inf"), []
    for _ in range(3):
        encoder = Encoder(SPEAKING_HZ, bitrate=bitrate, complexity=complexity, expected_loss_pct=loss_pct)
        began = time.process_time()
        packets = [encoder.encode(frame) for frame in frames]
        best = min(best, (time.process_time() - began) / len(frames) * 1e6)
    return best, packets
