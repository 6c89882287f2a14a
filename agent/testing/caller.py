"""A scripted caller: speaks, pauses, presses keys and hangs up in virtual time, and remembers what was heard when."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from agent.call import Call
from agent.events import (
    CallEnded,
    CallEvent,
    CallFault,
    FloorChanged,
    PlayoutStarted,
    ReplyFinished,
    ReplyStarted,
    TransferRequested,
    UserTranscript,
)
from agent.media.frames import FRAME_MS, HEARING_HZ, HEARING_SAMPLES, Pcm
from agent.media.resample import StreamResampler
from agent.nlu.hook import Turn
from agent.testing.fakes import ScriptedPort, voice
from agent.testing.lexicon import Lexicon
from agent.testing.plain import plain

if TYPE_CHECKING:
    from agent.testing.stage import Stage

__all__ = ["Echo", "HeardWord", "Said", "VirtualCall"]

T = TypeVar("T")

SECONDS_PER_CHARACTER = 0.06
"""Pace of a caller for whom no length is given."""

KEY_GAP_S = 0.2
"""Between two keys of one entry."""

PATIENCE_S = 60.0
"""Virtual seconds after which what a test waits for counts as not happening."""

FRAME_S = FRAME_MS / 1000

DOMINANT = 0.5
"""Share of a frame that a word must fill to count as heard in it."""


@dataclass(frozen=True, slots=True)
class HeardWord:
    """A word of the agent that left for the caller. Times in seconds since the call began."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Said:
    """One reply of the agent: what of it was heard, from when to when, in seconds since the call began."""

    text: str
    unheard: str
    start_s: float
    end_s: float
    status: str


@dataclass(frozen=True, slots=True)
class Echo:
    """What of the agent's voice comes back into the caller's microphone."""

    level_db: float = -20.0
    delay_s: float = 0.15


class VirtualCall:
    """One call in virtual time; made by `Stage.call` or `rehearsal`."""

    call: Call
    stage: Stage

    def __init__(self, port: ScriptedPort, lexicon: Lexicon, *, now: Callable[[], float]) -> None:
        self.port = port
        self.lexicon = lexicon
        self.events: list[tuple[float, CallEvent]] = []
        """All that the call told, with its time."""
        self.words: list[HeardWord] = []
        """What was heard of the agent, taken from the frames that left."""
        self.sounds: list[tuple[float, float]] = []
        """From when to when the agent was audible."""
        self.asked: list[Turn] = []
        """What the hook was asked in this call, speculative turns too."""
        self.acts: list[tuple[float, str, str]] = []
        """What the caller did: (when it ended, what, with which words or keys)."""
        self.echo: Echo | None = None
        self.last_act_s = 0.0
        """When the caller's last sound or key ended."""
        self._now = now
        self._began = now()
        self._line: deque[Pcm] = deque()
        self._returning: deque[Pcm] = deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._word_number = 0
        """The word that was heard last, also before a pause that cut it."""
        self._voice = voice(1.0)
        self._resampler = StreamResampler(port.sample_rate_hz, HEARING_HZ)

    # -- the caller ----------------------------------------------------------------------------------------------------

    async def says(self, text: str, seconds: float | None = None) -> None:
        """Say `text` evenly over `seconds` (at a person's pace by default); returns at its end."""
        self.begins(text, seconds)
        await self._silent()

    def begins(self, text: str, seconds: float | None = None) -> None:
        """Begin to say it, and return at once."""
        length = seconds if seconds is not None else max(0.3, (len(text) + 1) * SECONDS_PER_CHARACTER)
        self._utter(self.lexicon.speech(text, length, self._voice), "says", text)

    async def backchannel(self, text: str = "mhm", seconds: float = 0.35) -> None:
        """A listener's word."""
        await self.says(text, seconds)

    async def noise(self, seconds: float = 0.3) -> None:
        """A sound like a voice without words: a cough, a clap, a chair."""
        self._utter(self.lexicon.mark(np.resize(self._voice, round(seconds * HEARING_HZ))), "noise", "")
        await self._silent()

    async def plays(self, pcm: Pcm, text: str = "") -> None:
        """Recorded sound, int16 [n] at 16 kHz; `text` is for the transcript only. For real engines."""
        self._utter(pcm, "says", text)
        await self._silent()

    async def pause(self, seconds: float) -> None:
        """Say nothing."""
        for _ in range(round(seconds / FRAME_S)):
            await self.next_tick()

    async def presses(self, keys: str, gap_s: float = KEY_GAP_S) -> None:
        """Press keys, one after the other. Raises ProtocolError on what is no key."""
        for number, key in enumerate(keys):
            if number:
                await self.pause(gap_s)
            self.call.press(key)
            self._acted("presses", key)
        await self.next_tick()

    async def types(self, text: str) -> None:
        """Type a message. Raises ProtocolError when it is empty or too long."""
        self.call.type_text(text)
        self._acted("types", text)
        await self.next_tick()

    def mutes(self) -> None:
        """Switch the microphone off: what was not said yet is not heard."""
        if self._line:
            self._line.clear()
            self._acted("mutes", "")

    async def hangs_up(self) -> None:
        """Hang up, in the middle of a word or not, and wait for the call's end."""
        self._line.clear()
        self._acted("hangs up", "")
        self.call.hangup("caller hung up")
        await self.call.wait_ended()

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], T | None], seconds: float = PATIENCE_S) -> T:
        """Wait until `condition()` is true; returns what it returned. Raises AssertionError with the transcript."""
        for _ in range(round(seconds / FRAME_S) + 1):
            result = condition()
            if result:
                return result
            await self.next_tick()
        raise AssertionError(f"did not happen within {seconds:g} s:\n{self.transcript()}")

    async def answer(self, seconds: float = PATIENCE_S) -> Said:
        """Wait for the next reply of which something is heard, to its end. Raises AssertionError."""
        known = len(self.replies)
        return (await self.until(lambda: [said for said in self.replies[known:] if said.text], seconds))[0]

    async def hears(self, word: str, seconds: float = PATIENCE_S) -> HeardWord:
        """Wait until the agent begins to say this word from now on, whatever case and marks. Raises AssertionError."""
        known = len(self.words)
        wanted = plain(word)

        def heard() -> HeardWord | None:
            return next((heard for heard in self.words[known:] if plain(heard.text) == wanted), None)

        return await self.until(heard, seconds)

    async def quiet(self, seconds: float = PATIENCE_S) -> None:
        """Wait until nobody has the floor. Raises AssertionError."""
        await self.until(lambda: self.floor == "nobody", seconds)

    async def next_tick(self) -> None:
        """Wait for the next 20 ms."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    # -- what happened -------------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Seconds since the call began."""
        return round(self._now() - self._began, 4)

    @property
    def floor(self) -> str:
        """Who has the floor."""
        return next((event.floor for _, event in reversed(self.events) if isinstance(event, FloorChanged)), "nobody")

    @property
    def ended(self) -> str | None:
        """Why the call ended; None while it goes on."""
        return next((event.reason for _, event in self.events if isinstance(event, CallEnded)), None)

    @property
    def replies(self) -> list[Said]:
        """The agent's finished replies, in order; also those of which nothing was heard."""
        said = []
        began: dict[str, float] = {}
        for at, event in self.events:
            match event:
                case ReplyStarted(response_id):
                    began[response_id] = at
                case PlayoutStarted(response_id):
                    began[response_id] = at
                case ReplyFinished(response_id, _, status, heard, unheard):
                    said.append(Said(heard, unheard, began.get(response_id, at), at, status))
        return said

    @property
    def turns(self) -> list[str]:
        """What the caller was understood to have said, one text a turn, the last wording of each."""
        turns: dict[str, str] = {}
        for event in self.of(UserTranscript):
            if event.final:
                turns[event.item_id] = event.text
        return list(turns.values())

    @property
    def heard(self) -> str:
        """All that was heard of the agent, as it was spoken."""
        return " ".join(word.text for word in self.words)

    def of(self, kind: type[T]) -> list[T]:
        """Events of one kind."""
        return [event for _, event in self.events if isinstance(event, kind)]

    def times(self, kind: type) -> list[float]:
        """When they happened, in seconds since the call began."""
        return [at for at, event in self.events if isinstance(event, kind)]

    def audible(self, start_s: float, end_s: float | None = None) -> bool:
        """Whether the agent was audible at any moment between two times."""
        end = self.now_s if end_s is None else end_s
        return any(start < end and stop > start_s for start, stop in self.sounds)

    def response_s(self) -> float:
        """From the caller's last sound or key to the agent's next sound. Raises AssertionError when there is none."""
        following = [start for start, _ in self.sounds if start >= self.last_act_s]
        assert following, f"nothing was said after {self.last_act_s:.2f} s:\n{self.transcript()}"
        return following[0] - self.last_act_s

    def transcript(self) -> str:
        """The call so far, one line a contribution, with times."""
        lines = [(at, f"caller {what}: {text}" if text else f"caller {what}") for at, what, text in self.acts]
        for said in self.replies:
            text = said.text + (f" [not heard: {said.unheard}]" if said.unheard else "")
            lines.append((said.start_s, f"agent ({said.status}): {text}"))
        for at, event in self.events:
            match event:
                case UserTranscript(_, text, True):
                    lines.append((at, f"understood: {text}"))
                case TransferRequested(to):
                    lines.append((at, f"transfer to {to}"))
                case CallFault(part, message, where):
                    lines.append((at, f"fault in {part}: {message}" + (f" at {where}" if where else "")))
                case CallEnded(reason):
                    lines.append((at, f"ended: {reason}"))
        return "\n".join(f"{at:8.2f} s  {text}" for at, text in sorted(lines, key=lambda line: line[0]))

    # -- the stage -----------------------------------------------------------------------------------------------------

    def observe(self, event: CallEvent) -> None:
        """An event of the call."""
        self.events.append((self.now_s, event))

    def tick(self) -> None:
        """20 ms pass."""
        if self.port.closed:
            frame = None
        else:
            spoken = self._line.popleft() if self._line else None
            returned = self._returning.popleft() if self._returning else None
            self.port.tick(spoken if spoken is not None else returned)
            if spoken is not None and not self._line:
                self.last_act_s = self.now_s
            frame = self.port.sent[-1]
        self._listen(frame)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _utter(self, pcm: Pcm, what: str, text: str) -> None:
        frames = -(-len(pcm) // HEARING_SAMPLES)
        padded = np.zeros(frames * HEARING_SAMPLES, np.int16)
        padded[: len(pcm)] = pcm
        self._line.extend(padded.reshape(frames, HEARING_SAMPLES))
        self._acted(what, text, after_s=len(self._line) * FRAME_S)

    def _acted(self, what: str, text: str, after_s: float = 0.0) -> None:
        at = self.now_s + after_s
        self.last_act_s = at
        self.acts.append((at, what, text))

    async def _silent(self) -> None:
        while self._line and not self.port.closed:
            await self.next_tick()

    def _listen(self, frame: Pcm | None) -> None:
        """Note what of the agent leaves now and lasts 20 ms."""
        start = self.now_s
        end = round(start + FRAME_S, 4)
        if frame is None or not frame.any():
            self._reflect(None, 0)
            return
        if self.sounds and abs(self.sounds[-1][1] - start) < FRAME_S / 2:
            self.sounds[-1] = (self.sounds[-1][0], end)
        else:
            self.sounds.append((start, end))
        number, samples = max(self.lexicon.read(frame).items(), key=lambda item: item[1], default=(0, 0))
        word = self.lexicon.word(number) if samples >= len(frame) * DOMINANT else None
        self._reflect(frame, number if word is not None else 0)
        if word is None:
            return
        if number == self._word_number:
            self.words[-1] = HeardWord(word.text, self.words[-1].start_s, end)
        else:
            self.words.append(HeardWord(word.text, start, end))
        self._word_number = number

    def _reflect(self, frame: Pcm | None, number: int) -> None:
        if self.echo is None:
            self._returning.clear()
            return
        while len(self._returning) < round(self.echo.delay_s / FRAME_S):
            self._returning.append(np.zeros(HEARING_SAMPLES, np.int16))
        if frame is None:
            self._returning.append(np.zeros(HEARING_SAMPLES, np.int16))
            return
        gain = 10 ** (self.echo.level_db / 20)
        if number == 0:
            self._returning.append(self._fit(self._resampler.push((frame * gain).astype(np.int16))))
            return
        # Resampling would cost the words; a buzz as loud carries them.
        level = float(np.sqrt(np.mean(frame.astype(np.float32) ** 2))) * gain
        own = self._voice[:HEARING_SAMPLES].astype(np.float32)
        back = (own * (level / float(np.sqrt(np.mean(own**2))))).astype(np.int16)
        self._returning.append(self.lexicon.carry(back, number))

    def _fit(self, pcm: Pcm) -> Pcm:
        """Exactly one frame: a resampler gives a sample more or less at times."""
        return np.pad(pcm[:HEARING_SAMPLES], (0, max(0, HEARING_SAMPLES - len(pcm))))
