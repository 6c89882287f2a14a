"""Opus through libopus itself: mono in, mono out, one call a frame (23 us to decode, about 100 us to encode).

PyAV's codec classes work in 48 kHz stereo and in frames of their own; libopus decodes straight to 16 kHz mono, encodes
straight from 24 kHz mono, repairs loss by in-band FEC and conceals it. The library is the one inside the av wheel, so
nothing has to be installed. Both objects belong to one call and one thread.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from agent.errors import EnvironmentFault, MediaError
from agent.media.codec import MAX_PACKET_MS, Contents
from agent.media.frames import HEARING_HZ, Pcm

__all__ = ["OPUS_CLOCK_HZ", "Decoder", "Encoder", "has_fec", "packet_samples"]

OPUS_CLOCK_HZ = 48_000
"""RTP timestamps of Opus always count at this rate (RFC 7587 section 4.1)."""

RATES_HZ = (8_000, 12_000, 16_000, 24_000, 48_000)
MAX_PACKET_BYTES = 1_275 * 6
"""More than any packet a real-time peer sends; an attacker's longer one is refused before libopus sees it."""
OUT_BYTES = 1_275
MAX_DTX_BYTES = 2
"""A packet this short has no audio in it (RFC 7587 section 3.1.3)."""

APPLICATION_VOIP = 2048
SET_BITRATE = 4002
SET_COMPLEXITY = 4010
SET_INBAND_FEC = 4012
SET_PACKET_LOSS_PERC = 4014
SET_DTX = 4016
SET_SIGNAL = 4024
GET_LOOKAHEAD = 4027
RESET_STATE = 4028
SIGNAL_VOICE = 3001

FRAME_SAMPLES_48K = (
    *((480, 960, 1920, 2880) * 3),  # SILK: 10, 20, 40, 60 ms
    *((480, 960) * 2),  # hybrid: 10, 20 ms
    *((120, 240, 480, 960) * 4),  # CELT: 2.5, 5, 10, 20 ms
)
"""Frame length by the five configuration bits of the TOC byte (RFC 6716 table 2)."""


@functools.cache
def _library() -> ctypes.CDLL:
    candidates: list[str] = []
    spec = find_spec("av")
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        folders = (package.parent / "av.libs", package / ".dylibs", package)
        candidates += [str(file) for folder in folders for file in sorted(folder.glob("libopus[-.]*"))]
    found = ctypes.util.find_library("opus")
    if found:
        candidates.append(found)
    for candidate in candidates:
        try:
            return _declare(ctypes.CDLL(candidate))
        except (OSError, AttributeError):
            continue
    raise EnvironmentFault("libopus was not found: install the av package's wheel, or `apt-get install libopus0`")


def _declare(lib: ctypes.CDLL) -> ctypes.CDLL:
    state, error = ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)
    signatures = {
        "opus_decoder_create": (state, [ctypes.c_int32, ctypes.c_int, error]),
        "opus_decoder_destroy": (None, [state]),
        "opus_decode": (
            ctypes.c_int,
            [state, ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int, ctypes.c_int],
        ),
        "opus_encoder_create": (state, [ctypes.c_int32, ctypes.c_int, ctypes.c_int, error]),
        "opus_encoder_destroy": (None, [state]),
        "opus_encode": (ctypes.c_int32, [state, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int32]),
        # Variadic: only the fixed arguments are declared, as ctypes asks for on arm64.
        "opus_encoder_ctl": (ctypes.c_int, [state, ctypes.c_int]),
        "opus_decoder_ctl": (ctypes.c_int, [state, ctypes.c_int]),
        "opus_strerror": (ctypes.c_char_p, [ctypes.c_int]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype = result
        function.argtypes = arguments
    return lib


def _check(result: int, doing: str) -> int:
    if result < 0:
        raise MediaError(f"Opus: {doing}: {_library().opus_strerror(result).decode()}")
    return result


def packet_samples(payload: bytes) -> int:
    """Duration of a packet in 48 kHz samples, from its TOC (RFC 6716 section 3.1); 0 if it is not a valid packet."""
    if not payload:
        return 0
    toc = payload[0]
    code = toc & 0x03
    if code == 0:
        frames = 1
    elif code < 3:
        frames = 2
    elif len(payload) >= 2:
        frames = payload[1] & 0x3F
    else:
        return 0
    samples = frames * FRAME_SAMPLES_48K[toc >> 3]
    return samples if samples <= MAX_PACKET_MS * OPUS_CLOCK_HZ // 1000 else 0


def has_fec(payload: bytes) -> bool:
    """Whether a packet carries a low-bit-rate copy of the one before it (RFC 6716 sections 2.1.7 and 4.2.4).

    Only single-frame packets are looked into; others are rare in calls, and a False only means concealment.
    """
    if len(payload) < 2 or payload[0] & 0x03 or payload[0] >> 3 >= 16:
        return False
    silk_frames = max(1, FRAME_SAMPLES_48K[payload[0] >> 3] // 960)
    # The SILK header begins with one voice-activity bit a frame and then the LBRR flag.
    return bool(payload[1] & 0x80 >> silk_frames)


class Decoder:
    """Opus to mono PCM at one rate. Implements codec.Decoder at 16 kHz.

    Args:
        sample_rate_hz: 8000, 12000, 16000, 24000 or 48000.
    """

    clock_hz = OPUS_CLOCK_HZ

    def __init__(self, sample_rate_hz: int = HEARING_HZ) -> None:
        if sample_rate_hz not in RATES_HZ:
            raise MediaError(f"Opus decodes to {RATES_HZ} Hz, not {sample_rate_hz}")
        self.sample_rate_hz = sample_rate_hz
        self._lib = _library()
        self._pcm = np.zeros(sample_rate_hz * MAX_PACKET_MS // 1000, np.int16)
        self._address = self._pcm.ctypes.data
        error = ctypes.c_int()
        self._state: int | None = self._lib.opus_decoder_create(sample_rate_hz, 1, ctypes.byref(error))
        _check(error.value, "creating a decoder")

    def inspect(self, payload: bytes) -> Contents:
        """Duration, FEC and DTX of a packet, from its first bytes."""
        return Contents(packet_samples(payload), has_fec(payload), len(payload) <= MAX_DTX_BYTES)

    def decode(self, payload: bytes) -> Pcm:
        """One packet to int16 [n], n its duration. Raises MediaError on a corrupted packet."""
        if not 0 < len(payload) <= MAX_PACKET_BYTES:
            raise MediaError(f"Opus: a packet of {len(payload)} bytes")
        return self._run(payload, len(payload), len(self._pcm), 0)

    def decode_fec(self, payload: bytes, samples: int) -> Pcm:
        """The lost packet of `samples` length (at this decoder's rate) before `payload`, from its in-band FEC.

        Where `payload` has none, libopus conceals. Raises MediaError on a corrupted packet.
        """
        if not 0 < len(payload) <= MAX_PACKET_BYTES:
            raise MediaError(f"Opus: a packet of {len(payload)} bytes")
        return self._run(payload, len(payload), samples, 1)

    def conceal(self, samples: int) -> Pcm:
        """`samples` of extrapolation, int16 [samples]; a multiple of 2.5 ms. Fades by itself when repeated."""
        return self._run(None, 0, samples, 0)

    def reset(self) -> None:
        """Forget the past: for a new source."""
        if self._state:
            self._lib.opus_decoder_ctl(self._state, RESET_STATE)

    def close(self) -> None:
        """Free the state. Idempotent; decoding after it raises MediaError."""
        if self._state:
            self._lib.opus_decoder_destroy(self._state)
            self._state = None

    def _run(self, payload: bytes | None, size: int, samples: int, fec: int) -> Pcm:
        if self._state is None:
            raise MediaError("Opus: the decoder is closed")
        if not 0 < samples <= len(self._pcm):
            raise MediaError(f"Opus: {samples} samples asked for, 1 to {len(self._pcm)} expected")
        decoded = self._lib.opus_decode(self._state, payload, size, self._address, samples, fec)
        return self._pcm[: _check(decoded, "decoding")].copy()

    def __del__(self) -> None:
        if getattr(self, "_state", None):
            self.close()


class Encoder:
    """Mono PCM at one rate to Opus: voice, in-band FEC, DTX on request. Implements codec.Encoder.

    Args:
        sample_rate_hz: 8000, 12000, 16000, 24000 or 48000.
        bitrate: bits a second, 6,000 to 128,000.
        complexity: 0 to 10; 5 costs about 100 us a 20 ms frame.
        expected_loss_pct: what in-band FEC prepares for; 0 turns it off.
    """

    clock_hz = OPUS_CLOCK_HZ
    discontinuous = True
    stateful = True

    def __init__(
        self, sample_rate_hz: int, *, bitrate: int = 32_000, complexity: int = 5, expected_loss_pct: int = 5
    ) -> None:
        if sample_rate_hz not in RATES_HZ:
            raise MediaError(f"Opus encodes from {RATES_HZ} Hz, not {sample_rate_hz}")
        self.sample_rate_hz = sample_rate_hz
        # Complexity and FEC are left out: speech encoded beforehand can have more of both than a live call affords.
        self.key = f"opus/{sample_rate_hz}/{bitrate}"
        self._lib = _library()
        self._pcm = np.zeros(sample_rate_hz * MAX_PACKET_MS // 2000, np.int16)
        self._address = self._pcm.ctypes.data
        self._out = ctypes.create_string_buffer(OUT_BYTES)
        self._out_address = ctypes.addressof(self._out)
        error = ctypes.c_int()
        self._state: int | None = self._lib.opus_encoder_create(
            sample_rate_hz, 1, APPLICATION_VOIP, ctypes.byref(error)
        )
        _check(error.value, "creating an encoder")
        self._set(SET_BITRATE, bitrate, "bitrate")
        self._set(SET_COMPLEXITY, complexity, "complexity")
        self._set(SET_SIGNAL, SIGNAL_VOICE, "signal")
        self.expect_loss(expected_loss_pct)

    def expect_loss(self, percent: int) -> None:
        """Prepare for this loss from the next frame on."""
        self._set(SET_INBAND_FEC, int(percent > 0), "in-band FEC")
        self._set(SET_PACKET_LOSS_PERC, percent, "expected loss")

    def allow_dtx(self, allowed: bool) -> None:
        """Let silence become DTX from the next frame on; off at first.

        Only for what is known to be silence: libopus takes steady sounds, soft speech among them, for background noise
        after a second and drops them too.
        """
        self._set(SET_DTX, int(allowed), "DTX")

    @property
    def lookahead_samples(self) -> int:
        """How much later a sound leaves the decoder than it entered here, at this encoder's rate (pre-skip)."""
        value = ctypes.c_int32()
        _check(self._lib.opus_encoder_ctl(self._state, GET_LOOKAHEAD, ctypes.byref(value)), "asking for the lookahead")
        return value.value

    def encode(self, pcm: Pcm) -> bytes:
        """One frame of 2.5, 5, 10, 20, 40 or 60 ms, int16 [n], to one packet.

        A packet of one or two bytes is DTX: nothing need be sent (RFC 7587 section 3.1.3).
        Raises MediaError on another length.
        """
        count = len(pcm)
        if self._state is None:
            raise MediaError("Opus: the encoder is closed")
        if not 0 < count <= len(self._pcm):
            raise MediaError(f"Opus: a frame of {count} samples at {self.sample_rate_hz} Hz")
        self._pcm[:count] = pcm
        size = self._lib.opus_encode(self._state, self._address, count, self._out_address, OUT_BYTES)
        return ctypes.string_at(self._out_address, _check(size, f"encoding {count} samples"))

    def reset(self) -> None:
        """Forget the past: for a new stream of speech."""
        if self._state:
            self._lib.opus_encoder_ctl(self._state, RESET_STATE)

    def close(self) -> None:
        """Free the state. Idempotent; encoding after it raises MediaError."""
        if self._state:
            self._lib.opus_encoder_destroy(self._state)
            self._state = None

    def _set(self, request: int, value: int, what: str) -> None:
        if self._state is None:
            raise MediaError("Opus: the encoder is closed")
        _check(self._lib.opus_encoder_ctl(self._state, request, ctypes.c_int32(value)), f"setting {what} to {value}")

    def __del__(self) -> None:
        if getattr(self, "_state", None):
            self.close()
