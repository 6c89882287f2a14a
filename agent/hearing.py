"""What a call hears: the listener's segments and the recogniser's readings, as events of the turn and of the client."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Protocol

import numpy as np

from agent.asr.protocol import Recognizer
from agent.config import ListeningSettings
from agent.conversation import protocol as turns
from agent.conversation.machine import TurnMachine
from agent.ear import Ear
from agent.errors import EngineError
from agent.events import CallEvent, SpeechStarted, SpeechStopped, UserTranscript
from agent.listening.listener import Heard, Listener, VoiceAudio, VoiceLong, VoiceStarted, VoiceStopped
from agent.listening.silero import VadEngine
from agent.listening.sound import TurnSound
from agent.media.frames import FRAME_MS, HEARING_SAMPLES, Pcm

__all__ = ["Hearing", "HearingHost", "new_item_id"]

FINAL_DEADLINE_S = 8.0
"""The turn machine gives a final up before this; the limit only makes sure that no task stays."""

LAST_WORDS_S = 1.0
"""Whoever hangs up in mid-sentence does not wait; the transcript does, this long."""

SETTLE_FRAMES = 10
"""Silence beyond `listening.stop_ms` after which the detector has surely closed a segment."""


def new_item_id() -> str:
    """An id for a contribution to the conversation."""
    return f"item_{uuid.uuid4().hex[:16]}"


class HearingHost(Protocol):
    """What hearing needs of its call. All are called on the event loop."""

    def feed(self, event: turns.Event) -> None:
        """An event for the turn machine."""

    def emit(self, event: CallEvent) -> None:
        """An event for the client."""

    def fault(self, part: str, error: BaseException) -> None:
        """The recogniser failed; the call goes on."""

    def unanswered_item(self) -> str:
        """The caller's item whose answer is not audible yet; speech now goes on with it. Empty for none."""
        ...


class Hearing:
    """One caller's ear.

    Args:
        settings: thresholds and durations.
        recognizer, vad: the process's engines.
        machine: decides what belongs to which turn.
        host: the call.
        language: BCP 47 tag of the caller.
        now: the call's clock in seconds.
        sound: judges the turn's sound at each pause; None for endpoints that do not ask for it.
    """

    def __init__(
        self,
        settings: ListeningSettings,
        recognizer: Recognizer,
        vad: VadEngine,
        machine: TurnMachine,
        host: HearingHost,
        *,
        language: str,
        now: Callable[[], float],
        sound: TurnSound | None = None,
    ) -> None:
        self.item_id = ""
        """The caller's contribution that is being heard; empty between contributions."""
        self.shown = ""
        """What of it the client was shown and has not got as a final."""
        self._settings = settings
        self._machine = machine
        self._host = host
        self._now = now
        self._ear = Ear(recognizer, language)
        self._listener = Listener(settings, vad, self._on_heard)
        self._sound = sound
        self._final_ms: float | None = None

    @property
    def language(self) -> str:
        """BCP 47 tag; a change takes effect with the next turn."""
        return self._ear.language

    @language.setter
    def language(self, tag: str) -> None:
        self._ear.language = tag

    def take(self, pcm: Pcm) -> None:
        """The next 20 ms, int16 [320] at 16 kHz. Raises MediaError on any other shape."""
        self._listener.feed(pcm)
        self._show_partial()

    def fall_silent(self) -> None:
        """The caller was cut off in mid-speech: close the segment as if they had paused."""
        if self._listener.speaking_ms:
            for _ in range(self._settings.stop_ms // FRAME_MS + SETTLE_FRAMES):
                self._listener.feed(np.zeros(HEARING_SAMPLES, np.int16))

    def forget(self) -> None:
        """What was heard is used up or was noise: the next speech is read afresh."""
        self._ear.reset()
        if self._sound is not None:
            self._sound.clear()
        self.shown = ""

    def take_final_ms(self) -> float | None:
        """How long the last final took, once."""
        final_ms, self._final_ms = self._final_ms, None
        return final_ms

    async def read_final(self, final_id: int) -> None:
        """Read all of the turn, and feed FinalHeard or FinalFailed; beside it judge the sound, and feed SoundJudged."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._read(final_id))
            if self._sound is not None:
                both.create_task(self._judge_sound(final_id, self._sound))

    async def _judge_sound(self, final_id: int, sound: TurnSound) -> None:
        probability = await sound.judge()
        if probability is not None:
            self._host.feed(turns.SoundJudged(final_id, probability))

    async def _read(self, final_id: int) -> None:
        asked_at = self._now()
        try:
            async with asyncio.timeout(FINAL_DEADLINE_S):
                final = await self._ear.final()
        except (EngineError, TimeoutError) as exc:
            # A reading that was overtaken (its stream closed under it) failed nobody.
            if self._machine.awaits(final_id):
                self._host.fault("asr", exc)
                self._host.feed(turns.FinalFailed(final_id))
            return
        if self._machine.awaits(final_id):
            self._final_ms = (self._now() - asked_at) * 1000
            if final.sound is not None:
                # Judged beside the reading, in the recogniser's process.
                self._host.feed(turns.SoundJudged(final_id, final.sound))
            self._host.feed(turns.FinalHeard(final_id, final.text, final.confidence, final.end_of_turn))

    async def last_words(self, continues: str) -> None:
        """The caller is gone: read what was said and never answered into the transcript, or what was shown of it.

        Args:
            continues: the beginning of the same turn, if that was asked already.
        """
        spoken_ms = self._machine.caller.speech_ms + self._listener.speaking_ms
        if not self._ear.open or not (self.shown or spoken_ms >= self._settings.min_segment_ms):
            return
        text = self.shown
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                text = (await self._ear.final()).text or text
        except (EngineError, TimeoutError) as exc:
            self._host.fault("asr", exc)
        finally:
            if text and not self._machine.hears_itself(text):
                self._open_item()
                self._host.emit(UserTranscript(self.item_id, f"{continues} {text}".strip(), final=True))
            self.shown = ""

    def close(self) -> None:
        """Stop; what was shown and never answered still belongs to the transcript."""
        if self.shown:
            self._host.emit(UserTranscript(self.item_id, self.shown, final=True))
        self._listener.close()
        self._ear.reset()

    def _on_heard(self, heard: Heard) -> None:
        audio_ms = self._listener.audio_ms
        match heard:
            case VoiceStarted(start_ms, pcm, repeated):
                self._open_item()
                if self._sound is not None:
                    self._sound.begin(pcm, repeated)
                try:
                    self._ear.begin(pcm, repeated)
                except EngineError as exc:
                    self._host.fault("asr", exc)
                self._host.emit(SpeechStarted(self.item_id, start_ms))
                self._host.feed(turns.VoiceBegan(audio_ms - start_ms))
            case VoiceAudio(pcm):
                self._ear.push(pcm)
                if self._sound is not None:
                    self._sound.push(pcm)
            case VoiceStopped(end_ms, speech_ms):
                self._host.emit(SpeechStopped(self.item_id, end_ms))
                self._host.feed(turns.VoiceEnded(audio_ms - end_ms, speech_ms))
            case VoiceLong():
                # The recogniser cuts long segments itself; the turn's own limit is the turn machine's.
                pass

    def _show_partial(self) -> None:
        news = self._ear.news()
        if news is None:
            return
        # While an answer is about to begin it is open whether this goes on with that turn; the next reading tells.
        if news.stable and news.stable != self.shown and self._machine.state is not turns.State.THINKING:
            self.shown = news.stable
            self._open_item()
            text = f"{self._machine.continues} {news.stable}".strip()
            self._host.emit(UserTranscript(self.item_id, text, final=False))
        self._host.feed(turns.PartialHeard(news.text, news.stable))

    def _open_item(self) -> None:
        if not self.item_id:
            self.item_id = self._host.unanswered_item() or new_item_id()
