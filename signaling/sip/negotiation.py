"""Offer and answer (RFC 3264): what both sides agreed on, and whose turn it is to describe. Pure."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

from agent.media.codec import G722, OPUS, PCMA, PCMU, Codec
from signaling.sip.errors import SipError, WrongState
from signaling.sip.sdp import (
    SUITES,
    Audio,
    Crypto,
    Direction,
    Format,
    OtherMedia,
    Session,
    parse_sdp,
    reverse,
    write_sdp,
)

__all__ = ["Agreement", "LocalMedia", "Negotiation", "OfferState"]

DYNAMIC = {"opus": 96}
EVENT_TYPE = 101
"""What nearly every telephone uses for telephone-event at 8 kHz."""
WIDE_EVENT_TYPE = 102
PTIME_MS = 20
OPUS_FMTP = "minptime=10;useinbandfec=1;stereo=0;sprop-stereo=0;maxplaybackrate=16000"
TELEPHONE_CODECS = (PCMU, PCMA, G722, OPUS)
"""Trunks carry the first two; wideband where the peer has it is a matter of configuration."""


def make_key(suite: str) -> bytes:
    """A fresh SRTP master key and salt."""
    return secrets.token_bytes(SUITES[suite])


@dataclass(frozen=True, slots=True)
class LocalMedia:
    """What our side can do."""

    address: str
    """As the peer must see it."""
    port: int
    codecs: tuple[Codec, ...] = TELEPHONE_CODECS
    """Preferred first, in offers; in answers the peer's order counts (RFC 3264 section 6.1)."""
    offer_secure: bool = False
    """Offer RTP/SAVP with SDES."""
    take_secure: bool = True
    """Take SDES when it is offered. Over UDP signalling its key is readable on the way."""
    need_secure: bool = False
    """Refuse plain RTP."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The media session as both sides see it now."""

    remote_address: str
    remote_port: int
    codec: Codec
    payload_type: int
    """To send; the same is expected to come."""
    receive: tuple[tuple[int, Codec], ...]
    """Every payload type that may come."""
    event_type: int | None
    """Payload type of telephone-event at the codec's clock, or at another when there is no such."""
    event_clock_hz: int
    direction: Direction
    """Ours."""
    ptime_ms: int
    """What the peer asks for; 20 when it does not say."""
    local_crypto: Crypto | None
    """With which we encrypt; None: plain RTP."""
    remote_crypto: Crypto | None
    rtcp_mux: bool

    @property
    def on_hold(self) -> bool:
        """The peer does not want to hear us."""
        return self.direction in ("recvonly", "inactive")


class OfferState(Enum):
    """Who has described last."""

    STABLE = auto()
    OFFERED = auto()
    """We offered and wait."""
    RECEIVED = auto()
    """The peer offered and waits."""


class Negotiation:
    """One call's descriptions.

    Args:
        local: our side.
        make_key: SRTP keys, a new one for each suite and session.
    """

    def __init__(self, local: LocalMedia, *, make_key: Callable[[str], bytes] = make_key) -> None:
        self.local = local
        self.state = OfferState.STABLE
        self.agreement: Agreement | None = None
        self._make_key = make_key
        self._session_id = secrets.randbits(31) | 1
        self._version = 0
        self._last_written: bytes | None = None
        self._want: Direction = "sendrecv"
        self._offered: Audio | None = None
        self._remote: Session | None = None
        self._keys: tuple[Crypto, ...] = ()
        self._others: tuple[tuple[OtherMedia, ...], tuple[OtherMedia, ...]] = ((), ())
        self._last_audio: Audio | None = None

    def set_direction(self, direction: Direction) -> None:
        """What we want from now on: the next offer or answer says it."""
        self._want = direction

    def offer(self) -> bytes:
        """Describe our side first. Raises WrongState while another offer is open."""
        if self.state is not OfferState.STABLE:
            raise WrongState("offer: another offer is not answered yet")
        audio = self._offer_audio()
        self.state, self._offered = OfferState.OFFERED, audio
        return self._write(audio)

    def answered(self, body: bytes) -> Agreement:
        """Take the answer to our offer. Raises SipError 488 when it does not fit; the offer is then given up."""
        assert self._offered is not None
        offered, self._offered, self.state = self._offered, None, OfferState.STABLE
        remote = parse_sdp(body)
        audio = remote.audio
        if audio.port == 0:
            raise SipError("SDP answer: the audio stream was refused", status=488, field="SDP")
        if audio.secure != offered.secure:
            raise SipError("SDP answer: its profile is not the offered one", status=488, field="SDP")
        mine = {item.payload_type: item.codec for item in offered.formats}
        shared = [item for item in audio.formats if mine.get(item.payload_type) == item.codec]
        # A dynamic number may differ between the two ways (RFC 3264 section 5.1); the encoding counts.
        shared = shared or [item for item in audio.formats if item.codec in mine.values()]
        if not shared:
            raise SipError("SDP answer: none of the offered codecs", status=488, field="SDP")
        remote_crypto = local_crypto = None
        if offered.secure:
            pairs = [(ours, its) for its in audio.crypto for ours in offered.crypto if ours.tag == its.tag]
            if not pairs or pairs[0][0].suite != pairs[0][1].suite:
                raise SipError("SDP answer: a=crypto with an offered tag is required", status=488, field="SDP")
            local_crypto, remote_crypto = pairs[0]
        self._last_audio = offered
        self._remote = remote
        agreement = self._agree(audio, shared[0], offered.formats, local_crypto, remote_crypto)
        self.agreement = agreement
        return agreement

    def withdraw(self) -> None:
        """Our offer was refused: what was agreed before stays (RFC 3261 section 14.1)."""
        if self.state is OfferState.OFFERED:
            self.state, self._offered = OfferState.STABLE, None

    def offered(self, body: bytes) -> None:
        """Take the peer's offer, to be answered by `answer`.

        Raises SipError: 488 when we cannot take it, 491 while ours is open, 500 while one of its own is.
        """
        if self.state is OfferState.OFFERED:
            raise SipError("SDP: our own offer is open", status=491)
        if self.state is OfferState.RECEIVED:
            raise SipError("SDP: an earlier offer is not answered", status=500, headers=(("Retry-After", "1"),))
        remote = parse_sdp(body)
        audio = remote.audio
        if audio.port:
            if not self._shared(audio):
                raise SipError("SDP: none of our codecs", status=488, field="SDP")
            if audio.secure and (not self.local.take_secure or not audio.crypto):
                raise SipError("SDP: RTP/SAVP without a usable a=crypto", status=488, field="SDP")
            if not audio.secure and self.local.need_secure:
                raise SipError("SDP: RTP/SAVP is required", status=488, field="SDP")
        self._remote, self.state = remote, OfferState.RECEIVED

    def reject(self) -> None:
        """The peer's offer is refused with its request: what was agreed before stays."""
        if self.state is OfferState.RECEIVED:
            self.state = OfferState.STABLE

    def answer(self) -> bytes:
        """Answer the peer's offer. Raises WrongState when there is none."""
        if self.state is not OfferState.RECEIVED or self._remote is None:
            raise WrongState("answer: there is no open offer")
        remote, self.state = self._remote, OfferState.STABLE
        self._others = (remote.before, remote.after)
        audio = remote.audio
        shared = self._shared(audio)
        if audio.port == 0 or not shared:
            refused = Audio(self.local.address, 0, (), (), "inactive", (), audio.secure, audio.feedback)
            self.agreement = None
            return self._write(refused)
        chosen = shared[0]
        local_crypto = remote_crypto = None
        if audio.secure:
            remote_crypto = audio.crypto[0]
            local_crypto = self._key_for(remote_crypto)
        agreement = self._agree(audio, chosen, (chosen,), local_crypto, remote_crypto)
        events = ((agreement.event_type, agreement.event_clock_hz),) if agreement.event_type is not None else ()
        mine = Audio(
            address=self.local.address,
            port=self.local.port,
            formats=(Format(chosen.payload_type, chosen.codec, OPUS_FMTP if chosen.codec == OPUS else ""),),
            events=events,
            direction=agreement.direction,
            crypto=() if local_crypto is None else (local_crypto,),
            secure=audio.secure,
            feedback=audio.feedback,
            ptime_ms=PTIME_MS,
            rtcp_mux=audio.rtcp_mux,
        )
        self._last_audio = mine
        self.agreement = agreement
        return self._write(mine)

    def _shared(self, audio: Audio) -> list[Format]:
        return [item for item in audio.formats if item.codec in self.local.codecs]

    def _key_for(self, remote: Crypto) -> Crypto:
        # The same key for the same stream, or a re-INVITE would cut the sound.
        kept = next((key for key in self._keys if key.suite == remote.suite), None)
        secret = kept.key if kept is not None else self._make_key(remote.suite)
        crypto = Crypto(remote.tag, remote.suite, secret)
        self._keys = (crypto,)
        return crypto

    def _offer_audio(self) -> Audio:
        last = self._last_audio
        if last is not None and last.port:
            # Once agreed, the numbers and the profile stay (RFC 3264 section 8.3.2).
            return replace(last, address=self.local.address, port=self.local.port, direction=self._want)
        formats = tuple(
            Format(DYNAMIC.get(codec.name, codec.payload_type or 0), codec, OPUS_FMTP if codec == OPUS else "")
            for codec in self.local.codecs
        )
        clocks = {codec.clock_hz for codec in self.local.codecs}
        events = [(EVENT_TYPE, 8000)] if 8000 in clocks else []
        if 48000 in clocks:
            events.append((WIDE_EVENT_TYPE, 48000))
        secure = self.local.offer_secure
        if secure and not self._keys:
            self._keys = tuple(Crypto(at + 1, suite, self._make_key(suite)) for at, suite in enumerate(SUITES))
        return Audio(
            address=self.local.address,
            port=self.local.port,
            formats=formats,
            events=tuple(events),
            direction=self._want,
            crypto=self._keys if secure else (),
            secure=secure,
            ptime_ms=PTIME_MS,
            rtcp_mux=True,
        )

    def _agree(
        self,
        audio: Audio,
        chosen: Format,
        mine: tuple[Format, ...],
        local_crypto: Crypto | None,
        remote_crypto: Crypto | None,
    ) -> Agreement:
        events = sorted(audio.events, key=lambda event: event[1] != chosen.codec.clock_hz)
        theirs = reverse(audio.direction)
        send = "send" in _ways(theirs) and "send" in _ways(self._want)
        receive = "recv" in _ways(theirs) and "recv" in _ways(self._want)
        direction: Direction = (
            "sendrecv" if send and receive else "sendonly" if send else "recvonly" if receive else "inactive"
        )
        return Agreement(
            remote_address=audio.address,
            remote_port=audio.port,
            codec=chosen.codec,
            payload_type=chosen.payload_type,
            receive=tuple((item.payload_type, item.codec) for item in mine),
            event_type=events[0][0] if events else None,
            event_clock_hz=events[0][1] if events else chosen.codec.clock_hz,
            direction=direction,
            ptime_ms=audio.ptime_ms or PTIME_MS,
            local_crypto=local_crypto,
            remote_crypto=remote_crypto,
            rtcp_mux=audio.rtcp_mux,
        )

    def _write(self, audio: Audio) -> bytes:
        before, after = self._others

        def body(version: int) -> bytes:
            return write_sdp(Session(self._session_id, version, audio, before, after, self.local.address))

        # The version goes up when the text changes, and only then (RFC 3264 section 8).
        if self._last_written is None or body(self._version) != self._last_written:
            self._version += 1
            self._last_written = body(self._version)
        return self._last_written


def _ways(direction: Direction) -> tuple[str, ...]:
    return tuple(re.findall("send|recv", direction))
