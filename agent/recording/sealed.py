"""Files encrypted while they are written: AES-256-GCM in chunks, so that one that ends early can be read up to there.

Layout: `RJSEALED`, version (1 byte), salt (16 bytes), then chunks: length (4 bytes, big-endian; the top bit marks the
last chunk), ciphertext of that many bytes, of which the last 16 are the tag.

- Each file has a key of its own, HKDF-SHA256(key, salt, "rejoinder recording"), so counting nonces never repeat.
- The nonce of a chunk is its number (11 bytes, big-endian) and 1 for the last chunk, else 0. So chunks cannot be
  swapped, repeated, left out or taken from another file, and an end that was cut off is noticed (the STREAM
  construction of Hoang, Reyhanitabar, Rogaway and Vizar, 2015). The header is authenticated with every chunk.
"""

from __future__ import annotations

import base64
import binascii
import os
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from agent.errors import ConfigError, MediaError

__all__ = ["MAGIC", "Sealer", "parse_key", "unseal"]

MAGIC = b"RJSEALED"
VERSION = 1
SALT_BYTES = 16
HEADER_BYTES = len(MAGIC) + 1 + SALT_BYTES
TAG_BYTES = 16
KEY_BYTES = 32
MAX_CHUNK = 1 << 20
LAST = 1 << 31
LENGTH = struct.Struct("!I")
INFO = b"rejoinder recording"


def parse_key(text: str) -> bytes:
    """32 bytes from base64. Raises ConfigError."""
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError("recording.key: expected 32 bytes in base64, as `openssl rand -base64 32` prints them")
    return key


class Sealer:
    """Plain bytes to the bytes of a sealed file; nothing is held back.

    Args:
        key: 32 bytes.
        salt: 16 random bytes; for tests, else made here.
    """

    def __init__(self, key: bytes, salt: bytes | None = None) -> None:
        self._header = MAGIC + bytes([VERSION]) + (salt or os.urandom(SALT_BYTES))
        self._cipher = _cipher(key, self._header)
        self._count = 0

    def begin(self) -> bytes:
        """The file's header."""
        return self._header

    def push(self, plain: bytes) -> bytes:
        """Chunks with all of `plain`."""
        step = MAX_CHUNK - TAG_BYTES
        return b"".join(self._chunk(plain[at : at + step], last=False) for at in range(0, len(plain), step))

    def finish(self) -> bytes:
        """The mark that the file is whole."""
        return self._chunk(b"", last=True)

    def _chunk(self, plain: bytes, *, last: bool) -> bytes:
        sealed = self._cipher.encrypt(_nonce(self._count, last=last), plain, self._header)
        self._count += 1
        return LENGTH.pack(len(sealed) | (LAST if last else 0)) + sealed


def unseal(data: bytes, key: bytes) -> tuple[bytes, bool]:
    """What a sealed file holds, and whether it is whole (False: it was cut off, as by a crash).

    Raises MediaError on another key, a changed file, or what is no sealed file.
    """
    if not data.startswith(MAGIC) or len(data) < HEADER_BYTES:
        raise MediaError("not an encrypted recording")
    if data[len(MAGIC)] != VERSION:
        raise MediaError(f"encrypted in version {data[len(MAGIC)]} of the format, {VERSION} expected")
    cipher = _cipher(key, data[:HEADER_BYTES])
    plain: list[bytes] = []
    at = HEADER_BYTES
    while at + LENGTH.size <= len(data):
        (length,) = LENGTH.unpack_from(data, at)
        last, length = bool(length & LAST), length & ~LAST
        start = at + LENGTH.size
        if not TAG_BYTES <= length <= MAX_CHUNK:
            raise MediaError(f"encrypted recording: damaged at byte {at}")
        if start + length > len(data):
            break
        try:
            plain.append(
                cipher.decrypt(_nonce(len(plain), last=last), data[start : start + length], data[:HEADER_BYTES])
            )
        except InvalidTag:
            raise MediaError(
                f"encrypted recording: another key (REJOINDER_RECORDING__KEY), or damaged at byte {at}"
            ) from None
        at = start + length
        if last:
            if at != len(data):
                raise MediaError(f"encrypted recording: something was added at byte {at}")
            return b"".join(plain), True
    return b"".join(plain), False


def _cipher(key: bytes, header: bytes) -> AESGCM:
    return AESGCM(HKDF(SHA256(), KEY_BYTES, header[-SALT_BYTES:], INFO).derive(key))


def _nonce(count: int, *, last: bool) -> bytes:
    return count.to_bytes(11, "big") + bytes([last])
