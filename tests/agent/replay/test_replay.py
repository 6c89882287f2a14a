"""A recorded call runs again: the same twice, as it happened, and differently where something is different now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.config import MediaSettings, RecordingSettings, Settings
from agent.errors import MediaError
from agent.media.codec import G722, OPUS, PCMU, Codec
from agent.media.codecs import make_encoder
from agent.media.frames import Pcm
from agent.media.rtp import build_rtp
from agent.media.tap import MediaTap
from agent.nlu.hook import Nlu, Turn
from agent.recording.calls import Recordings
from agent.recording.packets import Kind, PacketLog, Record, read_log
from agent.recording.recorder import CallRecorder
from agent.replay.engines import ComputeModel
from agent.replay.loop import VirtualLoop
from agent.replay.port import open_port
from agent.replay.run import OVER, replay, replay_call
from agent.replay.source import load
from agent.replay.story import Entry, differences, tell
from agent.testing import voice
from bench._speech import clips, error_rate_pct, spell
from tests.agent.recording.studio import Line, in_virtual_time, parts, settings, stereo
from tests.agent.recording.test_alignment import recorder

CLIP = clips()[0]
HEARD = ("what are your hours", "no wait stop please now", "thanks")
LONG = "We open at nine in the morning and close at six in the evening on every day of the week."


class Hook:
    """Answers each turn with what is next."""

    speculate = True

    def __init__(self, *answers: str) -> None:
        self.answers = ["Hello there.", *answers]

    async def reply(self, turn: Turn) -> AsyncIterator[Any]:
        yield self.answers.pop(0) if self.answers else "Anything else?"


def hook() -> Hook:
    return Hook(LONG, "Sure.", "Bye then.")


def record_call(folder: Path, monkeypatch: pytest.MonkeyPatch, **how: Any) -> None:
    """A greeting, an answer that is interrupted, a typed turn and a key."""

    async def work(loop: VirtualLoop) -> None:
        async with Recordings(settings(folder, **how)) as recordings:
            line = Line(loop, recordings, await parts(hook(), *HEARD))
            await line.quiet(2.0)
            await line.hear(voice(1.5, 24_000))
            await line.quiet(2.0)
            await line.hear(voice(1.5, 24_000))
            await line.quiet(2.5)
            line.call.type_text("one more thing")
            await line.quiet(2.0)
            line.call.press("#")
            await line.quiet(3.0)
            await line.hang_up()

    in_virtual_time(work, monkeypatch)


def again(
    log: PacketLog,
    nlu: Nlu,
    *,
    model: ComputeModel = ComputeModel(),  # noqa: B008
    tap: MediaTap | None = None,
    texts: Sequence[str] = HEARD,
) -> list[Entry]:
    async def work() -> list[Entry]:
        return tell(await replay_call(log, await parts(nlu, *texts), model=model, tap=tap))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work())


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    record_call(tmp_path, monkeypatch, format="wav")
    return tmp_path / "call_1.packets"


def test_a_call_that_is_replayed_goes_as_it_went(recorded: Path) -> None:
    call = load(recorded, RecordingSettings())
    assert call.events is not None
    happened = tell(call.events)
    replayed = again(call.log, hook())
    assert [entry.text for entry in happened if entry.who == "caller"] == [*HEARD[:2], "one more thing"]
    assert "cancelled" in [entry.status for entry in happened]
    assert differences(happened, replayed) == []
    assert [entry.key for entry in happened] == [entry.key for entry in replayed]
    for old, new in zip(happened, replayed, strict=True):
        assert abs(old.t_ms - new.t_ms) <= 40


def test_a_replay_is_the_same_twice_and_takes_no_time(recorded: Path) -> None:
    log = load(recorded, RecordingSettings()).log
    assert again(log, hook()) == again(log, hook())


def test_another_hook_shows_as_a_difference(recorded: Path) -> None:
    call = load(recorded, RecordingSettings())
    found = differences(tell(call.events or ()), again(call.log, Hook(LONG, "Certainly.", "Bye then.")))
    assert [(d.what, d.recorded and d.recorded.text, d.replayed and d.replayed.text) for d in found] == [
        ("changed", "Sure.", "Certainly.")
    ]


def test_a_stated_time_of_the_engines_shows_in_the_answers(recorded: Path) -> None:
    log = load(recorded, RecordingSettings()).log

    def answers(model: ComputeModel) -> list[float]:
        asked_late = hook()
        asked_late.speculate = False  # else its time passes while the turn is not over
        return [entry.response_ms for entry in again(log, asked_late, model=model) if entry.response_ms is not None]

    at_once, slow = answers(ComputeModel()), answers(ComputeModel(hook_first_s=0.3, voice_first_s=0.2))
    assert slow[0] - at_once[0] == pytest.approx(500, abs=25)


def test_a_hook_that_sleeps_sleeps_on_the_clock_of_the_call(recorded: Path) -> None:
    class Sleepy(Hook):
        speculate = False

        async def reply(self, turn: Turn) -> AsyncIterator[Any]:
            await asyncio.sleep(0.4)
            async for item in super().reply(turn):
                yield item

    log = load(recorded, RecordingSettings()).log
    quick, slow = again(log, hook()), again(log, Sleepy(LONG, "Sure.", "Bye then."))
    first = [next(e.response_ms for e in entries if e.response_ms) for entries in (quick, slow)]
    assert first[1] is not None
    assert first[1] - (first[0] or 0) == pytest.approx(400, abs=25)


def test_a_hook_in_a_thread_is_waited_for_with_the_clock_standing_still(recorded: Path) -> None:
    class Blocking(Hook):
        def reply(self, turn: Turn) -> Iterator[str]:  # type: ignore[override]
            time.sleep(0.1)
            yield self.answers.pop(0) if self.answers else "Anything else?"

    log = load(recorded, RecordingSettings()).log
    assert again(log, Blocking(LONG, "Sure.", "Bye then.")) == again(log, hook())  # type: ignore[arg-type]


def test_a_call_that_would_have_gone_on_says_so(recorded: Path) -> None:
    log = load(recorded, RecordingSettings()).log
    records = [r for r in log.records if r.kind is not Kind.END]
    end = Record(Kind.END, records[-1].at, b'{"reason": "agent hung up"}')
    assert again(PacketLog(log.head, (*records, end), True), hook())[-1].text == OVER
    assert again(PacketLog(log.head, tuple(records), False), hook())[-1].text == OVER


def test_the_announcement_is_part_of_the_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record_call(tmp_path, monkeypatch, announcement="This call is recorded.")
    call = load(tmp_path / "call_1.ogg", RecordingSettings())
    replayed = again(call.log, hook())
    assert replayed[0].text.startswith("This call is recorded.")
    assert differences(tell(call.events or ()), replayed) == []


@pytest.mark.parametrize("codec", [OPUS, PCMU, G722], ids=lambda codec: codec.name)
def test_a_bad_network_is_heard_again_to_the_bit(tmp_path: Path, codec: Codec) -> None:
    rate_hz, size = codec.sample_rate_hz, codec.sample_rate_hz // 50
    stream = {
        "transport": "rtp",
        "rate_hz": rate_hz,
        "encoding": codec.encoding,
        "payload_type": 111,
        "events": {"126": codec.clock_hz},
    }
    port = open_port(stream, MediaSettings())
    one: CallRecorder = recorder(tmp_path, "wav", rate_hz, ends_at=5_021.0)
    port.tap = one
    encoder = make_encoder(codec, MediaSettings())
    rng = np.random.default_rng(3)
    speech = voice(20.0, rate_hz)
    pending: list[tuple[float, bytes]] = []
    base = last = 5_000.0
    for tick in range(1_000):
        payload = encoder.encode(speech[tick * size : (tick + 1) * size])
        if rng.random() > 0.08:
            packet = build_rtp(
                111, False, (65_500 + tick) & 0xFFFF, (tick * codec.clock_hz // 50) & 0xFFFFFFFF, 9, payload
            )
            pending.append((base + tick / 50 + float(rng.exponential(0.02)), packet))
        at = base + tick / 50 + 0.02 + float(rng.random() * 0.003)
        for when, packet in sorted(pending):
            if when <= at:
                when = max(when, last)
                one.on_packet(packet, when)
                port.packet(packet, when)
        last = at
        pending = [entry for entry in pending if entry[0] > at]
        port.run_tick(tick, at)
    one.close("peer closed")
    log = read_log((tmp_path / "call_1.packets").read_bytes())
    log = PacketLog({**stream, "clock": base, "call": "call_1"}, log.records, log.whole)
    heard: list[Pcm] = []

    class Ear:
        def on_packet(self, data: bytes, now: float) -> None: ...

        def on_tick(self, tick: int, now: float, agent: Pcm | None, caller: Sequence[Pcm]) -> None:
            heard.extend(caller)

    again(log, hook(), tap=Ear())
    assert np.array_equal(np.concatenate(heard), stereo(tmp_path / "call_1.wav")[:, 0])
    assert port.stats().inbound.lost > 30


@pytest.mark.parametrize(
    "head",
    [
        {},
        {"transport": "pcm", "rate_hz": 11, "encoding": "", "payload_type": 0, "events": {}},
        {"transport": "smoke", "rate_hz": 24_000, "encoding": "", "payload_type": 0, "events": {}},
        {"transport": "rtp", "rate_hz": "x", "encoding": "", "payload_type": 0, "events": {}},
    ],
)
def test_a_stream_that_is_not_known_is_told(head: dict[str, Any]) -> None:
    with pytest.raises(MediaError):
        again(PacketLog(head, (Record(Kind.TICK, 1.0, bytes(8)),), True), hook())


def test_a_log_without_anything_is_told() -> None:
    with pytest.raises(MediaError, match="nothing came in"):
        again(
            PacketLog(
                {"transport": "pcm", "rate_hz": 24_000, "encoding": "", "payload_type": 0, "events": {}}, (), True
            ),
            hook(),
        )


def test_real_engines_hear_and_answer_the_same_twice() -> None:
    speech = recorded_speech()
    records = []
    for number in range(len(speech) // 320):
        at = 100.0 + (number + 1) / 50
        records.append(Record(Kind.PACKET, at, speech[number * 320 : (number + 1) * 320].astype("<i2").tobytes()))
        records.append(Record(Kind.TICK, at, number.to_bytes(8, "big")))
    head = {"transport": "pcm", "rate_hz": 16_000, "encoding": "", "payload_type": 0, "events": {}, "clock": 100.0}
    log = PacketLog(head, tuple(records), False)
    tree = Settings(nlu={"kind": "echo"}, conversation={"greet": False})  # type: ignore[arg-type]
    first, second = (tell(replay(log, tree)) for _ in range(2))
    assert first == second
    said = " ".join(entry.text for entry in first if entry.who == "caller")
    assert error_rate_pct([(spell(CLIP.text), spell(said))]) < 30
    assert any(entry.who == "agent" and entry.response_ms is not None for entry in first)


def recorded_speech() -> Pcm:
    """A second of silence, a clip, and silence for the answer: int16 [n] at 16 kHz."""
    return np.concatenate([np.zeros(16_000, np.int16), CLIP.pcm(), np.zeros(16_000 * 8, np.int16)])
