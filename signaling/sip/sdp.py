"""Session descriptions of a telephone call: one audio stream over plain RTP or SDES-SRTP (RFC 8866, RFC 4568). Pure.

Reading is generous to what telephones write, and bounded; a body that cannot be used is a SipError 488. Other streams
are kept only so that an answer can refuse each in its place (RFC 3264 section 6).
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from dataclasses import dataclass, field
from typing import Literal

from agent.media.codec import CODECS, Codec, codec_named
from signaling.sip.errors import SipError

__all__ = ["Audio", "Crypto", "Direction", "Format", "OtherMedia", "Session", "parse_sdp", "reverse", "write_sdp"]

Direction = Literal["sendrecv", "sendonly", "recvonly", "inactive"]
DIRECTIONS: dict[str, Direction] = {
    "sendrecv": "sendrecv",
    "sendonly": "sendonly",
    "recvonly": "recvonly",
    "inactive": "inactive",
}
REVERSED: dict[Direction, Direction] = {
    "sendrecv": "sendrecv",
    "sendonly": "recvonly",
    "recvonly": "sendonly",
    "inactive": "inactive",
}
PROFILES = ("RTP/AVP", "RTP/SAVP", "RTP/AVPF", "RTP/SAVPF")
SUITES = {"AES_CM_128_HMAC_SHA1_80": 30, "AES_CM_128_HMAC_SHA1_32": 30}
"""Crypto suites of RFC 4568 that libsrtp has, and the bytes of key and salt of each."""
MAX_SDP_BYTES = 32 * 1024
MAX_LINES = 1000
MAX_MEDIA = 16
MAX_FORMATS = 64
MAX_CRYPTO = 8
EVENT_CLOCKS = (8000, 16000, 48000)
PORT = re.compile(r"([0-9]{1,5})(?:/[0-9]{1,3})?")
WORD = re.compile(r"[!-~]{1,128}")
MIN_PTIME_MS, MAX_PTIME_MS = 10, 200


@dataclass(frozen=True, slots=True)
class Crypto:
    """One a=crypto line: an SDES key, inline (RFC 4568 section 9.1)."""

    tag: int
    suite: str
    key: bytes = field(repr=False)
    """Master key and salt."""

    def __str__(self) -> str:
        return f"{self.tag} {self.suite} inline:{base64.b64encode(self.key).decode()}"


@dataclass(frozen=True, slots=True)
class Format:
    """One payload type that we can decode."""

    payload_type: int
    codec: Codec
    fmtp: str = ""


@dataclass(frozen=True, slots=True)
class OtherMedia:
    """A stream we do not take: video, fax, a second audio stream."""

    kind: str
    profile: str
    format: str


@dataclass(frozen=True, slots=True)
class Audio:
    """The audio stream of a description, from its writer's view."""

    address: str
    """An IP address, or a name; never unspecified: that is a hold, see `direction`."""
    port: int
    """0: refused, or disabled."""
    formats: tuple[Format, ...] = ()
    events: tuple[tuple[int, int], ...] = ()
    """telephone-event: payload type and clock rate (RFC 4733)."""
    direction: Direction = "sendrecv"
    crypto: tuple[Crypto, ...] = ()
    secure: bool = False
    """RTP/SAVP."""
    feedback: bool = False
    """The profile ends in F (RFC 4585)."""
    ptime_ms: int | None = None
    rtcp_mux: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """A description: its origin line, the audio stream, and the others in their places."""

    session_id: int
    version: int
    audio: Audio
    before: tuple[OtherMedia, ...] = ()
    """Streams listed before the audio."""
    after: tuple[OtherMedia, ...] = ()
    origin_address: str = "0.0.0.0"


def reverse(direction: Direction) -> Direction:
    """The same direction from the other side (RFC 3264 section 6.1)."""
    return REVERSED[direction]


def parse_sdp(body: bytes) -> Session:
    """Read a description. Raises SipError 400 on malformed text, 488 when no audio stream can be used."""
    if len(body) > MAX_SDP_BYTES:
        raise SipError(f"SDP: over {MAX_SDP_BYTES} bytes", status=413, field="SDP")
    lines = [line for line in re.split(r"\r\n|\n|\r", body.decode("utf-8", "replace")) if line]
    if not lines or lines[0].strip() != "v=0" or len(lines) > MAX_LINES:
        raise SipError("SDP: must begin with `v=0`", field="SDP")
    common: list[str] = []
    streams: list[list[str]] = []
    for line in lines[1:]:
        if len(line) < 2 or line[1] != "=" or not line[0].isalpha():
            raise SipError("SDP: a line is not `type=value`", field="SDP")
        if line.startswith("m="):
            streams.append([])
        (streams[-1] if streams else common).append(line)
    if not streams:
        raise SipError("SDP: an audio stream is required", status=488, field="SDP")
    if len(streams) > MAX_MEDIA:
        raise SipError(f"SDP: over {MAX_MEDIA} streams", status=488, field="SDP")
    heads = [_media_line(stream[0]) for stream in streams]
    usable = [i for i, (kind, port, profile, _) in enumerate(heads) if kind == "audio" and profile in PROFILES and port]
    listed = [i for i, (kind, _, profile, _) in enumerate(heads) if kind == "audio" and profile in PROFILES]
    if not listed:
        raise SipError("SDP: an audio stream over RTP/AVP or RTP/SAVP is required", status=488, field="SDP")
    chosen = usable[0] if usable else listed[0]
    others = [OtherMedia(kind, profile, formats[0]) for kind, _, profile, formats in heads]
    session_id, version, origin = _origin(common)
    audio = _audio(heads[chosen], streams[chosen][1:], common)
    return Session(session_id, version, audio, tuple(others[:chosen]), tuple(others[chosen + 1 :]), origin)


def _media_line(line: str) -> tuple[str, int, str, list[str]]:
    words = line[2:].split()
    found = PORT.fullmatch(words[1]) if len(words) >= 4 else None
    if found is None or int(found.group(1)) > 65535 or not all(WORD.fullmatch(word) for word in words):
        raise SipError("SDP: m= must be `media port profile formats`", field="SDP")
    if len(words) > MAX_FORMATS + 3:
        raise SipError(f"SDP: over {MAX_FORMATS} formats", status=488, field="SDP")
    return words[0].lower(), int(found.group(1)), words[2].upper(), words[3:]


def _origin(lines: list[str]) -> tuple[int, int, str]:
    words = next((line[2:].split() for line in lines if line.startswith("o=")), [])
    numbers = [word for word in words[1:3] if word.isascii() and word.isdigit() and len(word) <= 20]
    if len(words) != 6 or len(numbers) != 2:
        raise SipError("SDP: o= must be `user id version IN IP4 address`", field="SDP")
    return int(numbers[0]), int(numbers[1]), words[5]


def _connection(lines: list[str]) -> str | None:
    words = next((line[2:].split() for line in lines if line.startswith("c=")), None)
    if words is None:
        return None
    address = words[2].partition("/")[0] if len(words) == 3 and words[0].upper() == "IN" else ""
    if not WORD.fullmatch(address):
        raise SipError("SDP: c= must be `IN IP4 address`", field="SDP")
    return address


def _attributes(lines: list[str]) -> list[tuple[str, str]]:
    return [(name.lower(), value.strip()) for name, _, value in (x[2:].partition(":") for x in lines if x[:2] == "a=")]


def _audio(head: tuple[str, int, str, list[str]], lines: list[str], common: list[str]) -> Audio:
    _, port, profile, numbers = head
    own, shared = _attributes(lines), _attributes(common)
    address = _connection(lines) or _connection(common)
    if address is None:
        if port:
            raise SipError("SDP: c= is missing", field="SDP")
        address = "0.0.0.0"
    said: list[Direction] = [DIRECTIONS[name] for name, _ in [*own, *shared] if name in DIRECTIONS]
    direction: Direction = said[0] if said else "sendrecv"
    if _unspecified(address):
        # The hold of RFC 2543: nothing may be sent there, whatever the direction says (RFC 3264 section 8.4).
        direction = "inactive" if direction in ("recvonly", "inactive") else "sendonly"
    formats, events = _formats(numbers, own)
    secure = "SAVP" in profile
    crypto = tuple(filter(None, (_crypto(value) for name, value in own if name == "crypto")))[:MAX_CRYPTO]
    return Audio(
        address=address,
        port=port,
        formats=formats,
        events=events,
        direction=direction,
        crypto=crypto,
        secure=secure,
        feedback=profile.endswith("F"),
        ptime_ms=_ptime([*own, *shared]),
        rtcp_mux=any(name == "rtcp-mux" for name, _ in own),
    )


def _unspecified(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return False


def _ptime(attributes: list[tuple[str, str]]) -> int | None:
    for name, value in attributes:
        if name == "ptime":
            number = value.partition(".")[0]
            if number.isascii() and number.isdigit() and len(number) <= 4:
                return min(max(int(number), MIN_PTIME_MS), MAX_PTIME_MS)
    return None


def _formats(
    numbers: list[str], attributes: list[tuple[str, str]]
) -> tuple[tuple[Format, ...], tuple[tuple[int, int], ...]]:
    mapped: dict[str, str] = {}
    fmtp: dict[str, str] = {}
    for name, value in attributes:
        number, _, rest = value.partition(" ")
        if name == "rtpmap":
            mapped.setdefault(number, rest.strip())
        elif name == "fmtp":
            fmtp.setdefault(number, rest.strip())
    static = {str(codec.payload_type): codec for codec in CODECS if codec.payload_type is not None}
    formats: list[Format] = []
    events: list[tuple[int, int]] = []
    for number in dict.fromkeys(numbers):
        if not (number.isascii() and number.isdigit() and len(number) <= 3 and int(number) < 128):
            continue
        encoding = mapped.get(number)
        if encoding is None:
            codec = static.get(number)
        else:
            # What a=rtpmap says holds, also against a static number.
            codec = codec_named(encoding)
            kind, _, clock = encoding.lower().partition("/")
            if kind == "telephone-event" and clock in map(str, EVENT_CLOCKS):
                events.append((int(number), int(clock)))
        if codec is not None:
            formats.append(Format(int(number), codec, fmtp.get(number, "")))
    return tuple(formats), tuple(events)


def _crypto(value: str) -> Crypto | None:
    """None for a line we cannot use: another suite, session parameters, an MKI, a broken key."""
    words = value.split()
    if len(words) != 3 or not (words[0].isascii() and words[0].isdigit() and len(words[0]) <= 9):
        return None
    suite = words[1].upper()
    method, _, rest = words[2].partition(":")
    key, _, extra = rest.partition("|")
    if suite not in SUITES or method.lower() != "inline" or ":" in extra:
        return None
    try:
        secret = base64.b64decode(key + "=" * (-len(key) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    return Crypto(int(words[0]), suite, secret) if len(secret) == SUITES[suite] else None


def write_sdp(session: Session) -> bytes:
    """Write a description, every other stream refused in its place."""
    audio = session.audio
    family = _family(audio.address)
    lines = [
        "v=0",
        f"o=- {session.session_id} {session.version} IN {_family(session.origin_address)} {session.origin_address}",
        "s=-",
        f"c=IN {family} {audio.address}",
        "t=0 0",
        *(f"m={other.kind} 0 {other.profile} {other.format}" for other in session.before),
    ]
    profile = f"RTP/{'S' if audio.secure else ''}AVP{'F' if audio.feedback else ''}"
    numbers = [str(item.payload_type) for item in audio.formats] + [str(number) for number, _ in audio.events]
    lines.append(f"m=audio {audio.port} {profile} {' '.join(numbers or ['0'])}")
    if audio.port:
        for item in audio.formats:
            lines.append(f"a=rtpmap:{item.payload_type} {item.codec.encoding}")
            if item.fmtp:
                lines.append(f"a=fmtp:{item.payload_type} {item.fmtp}")
        for number, clock in audio.events:
            lines += [f"a=rtpmap:{number} telephone-event/{clock}", f"a=fmtp:{number} 0-15"]
        lines += [f"a=crypto:{crypto}" for crypto in audio.crypto]
        if audio.ptime_ms is not None:
            lines.append(f"a=ptime:{audio.ptime_ms}")
        if audio.rtcp_mux:
            lines.append("a=rtcp-mux")
        lines.append(f"a={audio.direction}")
    lines += [f"m={other.kind} 0 {other.profile} {other.format}" for other in session.after]
    return ("\r\n".join(lines) + "\r\n").encode()


def _family(address: str) -> str:
    return "IP6" if ":" in address else "IP4"
