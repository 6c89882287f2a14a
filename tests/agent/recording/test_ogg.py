from __future__ import annotations

import numpy as np
import pytest

from agent.media.frames import Pcm
from agent.recording.ogg import OggOpus
from tests.agent.recording.studio import ogg_samples


def speech(seconds: float, seed: int = 0) -> Pcm:
    """Noise whose loudness moves as that of speech: int16 [n] at 16 kHz."""
    count = round(seconds * 16_000)
    rng = np.random.default_rng(seed)
    shape = np.maximum(0, np.sin(np.arange(count) / 16_000 * 2 * np.pi * 3))
    return (np.convolve(rng.standard_normal(count), np.ones(6) / 6, "same") * shape * 9_000).astype(np.int16)


def encode(stereo: Pcm, step: int = 8_000) -> list[bytes]:
    ogg = OggOpus(77, {"TITLE": "call_1"})
    return [ogg.begin(), *(ogg.push(stereo[at : at + step]) for at in range(0, len(stereo), step)), ogg.finish()]


@pytest.mark.parametrize("count", [0, 1, 319, 320, 16_000, 48_017])
def test_a_file_is_as_long_as_what_went_in_to_the_sample(count: int) -> None:
    pcm = np.stack([speech(4)[:count], speech(4, 1)[:count]], axis=1)
    data = b"".join(encode(pcm, 777))
    assert len(ogg_samples(data)) == count * 3 if count else data.count(b"OggS") == 3


@pytest.mark.parametrize("speaks", [0, 1])
def test_what_one_side_says_is_not_heard_in_the_other(speaks: int) -> None:
    pcm = np.zeros((16_000 * 8, 2), np.int16)
    pcm[16_000 : 16_000 * 4, speaks] = speech(3)
    pcm[16_000 * 6 : 16_000 * 8, 1 - speaks] = speech(2)
    out = ogg_samples(b"".join(encode(pcm))).astype(np.float64)
    for start, loud in ((1, speaks), (6, 1 - speaks)):
        level = np.sqrt((out[48_000 * start : 48_000 * (start + 2)] ** 2).mean(axis=0))
        assert level[loud] > 1_000
        assert level[1 - loud] < 10


def test_both_sides_sound_as_they_did() -> None:
    pcm = np.stack([speech(3), speech(3, 1)], axis=1)
    out = ogg_samples(b"".join(encode(pcm)))[::3]
    for side in (0, 1):
        assert np.corrcoef(out[:, side], pcm[:, side])[0, 1] > 0.8


def test_a_side_that_falls_silent_and_speaks_again_is_at_its_place() -> None:
    part = speech(0.2)
    side = np.zeros(16_000 * 20, np.int16)
    for second in (1, 3, 12, 19):
        side[second * 16_000 : second * 16_000 + len(part)] = part
    out = ogg_samples(b"".join(encode(np.stack([side, side], axis=1))))[::3, 1].astype(np.float64)
    for second in (1, 3, 12, 19):
        window = out[second * 16_000 - 500 : second * 16_000 + len(part) + 500]
        assert abs(int(np.argmax(np.correlate(window, part.astype(np.float64), "valid"))) - 500) <= 1


def test_a_file_that_ends_after_any_page_can_be_played_up_to_there() -> None:
    pcm = np.stack([speech(4)] * 2, axis=1)
    parts = encode(pcm)
    for count in range(2, len(parts)):
        heard = len(ogg_samples(b"".join(parts[:count])))
        whole = (count - 1) * 8_000 * 3
        assert whole - 960 - 312 <= heard <= whole


def test_pages_count_up_and_their_checksums_are_those_of_rfc_3533() -> None:
    data = b"".join(encode(np.stack([speech(2)] * 2, axis=1)))
    pages = [b"OggS" + page for page in data.split(b"OggS")[1:]]
    assert pages[0][5] == 2
    assert pages[-1][5] == 4
    for number, page in enumerate(pages):
        assert int.from_bytes(page[18:22], "little") == number
        crc = 0
        for byte in page[:22] + bytes(4) + page[26:]:
            crc ^= byte << 24
            for _ in range(8):
                crc = (crc << 1 ^ 0x104C11DB7 if crc & 0x8000_0000 else crc << 1) & 0xFFFF_FFFF
        assert crc == int.from_bytes(page[22:26], "little")
