"""Reading a browser's SDP offer and writing the answer (RFC 8866, RFC 9429, RFC 9143 for BUNDLE). Pure.

We take one audio section (Opus, G.722 or G.711: the first that the caller lists, RFC 3264 section 6.1) and one data
channel section on its transport, and refuse everything else with port 0, so a caller may offer video without harm.
Whatever is wrong with an offer is a NegotiationError that names the part.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.errors import NegotiationError
from agent.media.codec import CODECS, OPUS, Codec, codec_named

__all__ = ["Candidate", "Local", "Offer", "build_answer", "parse_candidate", "parse_offer"]

MAX_SDP_BYTES = 64 * 1024
"""A browser's offer is about 6 KB, with video 10."""
MAX_SECTIONS = 32
MAX_LINE_CHARS = 4096
MAX_CANDIDATES = 32
"""Each makes us send checks to an address of the caller's choice."""
OPUS_FMTP = "minptime=10;useinbandfec=1;stereo=0;sprop-stereo=0;maxplaybackrate=16000;maxaveragebitrate=32000"
"""Asks for in-band FEC, and for mono at 16 kHz, which is all we hear: the bits then go into SILK and its FEC copies,
which fullband Opus at the same rate has no room for (RFC 7587 section 6.1)."""
DTLS_ROLES = {"active": "passive", "passive": "active", "actpass": "active"}
"""The offer's a=setup to ours; active is preferred, it saves half a round trip (RFC 8842 section 5.3)."""
DIRECTIONS = {"sendrecv": "sendrecv", "sendonly": "recvonly", "recvonly": "sendonly", "inactive": "inactive"}
FINGERPRINT = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){31,63}")
FINGERPRINT_BYTES = {"sha-256": 32, "sha-384": 48, "sha-512": 64}
ICE_CHARS = re.compile(r"[A-Za-z0-9+/]+")
TOKEN = re.compile(r"[!#-'*+\-.0-9A-Z^-~]{1,64}")
SCTP_PORT = 5000
MAX_MESSAGE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Candidate:
    """One remote ICE candidate that we can use: UDP, an IP address (RFC 8839 section 5.1)."""

    foundation: str
    component: int
    priority: int
    address: str
    port: int
    kind: str


@dataclass(frozen=True, slots=True)
class Section:
    kind: str
    port: int
    profile: str
    formats: tuple[str, ...]
    attributes: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str | None:
        return next((value for key, value in self.attributes if key == name), None)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.attributes if key == name]


@dataclass(frozen=True, slots=True)
class Offer:
    """What we use of an offer."""

    sections: tuple[Section, ...]
    audio: int
    """Index of the audio section we answer."""
    data: int | None
    """Index of the data channel section, if there is one on the same transport."""
    mids: tuple[str, ...]
    codec: Codec
    """The encoding for both ways."""
    payload_type: int
    """Its number."""
    events: Mapping[int, int]
    """Payload type to clock rate of telephone-event; the one that fits the codec's clock is first."""
    direction: str
    """Ours."""
    setup: str
    """Ours: active (DTLS client) or passive."""
    ufrag: str
    password: str
    lite: bool
    fingerprints: tuple[tuple[str, str], ...]
    sctp_port: int
    max_message_bytes: int
    candidates: tuple[Candidate, ...]
    bundled: bool


@dataclass(frozen=True, slots=True)
class Local:
    """Our side of the transport."""

    ufrag: str
    password: str
    fingerprints: Sequence[tuple[str, str]]
    candidates: Sequence[str]
    """`candidate:` values."""
    ssrc: int
    cname: str
    session_id: int = field(default=1)


def parse_candidate(value: str) -> Candidate | None:
    """A candidate line, with or without `candidate:` or `a=` before it.

    None for one that is of no use to us: TCP, RTCP's component, or an mDNS name (`.local`), which only its own link
    can resolve; such a peer is met by its own checks. Raises NegotiationError on a malformed one.
    """
    text = value.removeprefix("a=").removeprefix("candidate:").strip()
    parts = text.split()
    if len(text) > MAX_LINE_CHARS or len(parts) < 8 or parts[6] != "typ":
        raise NegotiationError("candidate: expected `foundation component transport priority address port typ type`")
    foundation, component, transport, priority, address, port = parts[:6]
    if not (component.isascii() and component.isdigit() and 1 <= int(component[:6]) <= 256):
        raise NegotiationError("candidate: component must be 1 to 256")
    if not (priority.isascii() and priority.isdigit() and len(priority) <= 10 and int(priority) < 1 << 32):
        raise NegotiationError("candidate: priority must be a 32-bit number")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise NegotiationError("candidate: port must be 0 to 65535")
    if parts[7] not in ("host", "srflx", "prflx", "relay"):
        raise NegotiationError("candidate: type must be host, srflx, prflx or relay")
    if transport.lower() != "udp" or int(component) != 1 or address.lower().endswith(".local") or int(port) == 0:
        return None
    try:
        ip = ipaddress.ip_address(address)
    except ValueError as exc:
        raise NegotiationError("candidate: address must be an IP address or an mDNS name") from exc
    if ip.is_multicast or ip.is_unspecified:
        raise NegotiationError("candidate: address must be a unicast one")
    return Candidate(foundation[:32], 1, int(priority), str(ip), int(port), parts[7])


def parse_offer(sdp: str) -> Offer:
    """Read an offer. Raises NegotiationError naming the part that is missing, malformed or not supported."""
    session, sections, version = _split(sdp)
    if not version:
        raise NegotiationError("malformed SDP: it must begin with `v=0`")
    if not sections:
        raise NegotiationError("no m= section: an audio section is required")
    audio = next((index for index, s in enumerate(sections) if s.kind == "audio" and s.port != 0), None)
    if audio is None:
        raise NegotiationError("no audio m-line: one with Opus, G722, PCMU or PCMA is required")
    section = sections[audio]
    if "SAVPF" not in section.profile and "SAVP" not in section.profile:
        raise NegotiationError(f"audio m-line: profile {section.profile[:40]} is not encrypted (UDP/TLS/RTP/SAVPF)")
    codec, payload_type, events = _codecs(section)
    if section.get("rtcp-mux") is None:
        raise NegotiationError("audio m-line: a=rtcp-mux is required")

    def either(name: str) -> str | None:
        own = section.get(name)
        return own if own is not None else session.get(name)

    mids = tuple(_mid(s, index) for index, s in enumerate(sections))
    if len(set(mids)) != len(mids):
        raise NegotiationError("a=mid: the same value is used twice")
    bundle: tuple[str, ...] = ()
    for group in session.all("group"):
        words = group.split()
        if words[:1] == ["BUNDLE"] and mids[audio] in words[1:]:
            bundle = tuple(words[1:])
    data = next((i for i, s in enumerate(sections) if _is_data(s) and mids[i] in bundle), None)
    ufrag, password = either("ice-ufrag"), either("ice-pwd")
    if not ufrag or not 4 <= len(ufrag) <= 256 or not ICE_CHARS.fullmatch(ufrag):
        raise NegotiationError("a=ice-ufrag: 4 to 256 ICE characters are required")
    if not password or not 22 <= len(password) <= 256 or not ICE_CHARS.fullmatch(password):
        raise NegotiationError("a=ice-pwd: 22 to 256 ICE characters are required")
    setup = either("setup")
    if setup not in DTLS_ROLES:
        raise NegotiationError("a=setup: actpass, active or passive is required")
    direction = next((name for name, _ in section.attributes if name in DIRECTIONS), None) or next(
        (name for name, _ in session.attributes if name in DIRECTIONS), "sendrecv"
    )
    sctp_port, max_message = _sctp(sections[data]) if data is not None else (SCTP_PORT, MAX_MESSAGE_BYTES)
    return Offer(
        sections=sections,
        audio=audio,
        data=data,
        mids=mids,
        codec=codec,
        payload_type=payload_type,
        events=events,
        direction=DIRECTIONS[direction],
        setup=DTLS_ROLES[setup],
        ufrag=ufrag,
        password=password,
        lite=session.get("ice-lite") is not None,
        fingerprints=_fingerprints(section.all("fingerprint") or session.all("fingerprint")),
        sctp_port=sctp_port,
        max_message_bytes=max_message,
        candidates=_candidates(section.all("candidate")),
        bundled=bool(bundle),
    )


def build_answer(offer: Offer, local: Local) -> str:
    """The answer: audio and data accepted, all else refused (port 0, RFC 3264 section 6)."""
    accepted = {offer.audio} | ({offer.data} if offer.data is not None else set())
    lines = ["v=0", f"o=- {local.session_id} 2 IN IP4 127.0.0.1", "s=-", "t=0 0"]
    if offer.bundled:
        lines.append("a=group:BUNDLE " + " ".join(offer.mids[index] for index in sorted(accepted)))
    lines += ["a=extmap-allow-mixed", "a=msid-semantic: WMS *"]
    for index, section in enumerate(offer.sections):
        mid = [f"a=mid:{offer.mids[index]}"] if section.get("mid") is not None else []
        if index == offer.audio:
            payload_types = [offer.payload_type, *offer.events]
            lines += [f"m=audio 9 {section.profile} {' '.join(map(str, payload_types))}", "c=IN IP4 0.0.0.0"]
            lines += ["a=rtcp:9 IN IP4 0.0.0.0", *_transport(offer, local), *mid, f"a={offer.direction}"]
            lines += ["a=msid:rejoinder agent", "a=rtcp-mux"]
            lines.append(f"a=rtpmap:{offer.payload_type} {offer.codec.encoding}")
            if offer.codec == OPUS:
                lines.append(f"a=fmtp:{offer.payload_type} {OPUS_FMTP}")
            for payload_type, clock in offer.events.items():
                lines += [f"a=rtpmap:{payload_type} telephone-event/{clock}", f"a=fmtp:{payload_type} 0-15"]
            lines += ["a=ptime:20", "a=maxptime:60", f"a=ssrc:{local.ssrc} cname:{local.cname}"]
        elif index == offer.data:
            lines += [f"m=application 9 {section.profile} webrtc-datachannel", "c=IN IP4 0.0.0.0"]
            lines += [*_transport(offer, local), *mid]
            lines += [f"a=sctp-port:{SCTP_PORT}", f"a=max-message-size:{MAX_MESSAGE_BYTES}"]
        else:
            lines.append(f"m={section.kind} 0 {section.profile} {' '.join(section.formats[:1])}")
            lines += ["c=IN IP4 0.0.0.0", "a=inactive", *mid]
    return "\r\n".join(lines) + "\r\n"


def _transport(offer: Offer, local: Local) -> list[str]:
    lines = [f"a=ice-ufrag:{local.ufrag}", f"a=ice-pwd:{local.password}", "a=ice-options:trickle"]
    lines += [f"a=fingerprint:{algorithm} {value}" for algorithm, value in local.fingerprints]
    lines += [f"a=setup:{offer.setup}"]
    lines += [f"a=candidate:{candidate}" for candidate in local.candidates]
    return [*lines, "a=end-of-candidates"]


def _split(sdp: str) -> tuple[Section, tuple[Section, ...], bool]:
    if not isinstance(sdp, str):
        raise NegotiationError(f"sdp: a string is required, got {type(sdp).__name__}")
    if len(sdp) > MAX_SDP_BYTES or len(sdp.encode("utf-8", "replace")) > MAX_SDP_BYTES:
        raise NegotiationError(f"sdp: over {MAX_SDP_BYTES} bytes")
    heads: list[tuple[str, int, str, tuple[str, ...]]] = [("session", 0, "", ())]
    attributes: list[list[tuple[str, str]]] = [[]]
    version = False
    for number, line in enumerate(re.split(r"\r\n|\n|\r", sdp)):
        if not line.strip():
            continue
        if len(line) < 2 or line[1] != "=" or not line[0].isalpha() or len(line) > MAX_LINE_CHARS:
            raise NegotiationError(f"malformed SDP: line {number + 1} is not `type=value`")
        kind, value = line[0], line[2:].strip()
        if kind == "v":
            version = version or (number == 0 and value == "0")
        elif kind == "m":
            if len(heads) > MAX_SECTIONS:
                raise NegotiationError(f"malformed SDP: over {MAX_SECTIONS} m= sections")
            heads.append(_media_line(value))
            attributes.append([])
        elif kind == "a":
            name, _, argument = value.partition(":")
            attributes[-1].append((name, argument.strip()))
    parts = [Section(*head, tuple(found)) for head, found in zip(heads, attributes, strict=True)]
    return parts[0], tuple(parts[1:]), version


def _media_line(value: str) -> tuple[str, int, str, tuple[str, ...]]:
    words = value.split()
    port = words[1].partition("/")[0] if len(words) > 1 else ""
    good = len(words) >= 4 and all(TOKEN.fullmatch(word.replace("/", "-")) for word in words)
    if not good or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise NegotiationError("malformed SDP: an m= line must be `media port profile formats`")
    return words[0], int(port), words[2], tuple(words[3:])


def _mid(section: Section, index: int) -> str:
    mid = section.get("mid")
    if mid is None:
        return f" {index}"
    if not TOKEN.fullmatch(mid):
        raise NegotiationError("a=mid: a token is required")
    return mid


def _codecs(section: Section) -> tuple[Codec, int, dict[int, int]]:
    known: dict[str, Codec] = {str(codec.payload_type): codec for codec in CODECS if codec.payload_type is not None}
    events: dict[int, int] = {}
    for rtpmap in section.all("rtpmap"):
        number, _, encoding = rtpmap.partition(" ")
        if number not in section.formats or not (number.isascii() and number.isdigit() and 0 <= int(number[:4]) < 128):
            continue
        name, _, rest = encoding.strip().lower().partition("/")
        if name == "telephone-event" and rest.partition("/")[0] in ("8000", "48000") and len(events) < 2:
            events[int(number)] = int(rest.partition("/")[0])
        # What a=rtpmap says holds, also against a static number.
        found = codec_named(encoding)
        if found is not None:
            known[number] = found
        else:
            known.pop(number, None)
    chosen = next((number for number in section.formats if number in known), None)
    if chosen is None:
        names = ", ".join(codec.encoding for codec in CODECS)
        raise NegotiationError(f"audio m-line: one of {names} is required")
    codec = known[chosen]
    # RFC 4733 section 2.1: events share the stream's timestamps, so its clock suits them best.
    order = sorted(events.items(), key=lambda item: (item[1] != codec.clock_hz, -item[1]))
    return codec, int(chosen), dict(order)


def _is_data(section: Section) -> bool:
    return (
        section.kind == "application"
        and section.port != 0
        and "webrtc-datachannel" in section.formats
        and "DTLS/SCTP" in section.profile
    )


def _sctp(section: Section) -> tuple[int, int]:
    port = section.get("sctp-port") or str(SCTP_PORT)
    size = section.get("max-message-size") or str(MAX_MESSAGE_BYTES)
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= 65535):
        raise NegotiationError("a=sctp-port: 1 to 65535 is required")
    if not (size.isascii() and size.isdigit() and len(size) <= 19):
        raise NegotiationError("a=max-message-size: a number is required")
    return int(port), int(size)


def _fingerprints(values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    found = []
    for value in values[:8]:
        algorithm, _, digest = value.partition(" ")
        size = FINGERPRINT_BYTES.get(algorithm.lower())
        if size is None:
            continue
        digest = digest.strip()
        if not FINGERPRINT.fullmatch(digest) or len(digest) != size * 3 - 1:
            raise NegotiationError(f"a=fingerprint: {algorithm.lower()} needs {size} bytes in hexadecimal")
        found.append((algorithm.lower(), digest.upper()))
    if not found:
        raise NegotiationError("a=fingerprint: one with sha-256, sha-384 or sha-512 is required")
    return tuple(found)


def _candidates(values: Sequence[str]) -> tuple[Candidate, ...]:
    found = [parse_candidate(value) for value in values[:MAX_CANDIDATES]]
    return tuple(candidate for candidate in found if candidate is not None)
