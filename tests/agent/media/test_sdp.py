"""Offers as browsers make them, and offers as attackers make them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import NegotiationError
from agent.media.sdp import Local, build_answer, parse_candidate, parse_offer

FINGERPRINT = ":".join(["AB"] * 32)
CHROME = f"""v=0
o=- 4611731400430051336 2 IN IP4 127.0.0.1
s=-
t=0 0
a=group:BUNDLE 0 1 2
a=extmap-allow-mixed
a=msid-semantic: WMS stream
m=audio 9 UDP/TLS/RTP/SAVPF 111 63 9 0 8 13 110 126
c=IN IP4 0.0.0.0
a=rtcp:9 IN IP4 0.0.0.0
a=candidate:1 1 udp 2113937151 1b2c3d4e-0000-4000-8000-123456789abc.local 54321 typ host generation 0 network-cost 999
a=candidate:2 1 udp 2113937150 192.0.2.7 54322 typ host generation 0
a=candidate:3 1 tcp 1518280447 192.0.2.7 9 typ host tcptype active generation 0
a=ice-ufrag:abcd
a=ice-pwd:abcdefghijklmnopqrstuvwx
a=ice-options:trickle
a=fingerprint:sha-256 {FINGERPRINT}
a=setup:actpass
a=mid:0
a=extmap:1 urn:ietf:params:rtp-hdrext:ssrc-audio-level
a=sendrecv
a=msid:stream track
a=rtcp-mux
a=rtpmap:111 opus/48000/2
a=rtcp-fb:111 transport-cc
a=fmtp:111 minptime=10;useinbandfec=1
a=rtpmap:63 red/48000/2
a=fmtp:63 111/111
a=rtpmap:9 G722/8000
a=rtpmap:0 PCMU/8000
a=rtpmap:8 PCMA/8000
a=rtpmap:13 CN/8000
a=rtpmap:110 telephone-event/48000
a=rtpmap:126 telephone-event/8000
a=ssrc:1234 cname:xyz
m=video 9 UDP/TLS/RTP/SAVPF 96 97
c=IN IP4 0.0.0.0
a=ice-ufrag:abcd
a=ice-pwd:abcdefghijklmnopqrstuvwx
a=fingerprint:sha-256 {FINGERPRINT}
a=setup:actpass
a=mid:1
a=sendrecv
a=rtcp-mux
a=rtpmap:96 VP8/90000
a=rtpmap:97 rtx/90000
m=application 9 UDP/DTLS/SCTP webrtc-datachannel
c=IN IP4 0.0.0.0
a=ice-ufrag:abcd
a=ice-pwd:abcdefghijklmnopqrstuvwx
a=fingerprint:sha-256 {FINGERPRINT}
a=setup:actpass
a=mid:2
a=sctp-port:5000
a=max-message-size:262144
"""
LOCAL = Local("uf", "pw", [("sha-256", FINGERPRINT)], ["1 1 udp 1 192.0.2.1 4000 typ host"], 99, "me")


def without(line: str, sdp: str = CHROME) -> str:
    return "".join(kept for kept in sdp.splitlines(keepends=True) if not kept.startswith(line))


def answer_lines(sdp: str) -> list[str]:
    return build_answer(parse_offer(sdp), LOCAL).splitlines()


def test_a_browsers_offer_is_understood() -> None:
    offer = parse_offer(CHROME.replace("\n", "\r\n"))
    assert (offer.audio, offer.data, offer.mids) == (0, 2, ("0", "1", "2"))
    assert (offer.payload_type, dict(offer.events)) == (111, {110: 48_000, 126: 8_000})
    assert (offer.direction, offer.setup, offer.bundled) == ("sendrecv", "active", True)
    assert [c.address for c in offer.candidates] == ["192.0.2.7"]
    assert offer.max_message_bytes == 262_144


def test_the_answer_asks_for_mono_and_fec_and_offers_key_presses() -> None:
    lines = answer_lines(CHROME)
    (fmtp,) = [line for line in lines if line.startswith("a=fmtp:111")]
    assert "useinbandfec=1" in fmtp
    assert ";stereo=0" in fmtp
    assert "m=audio 9 UDP/TLS/RTP/SAVPF 111 110 126" in lines
    assert "a=rtpmap:110 telephone-event/48000" in lines
    assert "a=fmtp:126 0-15" in lines
    assert lines[-1] == "a=max-message-size:65536"


@pytest.mark.parametrize(
    ("formats", "line", "events"),
    [
        ("111 63 9 0 8 13 110 126", "a=rtpmap:111 opus/48000/2", {110: 48_000, 126: 8_000}),
        ("8 0 111 110 126", "a=rtpmap:8 PCMA/8000", {126: 8_000, 110: 48_000}),
        ("63 9 0 8 126", "a=rtpmap:9 G722/8000", {126: 8_000}),
        ("13 0", "a=rtpmap:0 PCMU/8000", {}),
    ],
)
def test_the_first_encoding_we_know_is_answered_alone(formats: str, line: str, events: dict[int, int]) -> None:
    sdp = CHROME.replace("111 63 9 0 8 13 110 126", formats)
    offer = parse_offer(sdp)
    # The event whose clock is the stream's comes first: it is the one we send.
    assert list(offer.events.items()) == list(events.items())
    lines = answer_lines(sdp)
    maps = [found for found in lines if found.startswith("a=rtpmap") and "telephone-event" not in found]
    assert maps == [line]
    assert f"m=audio 9 UDP/TLS/RTP/SAVPF {' '.join(map(str, [offer.payload_type, *events]))}" in lines
    assert any(found.startswith(f"a=fmtp:{offer.payload_type}") for found in lines) == (offer.codec.name == "opus")


def test_static_payload_types_need_no_rtpmap_and_an_rtpmap_overrules_them() -> None:
    bare = without("a=rtpmap:0").replace("111 63 9 0 8 13 110 126", "0")
    assert parse_offer(bare).codec.name == "PCMU"
    other = CHROME.replace("111 63 9 0 8 13 110 126", "0 8").replace("a=rtpmap:0 PCMU/8000", "a=rtpmap:0 L16/8000")
    assert parse_offer(other).codec.name == "PCMA"


def test_video_is_refused_and_the_rest_accepted_in_the_same_order() -> None:
    lines = answer_lines(CHROME)
    media = [line for line in lines if line.startswith("m=")]
    assert [line.split()[:2] for line in media] == [["m=audio", "9"], ["m=video", "0"], ["m=application", "9"]]
    assert "a=group:BUNDLE 0 2" in lines
    video = lines[lines.index(media[1]) : lines.index(media[2])]
    assert "a=inactive" in video
    assert not [line for line in video if line.startswith(("a=ice-", "a=candidate"))]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("sendrecv", "sendrecv"), ("sendonly", "recvonly"), ("recvonly", "sendonly"), ("inactive", "inactive")],
)
def test_directions_mirror(theirs: str, ours: str) -> None:
    assert parse_offer(CHROME.replace("a=sendrecv", f"a={theirs}")).direction == ours


@pytest.mark.parametrize(("theirs", "ours"), [("actpass", "active"), ("passive", "active"), ("active", "passive")])
def test_dtls_roles_fit(theirs: str, ours: str) -> None:
    assert f"a=setup:{ours}" in answer_lines(CHROME.replace("a=setup:actpass", f"a=setup:{theirs}"))


def test_a_data_channel_on_a_transport_of_its_own_is_refused() -> None:
    lines = answer_lines(CHROME.replace("a=group:BUNDLE 0 1 2", "a=group:BUNDLE 0 1"))
    assert "m=application 0 UDP/DTLS/SCTP webrtc-datachannel" in lines


def test_a_second_audio_section_is_refused() -> None:
    second = CHROME.replace("m=video 9 UDP/TLS/RTP/SAVPF 96 97", "m=audio 9 UDP/TLS/RTP/SAVPF 96 97")
    assert "m=audio 0 UDP/TLS/RTP/SAVPF 96" in answer_lines(second)


def test_credentials_may_stand_in_the_session_part() -> None:
    moved = CHROME
    for attribute in ("a=ice-ufrag", "a=ice-pwd", "a=fingerprint", "a=setup"):
        (line, *_) = [line for line in CHROME.splitlines() if line.startswith(attribute)]
        moved = without(attribute, moved).replace("t=0 0\n", f"t=0 0\n{line}\n")
    assert parse_offer(moved).ufrag == "abcd"


@pytest.mark.parametrize(
    ("sdp", "names"),
    [
        ("", "v=0"),
        ("hello", "line 1"),
        ("v=1\n" + CHROME[4:], "v=0"),
        ("v=0\ns=-\n", "m= section"),
        (CHROME.replace("m=audio", "m=text"), "audio m-line"),
        (CHROME.replace("m=audio 9", "m=audio 0"), "audio m-line"),
        (CHROME.replace("SAVPF 111 63 9 0 8 13 110", "SAVPF 63 13 110"), "one of opus/48000/2, G722/8000"),
        (CHROME.replace("SAVPF 111 63 9 0 8", "SAVPF 111 63").replace("opus/48000/2", "opus/16000/1"), "PCMU/8000"),
        (without("a=ice-ufrag"), "ice-ufrag"),
        (CHROME.replace("a=ice-ufrag:abcd", "a=ice-ufrag:a b"), "ice-ufrag"),
        (without("a=ice-pwd"), "ice-pwd"),
        (CHROME.replace("abcdefghijklmnopqrstuvwx", "short"), "ice-pwd"),
        (without("a=fingerprint"), "fingerprint"),
        (CHROME.replace(FINGERPRINT, "AB:CD"), "fingerprint"),
        (CHROME.replace("sha-256", "md5"), "fingerprint"),
        (without("a=setup"), "setup"),
        (CHROME.replace("a=setup:actpass", "a=setup:holdconn"), "setup"),
        (without("a=rtcp-mux"), "rtcp-mux"),
        (CHROME.replace("UDP/TLS/RTP/SAVPF 111", "RTP/AVP 111"), "not encrypted"),
        (CHROME.replace("a=mid:1", "a=mid:0"), "mid"),
        (CHROME.replace("a=mid:1", "a=mid:" + "x" * 200), "mid"),
        (CHROME.replace("m=video 9", "m=video 99999"), "m= line"),
        (CHROME.replace("m=audio 9", "m=audio ٣"), "m= line"),
        (CHROME.replace("m=video 9 UDP/TLS/RTP/SAVPF 96 97", "m=video"), "m= line"),
        (CHROME.replace("a=sctp-port:5000", "a=sctp-port:0"), "sctp-port"),
        (CHROME.replace("262144", "9" * 40), "max-message-size"),
        (CHROME.replace("192.0.2.7 54322", "example.com 54322"), "candidate"),
        (CHROME.replace("54322 typ", "x typ"), "candidate"),
        (CHROME.replace("2 1 udp 2113937150", "2 1 udp 99999999999"), "candidate"),
        (CHROME + "x" * 70_000, "65536 bytes"),
        (CHROME + "a=x:" + "y" * 5000, "line"),
        (CHROME + "m=video 9 UDP/TLS/RTP/SAVPF 96\n" * 40, "sections"),
        (CHROME.replace("\n", "\0\n"), "malformed SDP"),
    ],
)
def test_a_hostile_or_broken_offer_is_refused_by_part(sdp: str, names: str) -> None:
    with pytest.raises(NegotiationError, match=names):
        parse_offer(sdp)


def test_something_that_is_no_text_is_refused() -> None:
    with pytest.raises(NegotiationError, match="string"):
        parse_offer(None)  # type: ignore[arg-type]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mutated_offers_are_answered_or_refused_and_nothing_else(data: st.DataObject) -> None:
    lines = CHROME.splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        change = data.draw(st.integers(0, 4))
        if change == 0:
            del lines[at]
        elif change == 1:
            lines.insert(at, lines[data.draw(st.integers(0, len(lines) - 1))])
        elif change == 2:
            lines[at] = data.draw(st.text(max_size=40))
        elif change == 3:
            cut = data.draw(st.integers(0, len(lines[at])))
            lines[at] = lines[at][:cut] + data.draw(st.text(max_size=5)) + lines[at][cut:]
        else:
            lines[at] = lines[at][: data.draw(st.integers(0, len(lines[at])))]
        if not lines:
            lines = ["v=0"]
    with contextlib.suppress(NegotiationError):
        assert build_answer(parse_offer("\r\n".join(lines)), LOCAL).startswith("v=0")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_text_as_candidate_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(NegotiationError):
        parse_candidate(text)


def test_candidates_of_no_use_are_passed_over() -> None:
    assert parse_candidate("candidate:1 1 udp 1 abc.local 5000 typ host") is None
    assert parse_candidate("candidate:1 2 udp 1 192.0.2.1 5000 typ host") is None
    assert parse_candidate("candidate:1 1 tcp 1 192.0.2.1 9 typ host tcptype active") is None
    found = parse_candidate("a=candidate:1 1 UDP 1 2001:db8::1 5000 typ srflx raddr :: rport 0")
    assert found is not None
    assert (found.address, found.port, found.kind) == ("2001:db8::1", 5000, "srflx")
