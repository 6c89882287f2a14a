"""WebRtcPort against a real peer (stock aiortc) on this machine: audio, events, vanishing, closing, hostile offers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
from typing import Any

import numpy as np
import pytest
from aioice.stun import Class, Message, Method
from aiortc.sdp import candidate_to_sdp

from agent.config import MediaSettings
from agent.errors import CallRefused, MediaError, NegotiationError
from agent.media import aiortc_seam, gathering, webrtc
from agent.media.playout import Playout
from agent.media.rtp import build_rtp
from agent.media.webrtc import WebRtcPort

pytestmark = pytest.mark.usefixtures("no_leaks")


def voice(seconds: float) -> np.ndarray:
    t = np.arange(int(24_000 * seconds)) / 24_000
    return (8000 * np.sin(2 * np.pi * 600 * t)).astype(np.int16)


def level(frame: Any) -> float:
    return float(np.abs(np.asarray(frame, float)).mean())


def pitch(pcm: np.ndarray, rate_hz: int) -> float:
    spectrum = np.abs(np.fft.rfft(pcm.astype(float) * np.hanning(len(pcm))))
    return float(np.argmax(spectrum) * rate_hz / len(pcm))


async def within(awaitable: Any, seconds: float = 20.0) -> Any:
    return await asyncio.wait_for(awaitable, seconds)


async def connected(port: WebRtcPort, sink: Any) -> None:
    port.attach(sink)
    await sink.until(lambda: len(sink.frames) >= 5)


async def test_the_callers_voice_arrives_as_16_khz_frames(
    make_client: Any, ticker: Any, sink: Any, settled: Any
) -> None:
    before = asyncio.all_tasks()
    client = make_client()
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    port.attach(sink)
    await sink.until(lambda: sum(level(f) > 2000 for f in sink.frames) >= 40)
    heard = np.concatenate([f for f in sink.frames if level(f) > 2000][5:35])
    assert {f.shape for f in sink.frames} == {(320,)}
    assert pitch(heard, 16_000) == pytest.approx(440, abs=4)
    stats = port.stats()
    assert stats.connected
    assert stats.inbound.received >= 40
    assert (stats.corrupt, stats.send_failures, stats.rtp_silent) == (0, 0, False)
    await port.close()
    await client.pc.close()
    assert await settled(before) == []
    assert sink.closed == []


async def test_the_agents_voice_reaches_the_caller_in_real_time(make_client: Any, ticker: Any, sink: Any) -> None:
    client = make_client()
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    port.playout.write(voice(3.0))
    port.playout.end()
    port.attach(sink)
    track = await within(client.track)
    heard: list[np.ndarray] = []
    while sum(level(f) > 2000 for f in heard) < 50:
        frame = await within(track.recv())
        heard.append(frame.to_ndarray()[0, ::2])
    loud = np.concatenate([f for f in heard if level(f) > 2000][5:])
    assert pitch(loud, 48_000) == pytest.approx(600, abs=5)
    # Nothing was sent before there was anybody to hear it, and it left no faster than it is spoken.
    assert port.playout.position <= 480 * (len(sink.frames) + 1)
    await port.close()
    await client.pc.close()


async def test_messages_travel_both_ways_whenever_they_are_sent(make_client: Any, ticker: Any, sink: Any) -> None:
    got: list[str] = []
    came = asyncio.Event()

    def on_message(text: str) -> None:
        got.append(text)
        came.set()
        if text == "bad":
            raise ValueError("handler fault")

    client = make_client()
    port = await client.call(ticker, MediaSettings(), on_message)
    for n in range(300):
        port.send_message(f"early {n}")
    port.attach(sink)
    await within(client.opened.wait())
    while len(client.messages) < 256:
        await within(client.message_came.wait())
        client.message_came.clear()
    assert client.messages == [f"early {n}" for n in range(256)]
    assert port.stats().messages_dropped == 44
    for message in (b"binary", "x" * 65_000, "bad", "hello"):
        client.channel.send(message)
    while "hello" not in got:
        await within(came.wait())
        came.clear()
    assert [len(text) for text in got] == [65_000, 3, 5]
    assert port.stats().messages_ignored == 1
    client.message_came.clear()
    port.send_message("late")
    await within(client.message_came.wait())
    assert client.messages[-1] == "late"
    await port.close()
    port.send_message("too late")
    assert port.stats().messages_dropped >= 45
    await client.pc.close()


async def test_other_channels_are_closed(make_client: Any, ticker: Any, sink: Any) -> None:
    client = make_client(channel=False)
    other = client.pc.createDataChannel("files")
    closed = asyncio.Event()
    other.on("close", closed.set)
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    await connected(port, sink)
    await within(closed.wait())
    assert sink.closed == []
    await port.close()
    await client.pc.close()


async def test_a_vanished_peer_is_noticed_and_reported_once(
    make_client: Any, ticker: Any, sink: Any, quick_settings: Any, settled: Any
) -> None:
    before = asyncio.all_tasks()
    client = make_client()
    port = await client.call(ticker, quick_settings, lambda text: None)
    await connected(port, sink)
    client.vanish()
    await within(sink.ended.wait())
    await port.close()
    assert sink.closed == ["peer vanished"]
    await within(client.pc.close())
    assert await settled(before) == []


def test_with_the_default_settings_a_vanished_peer_is_noticed_in_under_7_s() -> None:
    settings = MediaSettings()
    expiry = settings.consent_interval_s * settings.consent_failures * aiortc_seam.EXPIRY_FACTOR
    # The last answer may have come just before; no wait and no request runs beyond the expiry.
    assert expiry < 7.0


async def test_a_peer_that_hangs_up_is_reported_once(make_client: Any, ticker: Any, sink: Any, settled: Any) -> None:
    before = asyncio.all_tasks()
    client = make_client()
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    await connected(port, sink)
    await client.pc.close()
    await within(sink.ended.wait())
    await port.close()
    assert sink.closed == ["peer closed"]
    assert await settled(before) == []


async def test_a_peer_that_closes_its_channel_hangs_up(make_client: Any, ticker: Any, sink: Any) -> None:
    client = make_client()
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    await connected(port, sink)
    await within(client.opened.wait())
    client.channel.close()
    await within(sink.ended.wait())
    assert sink.closed == ["peer closed"]
    await port.close()
    await client.pc.close()


async def test_our_hang_up_reaches_the_peer_and_is_not_reported_to_us(make_client: Any, ticker: Any, sink: Any) -> None:
    client = make_client()
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    await connected(port, sink)
    closed = asyncio.Event()
    client.pc.on("connectionstatechange", lambda: closed.set() if client.pc.connectionState == "closed" else None)
    await asyncio.gather(port.close(), port.close())
    await within(closed.wait())
    count = len(sink.frames)
    await asyncio.sleep(0.06)
    assert len(sink.frames) == count
    assert sink.closed == []


async def test_closing_at_any_moment_leaves_nothing_behind(
    make_client: Any, ticker: Any, sink: Any, quick_settings: Any, settled: Any
) -> None:
    before = asyncio.all_tasks()
    for wait_s in (0.0, 0.005, 0.02, 0.05, 0.1):
        client = make_client()
        port = await client.call(ticker, quick_settings, lambda text: None)
        await asyncio.sleep(wait_s)
        await within(port.close(), 3)
        await client.pc.close()
        unanswered = await WebRtcPort.answer(
            await make_client().offer(), settings=quick_settings, ticker=ticker, on_message=lambda text: None
        )
        await asyncio.sleep(wait_s)
        await within(unanswered.close(), 3)
    gc.collect()
    mine = [task for task in await settled(before) if "webrtc" in task.get_name()]
    assert mine == []
    assert ticker._callbacks == {}


async def test_closing_ends_in_time_when_the_peer_is_gone(
    make_client: Any, ticker: Any, sink: Any, settled: Any
) -> None:
    before = asyncio.all_tasks()
    client = make_client()
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    await connected(port, sink)
    client.vanish()
    await within(port.close(), 2.5)
    assert sink.closed == []
    await within(client.pc.close())
    assert await settled(before) == []


async def test_closing_while_connecting_never_ticks_even_if_cancellation_is_swallowed(
    make_client: Any, ticker: Any, sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = asyncio.Event()

    async def swallow(self: Any) -> None:
        try:
            waiting.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    monkeypatch.setattr(aiortc_seam.PeerTransport, "connect", swallow)
    client = make_client()
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    port.attach(sink)
    await within(waiting.wait())
    await port.close()
    assert ticker._callbacks == {}
    assert not port.stats().connected
    await client.pc.close()


async def test_a_socket_that_the_system_took_away_ends_the_call(
    make_client: Any, ticker: Any, sink: Any, quick_settings: Any
) -> None:
    client = make_client()
    port = await client.call(ticker, quick_settings, lambda text: None)
    await connected(port, sink)
    for protocol in port._transport._ice._protocols:
        protocol.transport.abort()
    port.playout.write(voice(0.5))
    await within(sink.ended.wait())
    assert len(sink.closed) == 1
    assert ticker._callbacks == {}
    await port.close()
    await client.pc.close()


async def test_a_peer_that_never_connects_is_given_up(
    make_client: Any, ticker: Any, sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert webrtc.CONNECT_S == 20.0
    monkeypatch.setattr(webrtc, "CONNECT_S", 0.2)
    client = make_client()
    port = await WebRtcPort.answer(
        await client.offer(), settings=MediaSettings(), ticker=ticker, on_message=lambda text: None
    )
    port.attach(sink)
    await within(sink.ended.wait())
    assert sink.closed == ["not connected"]
    await port.close()
    late_sink = type(sink)()
    port.attach(late_sink)
    await within(late_sink.ended.wait())
    assert late_sink.closed == ["not connected"]
    await client.pc.close()


async def test_candidates_may_trickle_in_and_their_end_is_harmless(make_client: Any, ticker: Any, sink: Any) -> None:
    client = make_client()
    offer = await client.offer()
    trickled = "".join(
        line for line in offer.splitlines(keepends=True) if not line.startswith(("a=candidate", "a=end-of"))
    )
    port = await WebRtcPort.answer(trickled, settings=MediaSettings(), ticker=ticker, on_message=lambda text: None)
    await port.add_candidate("candidate:9 1 udp 2113937151 00000000-0000.local 9 typ host", "0", 0)
    await port.add_candidate("", "0", 0)
    await port.add_candidate(None, None, None)
    await client.accept(port.answer_sdp)
    gatherer = client.pc.getTransceivers()[0].receiver.transport.transport.iceGatherer
    for candidate in gatherer.getLocalCandidates():
        await port.add_candidate("candidate:" + candidate_to_sdp(candidate), "0", 0)
    await port.add_candidate("", "0", 0)
    await connected(port, sink)
    await port.add_candidate("candidate:9 1 udp 1 192.0.2.99 9999 typ host", None, 1)
    await port.close()
    await port.add_candidate("candidate:9 1 udp 1 192.0.2.98 9999 typ host", "0", 0)
    await client.pc.close()


@pytest.mark.parametrize(
    ("candidate", "mid", "index"),
    [
        ("garbage", "0", 0),
        ("candidate:1 1 udp x 192.0.2.1 1 typ host", "0", 0),
        ("candidate:1 1 udp 1 192.0.2.1 99999 typ host", "0", 0),
        ("candidate:1 1 udp 1 example.org 5000 typ host", "0", 0),
        ("candidate:1 1 udp 1 224.0.0.1 5000 typ host", "0", 0),
        ("candidate:1 1 udp 1 192.0.2.1 5000 typ host", "nope", 0),
        ("candidate:1 1 udp 1 192.0.2.1 5000 typ host", None, 7),
        ("candidate:1 1 udp 1 192.0.2.1 5000 typ host" + "x" * 5000, "0", 0),
    ],
)
async def test_a_hostile_candidate_is_refused_and_the_call_goes_on(
    make_client: Any, ticker: Any, sink: Any, candidate: str, mid: str | None, index: int
) -> None:
    client = make_client()
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    with pytest.raises(NegotiationError, match="candidate"):
        await port.add_candidate(candidate, mid, index)
    await connected(port, sink)
    await port.close()
    await client.pc.close()


async def test_a_peer_that_checks_from_ever_new_addresses_is_followed_only_so_far(
    make_client: Any, ticker: Any, sink: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = make_client()
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    await connected(port, sink)
    ice = port._transport._ice
    peer = client.pc.getSenders()[0].transport.transport._connection
    protocol = ice._nominated[1].protocol

    def check(number: int, priority: int | None) -> None:
        message = Message(Method.BINDING, Class.REQUEST)
        message.attributes["USERNAME"] = f"{peer.remote_username}:{peer.local_username}"
        if priority is not None:
            message.attributes["PRIORITY"] = priority
        message.add_message_integrity(peer.remote_password.encode())
        protocol.datagram_received(bytes(message), (f"127.1.{number >> 8}.{number & 255}", 9))

    check(1, None)
    for number in range(1000):
        check(number, 1)
    assert len(ice._remote_candidates) <= aiortc_seam.MAX_ADDRESSES
    assert len(ice._check_list) <= 10 * aiortc_seam.MAX_ADDRESSES
    seen = len(sink.frames)
    await sink.until(lambda: len(sink.frames) >= seen + 10)
    assert sink.closed == []
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []
    await port.close()
    await client.pc.close()


async def test_a_refused_offer_leaves_no_transport_behind(make_client: Any, ticker: Any, settled: Any) -> None:
    before = asyncio.all_tasks()
    client = make_client()
    good = await client.offer()
    bad = [
        "",
        "v=0",
        good[: len(good) // 3],
        good.replace("opus/48000/2", "G729/8000").replace("PCMU", "X").replace("PCMA", "Y").replace("G722", "Z"),
        good.replace("a=ice-ufrag", "a=x-ufrag"),
        good.replace("a=ice-pwd", "a=x-pwd"),
        good.replace("a=fingerprint", "a=x-print"),
        good.replace("m=audio", "m=video"),
        good.replace("a=rtcp-mux", "a=x-mux"),
        good.replace("a=setup:actpass", "a=setup:both"),
        good + "\0\1\2",
        good * 40,
        "🦜" * 20_000,
    ]
    for sdp in bad:
        with pytest.raises(NegotiationError):
            await WebRtcPort.answer(sdp, settings=MediaSettings(), ticker=ticker, on_message=lambda text: None)
    assert ticker._callbacks == {}
    await client.pc.close()
    assert await settled(before) == []


async def test_without_an_address_to_bind_a_call_is_refused_and_leaks_nothing(
    make_client: Any, ticker: Any, settled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client()
    offer = await client.offer()
    before = asyncio.all_tasks()

    monkeypatch.setattr(gathering, "interfaces", lambda: [("gone0", "192.0.2.1")])
    with pytest.raises(CallRefused, match="no local network address"):
        await WebRtcPort.answer(offer, settings=MediaSettings(), ticker=ticker, on_message=lambda text: None)
    assert await settled(before) == []
    await client.pc.close()


async def test_without_a_data_channel_a_call_is_audio_alone(make_client: Any, ticker: Any, sink: Any) -> None:
    client = make_client(channel=False)
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    port.send_message("nobody listens")
    await connected(port, sink)
    assert "m=application" not in port.answer_sdp
    await port.close()
    await client.pc.close()


async def test_key_presses_arrive_and_can_be_sent_only_when_negotiated(
    make_client: Any, ticker: Any, sink: Any
) -> None:
    client = make_client()
    offer = (await client.offer()).replace("UDP/TLS/RTP/SAVPF 96", "UDP/TLS/RTP/SAVPF 96 101")
    offer = offer.replace("a=rtpmap:96 opus/48000/2", "a=rtpmap:96 opus/48000/2\r\na=rtpmap:101 telephone-event/8000")
    port = await WebRtcPort.answer(offer, settings=MediaSettings(), ticker=ticker, on_message=lambda text: None)
    assert "a=rtpmap:101 telephone-event/8000" in port.answer_sdp
    stock = "\r\n".join(line for line in port.answer_sdp.split("\r\n") if ":101 " not in line)
    await client.accept(stock.replace("SAVPF 96 101", "SAVPF 96"))
    await connected(port, sink)
    transport = client.pc.getSenders()[0].transport
    for n, end in enumerate((0, 0, 0x80, 0x80, 0x80)):
        payload = struct.pack("!BBH", 7, 10 | end, 160 * (n + 1))
        await transport._send_rtp(build_rtp(101, False, 30_000 + n, 5_000, 4_242, payload))
    await sink.until(lambda: sink.digits == ["7"])
    port.send_dtmf("12")
    with pytest.raises(MediaError, match="digits"):
        port.send_dtmf("hello")
    await port.close()
    plain = make_client()
    other = await plain.call(ticker, MediaSettings(), lambda text: None)
    with pytest.raises(MediaError, match="telephone-event"):
        other.send_dtmf("1")
    await other.close()
    await plain.pc.close()
    await client.pc.close()


async def test_hostile_media_and_messages_of_an_authenticated_peer_do_not_end_the_call(
    make_client: Any, ticker: Any, sink: Any
) -> None:
    client = make_client()
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    await connected(port, sink)
    await within(client.opened.wait())
    transport = client.pc.getSenders()[0].transport
    ice = transport.transport._connection
    rng = np.random.default_rng(5)
    for n in range(200):
        noise = rng.bytes(int(rng.integers(0, 200)))
        await transport._send_rtp(build_rtp(96, True, n, n * 7_919 * 960, n % 3, noise))
        await transport._send_rtp(bytes([0x81, 200 + n % 8]) + struct.pack("!H", n) + bytes(4) + noise)
        await transport._send_data(noise or b"\0")
        await ice.send(bytes([0x80 + n % 64]) + noise)
        await ice.send(bytes([20 + n % 44]) + noise)
        await ice.send(noise)
    await ice.send(b"")
    seen = len(sink.frames)
    await sink.until(lambda: len(sink.frames) >= seen + 10)
    assert sink.closed == []
    assert port.stats().corrupt > 0
    await port.close()
    await client.pc.close()


STRANGERS = [
    pytest.param(b"\x15\xfe\xfd" + bytes(8) + b"\0\2\2\x28", id="a fatal DTLS alert"),
    pytest.param(b"\x16\xfe\xfd" + bytes(8) + b"\0\x20" + bytes(range(32)), id="a DTLS handshake that is none"),
]


@pytest.mark.parametrize("datagram", STRANGERS)
async def test_a_stranger_cannot_break_off_the_handshake(
    datagram: bytes, make_client: Any, ticker: Any, sink: Any
) -> None:
    client = make_client()
    port = await WebRtcPort.answer(await client.offer(), settings=MediaSettings(), ticker=ticker, on_message=print)
    ours = [(c.host, c.port) for c in port._transport._ice.local_candidates]
    stranger = {family: socket.socket(family, socket.SOCK_DGRAM) for family in (socket.AF_INET, socket.AF_INET6)}

    async def spray() -> None:
        while True:
            for host, number in ours:
                with contextlib.suppress(OSError):
                    stranger[socket.AF_INET6 if ":" in host else socket.AF_INET].sendto(datagram, (host, number))
            await asyncio.sleep(0.002)

    spraying = asyncio.create_task(spray())
    try:
        await client.accept(port.answer_sdp)
        await connected(port, sink)
        assert sink.closed == []
    finally:
        spraying.cancel()
        for sock in stranger.values():
            sock.close()
        await port.close()
        await client.pc.close()


async def test_stun_that_cannot_be_read_is_dropped_without_a_word(
    make_client: Any, ticker: Any, sink: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = make_client()
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    await connected(port, sink)
    ice = client.pc.getSenders()[0].transport.transport._connection
    for kind in (0x0024, 0x8028, 0x8029, 0x802A):  # PRIORITY, FINGERPRINT, ICE-CONTROLLED and -CONTROLLING of one byte
        attribute = struct.pack("!HH", kind, 1) + bytes(4)
        await ice.send(struct.pack("!HHI", 1, len(attribute), 0x2112A442) + bytes(12) + attribute)
    seen = len(sink.frames)
    await sink.until(lambda: len(sink.frames) >= seen + 10)
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []
    await port.close()
    await client.pc.close()


async def test_silence_of_rtp_shows_in_the_stats(make_client: Any, ticker: Any, sink: Any) -> None:
    client = make_client(audio=False)
    client.pc.addTransceiver("audio", direction="sendrecv")
    port = await client.call(ticker, MediaSettings(rtp_silence_s=0.1), lambda text: None)
    port.attach(sink)
    await sink.until(lambda: len(sink.frames) >= 20)
    stats = port.stats()
    assert stats.rtp_silent
    assert stats.rtp_silence_s > 0.1
    assert [what for what, _ in sink.silences] == ["stalled"]
    assert sink.closed == []
    await port.close()
    await client.pc.close()


async def test_a_silence_is_told_once_and_so_is_its_end(make_client: Any, ticker: Any, sink: Any) -> None:
    client = make_client(audio=False)
    client.pc.addTransceiver("audio", direction="sendrecv")
    port = await client.call(ticker, MediaSettings(rtp_silence_s=0.1), lambda text: None)
    port.attach(sink)
    await sink.until(lambda: sink.silences)
    assert sink.silences[0][1] > 0.1
    seen = len(sink.frames)
    await sink.until(lambda: len(sink.frames) >= seen + 20)
    assert len(sink.silences) == 1
    transport = client.pc.getSenders()[0].transport
    await transport._send_rtp(build_rtp(96, True, 1, 960, 5, b"\xf8\xff\xfe"))
    await sink.until(lambda: len(sink.silences) == 2)
    assert sink.silences[1][0] == "resumed"
    assert sink.silences[1][1] > 0.5
    await sink.until(lambda: len(sink.silences) == 3)
    assert sink.silences[2][0] == "stalled"
    await port.close()
    await client.pc.close()


async def test_a_page_that_only_listens_is_not_silent(make_client: Any, ticker: Any, sink: Any) -> None:
    client = make_client(audio=False)
    client.pc.addTransceiver("audio", direction="recvonly")
    port = await client.call(ticker, MediaSettings(rtp_silence_s=0.1), lambda text: None)
    port.attach(sink)
    await sink.until(lambda: len(sink.frames) >= 20)
    assert sink.silences == []
    await port.close()
    await client.pc.close()


async def test_the_peer_learns_its_loss_and_we_learn_ours(make_client: Any, ticker: Any, sink: Any) -> None:
    client = make_client()
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    port.playout.write(voice(6.0))
    port.attach(sink)
    await sink.until(lambda: port.stats().round_trip_s is not None)
    reports: list[Any] = []
    # The two sides report on schedules of their own, each about once a second.
    async with asyncio.timeout(10):
        while not reports:
            await asyncio.sleep(0.1)
            reports = [s for s in (await client.pc.getStats()).values() if s.type == "remote-inbound-rtp"]
    assert reports[0].packetsLost == 0
    round_trip = port.stats().round_trip_s
    assert round_trip is not None
    assert 0 <= round_trip < 5
    await port.close()
    await client.pc.close()


async def test_calls_share_a_ticker_without_sharing_fate(
    make_client: Any, ticker: Any, sink: Any, quick_settings: Any
) -> None:
    other_sink = type(sink)()
    first, second = make_client(), make_client()
    a = await first.call(ticker, quick_settings, lambda text: None)
    b = await second.call(ticker, quick_settings, lambda text: None)
    await connected(a, sink)
    await connected(b, other_sink)
    first.vanish()
    await within(sink.ended.wait())
    seen = len(other_sink.frames)
    await other_sink.until(lambda: len(other_sink.frames) >= seen + 10)
    assert other_sink.closed == []
    for port in (a, b):
        await port.close()
    for client in (first, second):
        await within(client.pc.close())


async def test_a_transport_that_fails_in_its_own_way_ends_the_call(
    make_client: Any, ticker: Any, sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Any) -> None:
        raise RuntimeError("OpenSSL says no")

    monkeypatch.setattr(aiortc_seam.PeerTransport, "connect", broken)
    client = make_client()
    port = await WebRtcPort.answer(
        await client.offer(), settings=MediaSettings(), ticker=ticker, on_message=lambda text: None
    )
    port.attach(sink)
    await within(sink.ended.wait(), 5)
    assert sink.closed == ["not connected"]
    await port.close()
    await client.pc.close()


async def test_a_port_whose_codec_fails_ends_the_call(
    make_client: Any, ticker: Any, sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client()
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    await connected(port, sink)

    def broken(frame: Any) -> bytes:
        raise MediaError("Opus: encode: internal error")

    monkeypatch.setattr(port._sender._encoder, "encode", broken)
    port.playout.write(voice(1.0))
    await within(sink.ended.wait(), 5)
    assert sink.closed == ["internal error"]
    await port.close()
    await client.pc.close()


async def test_speech_to_a_caller_who_takes_no_audio_still_comes_to_its_end(
    make_client: Any, ticker: Any, sink: Any
) -> None:
    client = make_client()
    client.pc.getTransceivers()[0].direction = "sendonly"
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    port.playout.write(voice(0.2))
    port.playout.end()
    port.attach(sink)
    await sink.until(lambda: len(sink.frames) >= 20)
    assert port.playout.drained
    assert port.stats().packets_sent == 0
    await port.close()
    await client.pc.close()


async def test_a_close_that_runs_out_of_time_still_frees_the_codecs(
    make_client: Any, ticker: Any, sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client()
    port = await client.call(ticker, MediaSettings(), lambda text: None)
    await connected(port, sink)
    really_close = port._transport.close
    freed: list[str] = []
    monkeypatch.setattr(port._receiver, "close", lambda: freed.append("decoder"))
    monkeypatch.setattr(port._sender, "close", lambda: freed.append("encoder"))
    monkeypatch.setattr(port._transport, "close", asyncio.Event().wait)
    monkeypatch.setattr(webrtc, "CLOSE_S", 0.05)
    await within(port.close(), 5)
    await within(asyncio.wait({port._closing}))
    assert freed == ["decoder", "encoder"]
    await really_close()
    await client.pc.close()


async def test_speech_waits_for_a_peer_that_fell_silent_and_goes_on_over_another_port(
    make_client: Any, ticker: Any, sink: Any
) -> None:
    settings = MediaSettings(consent_interval_s=0.1, consent_failures=20)
    first, second = make_client(), make_client()
    port = await first.call(ticker, settings, lambda text: None)
    await connected(port, sink)
    playout = port.playout
    playout.write(voice(20.0))
    ticks = len(sink.frames)
    await sink.until(lambda: len(sink.frames) >= ticks + 10)
    assert port.stats().peer_silence_s < 0.2
    assert playout.position > 0
    first.vanish()
    await sink.until(lambda: port.stats().peer_silence_s > 0.5)
    held, ticks = playout.position, len(sink.frames)
    await sink.until(lambda: len(sink.frames) >= ticks + 10)
    assert playout.position == held, "nothing is said to nobody"
    again = await WebRtcPort.answer(
        await second.offer(), settings=settings, ticker=ticker, on_message=lambda text: None
    )
    again.adopt(playout)
    again.attach(sink)
    await second.accept(again.answer_sdp)
    await port.close()
    track = await within(second.track)
    await sink.until(lambda: again.playout.position > held)
    frame = await within(track.recv())
    assert frame.samples
    with pytest.raises(MediaError, match="8000 Hz"):
        again.adopt(Playout(8000))
    await again.close()
    await within(first.pc.close())
    await within(second.pc.close())
