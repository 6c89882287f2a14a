"""Stereo speech as Ogg Opus (RFC 7845), page by page. Pure: samples in, bytes out.

Each side is a mono stream of its own inside the packets (channel mapping family 1, two streams, none coupled): in joint
stereo at these bit rates each side would be heard in the other. A page is whole as soon as it is returned, so a file
that ends after any of them can be played.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from agent.errors import MediaError
from agent.media.frames import HEARING_HZ, HEARING_SAMPLES, Pcm
from agent.media.opus import OPUS_CLOCK_HZ, Encoder

__all__ = ["OggOpus"]

BITRATE = 24_000
"""A side. Speech at 16 kHz gains little above it."""
COMPLEXITY = 1
"""Half the time of 2; above it little is gained at this bit rate."""
RATIO = OPUS_CLOCK_HZ // HEARING_HZ
FRAME_TICKS = HEARING_SAMPLES * RATIO

PAGE = struct.Struct("<4sBBqIIIB")
HEAD = struct.Struct("<8sBBHIhBBBBB")
CRC_AT = 22
MAX_SEGMENTS = 255
BEGIN, END = 0x02, 0x04
REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


class OggOpus:
    """One file.

    Args:
        serial: number of the logical stream; any.
        comments: tags such as `TITLE`.
    """

    def __init__(self, serial: int, comments: dict[str, str]) -> None:
        self._serial = serial & 0xFFFF_FFFF
        self._comments = comments
        # Silence is encoded like the rest: of an empty (DTX) frame in two streams FFmpeg's decoder makes noise.
        self._sides = (_encoder(), _encoder())
        self._skip = self._sides[0].lookahead_samples * RATIO
        self._rest = np.zeros((0, 2), np.int16)
        self._samples = 0
        self._packets = 0
        self._page = 0

    def begin(self) -> bytes:
        """The two header pages."""
        head = HEAD.pack(b"OpusHead", 1, 2, self._skip, HEARING_HZ, 0, 1, 2, 0, 0, 1)
        tags = struct.pack("<8s", b"OpusTags") + _text("rejoinder") + struct.pack("<I", len(self._comments))
        tags += b"".join(_text(f"{name}={value}") for name, value in self._comments.items())
        return self._wrap([head], 0, BEGIN) + self._wrap([tags], 0, 0)

    def push(self, stereo: Pcm) -> bytes:
        """int16 [n, 2] at 16 kHz: pages with all frames that are complete."""
        self._samples += len(stereo)
        return self._pages(self._encode(stereo), end=False)

    def finish(self) -> bytes:
        """The last pages; their granule position cuts the file to the sample."""
        total = self._skip + self._samples * RATIO
        missing = -(-total // FRAME_TICKS) - self._packets
        tail = np.zeros((missing * HEARING_SAMPLES - len(self._rest), 2), np.int16)
        pages = self._pages(self._encode(tail), end=True)
        for side in self._sides:
            side.close()
        return pages

    def _encode(self, stereo: Pcm) -> list[bytes]:
        pcm = np.concatenate((self._rest, stereo))
        whole = len(pcm) // HEARING_SAMPLES * HEARING_SAMPLES
        self._rest = pcm[whole:]
        left, right = self._sides
        return [
            _self_delimited(left.encode(pcm[at : at + HEARING_SAMPLES, 0]))
            + right.encode(pcm[at : at + HEARING_SAMPLES, 1])
            for at in range(0, whole, HEARING_SAMPLES)
        ]

    def _pages(self, packets: list[bytes], *, end: bool) -> bytes:
        out = b""
        group: list[bytes] = []
        segments = 0
        for packet in packets:
            needed = len(packet) // 255 + 1
            if segments + needed > MAX_SEGMENTS:
                out += self._audio(group, end=False)
                group, segments = [], 0
            group.append(packet)
            segments += needed
        if group or end:
            out += self._audio(group, end=end)
        return out

    def _audio(self, packets: list[bytes], *, end: bool) -> bytes:
        self._packets += len(packets)
        position = self._skip + self._samples * RATIO if end else self._packets * FRAME_TICKS
        return self._wrap(packets, position, END if end else 0)

    def _wrap(self, packets: list[bytes], position: int, flags: int) -> bytes:
        """One page (RFC 3533 section 6)."""
        table = b"".join(b"\xff" * (len(packet) // 255) + bytes([len(packet) % 255]) for packet in packets)
        head = PAGE.pack(b"OggS", 0, flags, position, self._serial, self._page, 0, len(table))
        self._page += 1
        page = head + table + b"".join(packets)
        return page[:CRC_AT] + struct.pack("<I", _crc(page)) + page[CRC_AT + 4 :]


def _encoder() -> Encoder:
    return Encoder(HEARING_HZ, bitrate=BITRATE, complexity=COMPLEXITY, expected_loss_pct=0)


def _self_delimited(packet: bytes) -> bytes:
    """A packet that says its length, as all but the last stream's must (RFC 6716 appendix B)."""
    if packet[0] & 0x03:
        raise MediaError("Opus: expected one frame a packet")
    size = len(packet) - 1
    length = bytes([size]) if size < 252 else bytes([252 + (size & 3), (size - 252 - (size & 3)) >> 2])
    return packet[:1] + length + packet[1:]


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def _crc(page: bytes) -> int:
    """CRC of RFC 3533: polynomial 0x04c11db7, most significant bit first, from zero; zlib's is its mirror image."""
    mirrored = zlib.crc32(page.translate(REVERSED), 0xFFFF_FFFF) ^ 0xFFFF_FFFF
    return int(f"{mirrored:032b}"[::-1], 2)
