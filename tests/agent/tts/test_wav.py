"""WAV files as speech programs really write them."""

from __future__ import annotations

import io
import struct
import wave

import numpy as np
import pytest

from agent.errors import EngineError
from agent.tts.wav import read_wav


def wav(samples: list[int], rate: int = 22_050, channels: int = 1, width: int = 2) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as w:
        w.setnchannels(channels)
        w.setsampwidth(width)
        w.setframerate(rate)
        w.writeframes(np.asarray(samples, "<i2").tobytes())
    return out.getvalue()


@pytest.mark.parametrize("length", [4, 0, 0x7FFFF000])
def test_a_wrong_data_length_is_mended(length: int) -> None:
    data = bytearray(wav([16384, -16384]))
    data[40:44] = struct.pack("<I", length)
    samples, rate = read_wav(bytes(data))
    assert rate == 22_050
    assert samples.tolist() == [0.5, -0.5]


@pytest.mark.parametrize(
    "data", [b"", b"RIFF", b"x" * 60, wav([1, 2], channels=2), wav([1, 2], width=1), wav([1], rate=1), wav([1])[:30]]
)
def test_anything_else_is_an_engine_error(data: bytes) -> None:
    with pytest.raises(EngineError):
        read_wav(data)
