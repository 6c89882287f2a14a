"""The packet log: all that came into a call and when, enough to run the call again. Pure.

Layout: `RJPACKET`, version (u16), length of the head (u32), the head (a JSON object); then records: kind (u8), time
(f64: seconds of the monotonic clock that the call ran on), length (u32), data. Integers and floats are big-endian.

| kind | data |
|---|---|
| 1 packet | a decrypted RTP packet as received, header and all (RFC 3550), or a PCM message |
| 2 tick | the number of a tick of the pacer (u64) |
| 3 command | what the client asked for, a JSON object with `do` |
| 4 end | the call's end, a JSON object with `reason` |
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from agent.errors import MediaError

__all__ = ["MAGIC", "Kind", "PacketLog", "Record", "head_of", "read_log", "record", "tick_record"]

MAGIC = b"RJPACKET"
VERSION = 1
HEAD = struct.Struct("!HI")
RECORD = struct.Struct("!BdI")
TICK = struct.Struct("!Q")
MAX_HEAD_BYTES = 64 * 1024
MAX_RECORD_BYTES = 64 * 1024
"""A datagram cannot be longer, nor may a PCM message of 200 ms."""


class Kind(IntEnum):
    PACKET = 1
    TICK = 2
    COMMAND = 3
    END = 4


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that happened. `at` is in seconds on the recorded call's monotonic clock."""

    kind: Kind
    at: float
    data: bytes

    @property
    def tick(self) -> int:
        """The number of a tick."""
        return int(TICK.unpack(self.data)[0])

    @property
    def body(self) -> dict[str, Any]:
        """What a command or an end says."""
        return dict(json.loads(self.data))


@dataclass(frozen=True, slots=True)
class PacketLog:
    """A log that was read. `whole` is False when it does not reach the call's end."""

    head: Mapping[str, Any]
    records: tuple[Record, ...]
    whole: bool


def head_of(values: Mapping[str, Any]) -> bytes:
    """The beginning of a log."""
    body = json.dumps(values).encode()
    return MAGIC + HEAD.pack(VERSION, len(body)) + body


def record(kind: Kind, at: float, data: bytes) -> bytes:
    """One record; longer data than 64 KiB is cut."""
    data = data[:MAX_RECORD_BYTES]
    return RECORD.pack(kind, at, len(data)) + data


def tick_record(tick: int, at: float) -> bytes:
    """A tick of the pacer."""
    return RECORD.pack(Kind.TICK, at, TICK.size) + TICK.pack(tick)


def read_log(data: bytes) -> PacketLog:
    """A log, whole or cut off at any byte after its head.

    Raises MediaError on what is no packet log, or a damaged one; says at which byte.
    """
    at = len(MAGIC)
    if not data.startswith(MAGIC) or len(data) < at + HEAD.size:
        raise MediaError("not a packet log of a recorded call")
    version, length = HEAD.unpack_from(data, at)
    if version != VERSION:
        raise MediaError(f"packet log of version {version}, {VERSION} expected")
    at += HEAD.size
    if length > MAX_HEAD_BYTES:
        raise MediaError("packet log: damaged head")
    if at + length > len(data):
        raise MediaError("packet log: cut short in its head")
    head = _object(data[at : at + length], at)
    at += length
    records: list[Record] = []
    while at + RECORD.size <= len(data):
        number, when, length = RECORD.unpack_from(data, at)
        body = data[at + RECORD.size : at + RECORD.size + length]
        _check(number, when, length, at)
        if len(body) < length:
            break
        kind = Kind(number)
        if kind in (Kind.COMMAND, Kind.END):
            _object(body, at)
        if records and when < records[-1].at:
            raise MediaError(f"packet log: damaged at byte {at}: time runs backwards")
        records.append(Record(kind, when, body))
        at += RECORD.size + length
        if kind is Kind.END:
            if at != len(data):
                raise MediaError(f"packet log: something follows its end at byte {at}")
            return PacketLog(head, tuple(records), whole=True)
    return PacketLog(head, tuple(records), whole=False)


def _check(number: int, when: float, length: int, at: int) -> None:
    known = number in Kind._value2member_map_
    if not known or length > MAX_RECORD_BYTES or (number == Kind.TICK and length != TICK.size):
        raise MediaError(f"packet log: damaged at byte {at}")
    if not -1e12 < when < 1e12:
        raise MediaError(f"packet log: damaged at byte {at}: no time")


def _object(data: bytes, at: int) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise MediaError(f"packet log: damaged at byte {at}: expected a JSON object")
    return value
