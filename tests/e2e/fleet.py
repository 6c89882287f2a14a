"""What the tests of several workers share: who is where, and callers over WebRTC."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiortc import RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack

from tests.e2e.support import Server


def workers(server: Server) -> dict[int, int]:
    """Process ids by worker number."""
    return workers_of(server.process.pid)


def workers_of(pid: int) -> dict[int, int]:
    """Process ids by worker number of a supervisor."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            words = (path / "cmdline").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if parent == pid and b"signaling.workers.worker" in words:
            found[int(words[words.index(b"signaling.workers.worker") + 1])] = int(path.name)
    return found


def alive(pid: int) -> bool:
    """False for a process that is gone or only waits for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def overview(server: Server) -> dict[int, dict[str, Any]]:
    """What the server says of each worker."""
    return {one["worker"]: one for one in json.loads(server.get("/healthz"))["workers"]}


def calls(server: Server) -> dict[int, int]:
    """Calls by worker."""
    return {number: int(one["calls"]) for number, one in overview(server).items()}


async def eventually(condition: Any, what: str, seconds: float = 15.0) -> None:
    """Wait for the server, from a test whose callers must go on meanwhile."""
    until = asyncio.get_running_loop().time() + seconds
    while not await asyncio.to_thread(condition):
        if asyncio.get_running_loop().time() > until:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(0.05)


async def make_late(pid: int, until: asyncio.Event) -> None:
    """Stop and resume a process again and again: its media clock is 130 ms late each time."""
    try:
        while not until.is_set():
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(0.15)
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(0.1)
    finally:
        os.kill(pid, signal.SIGCONT)


@dataclass
class RtcCall:
    """A call of aiortc's own peer connection, as a browser would make it."""

    server: Server
    http: aiohttp.ClientSession
    peer: RTCPeerConnection
    id: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    frames: int = 0
    """Audio frames received."""
    status: int = 0
    extra: dict[str, Any] = field(default_factory=dict)
    """Further fields of the offer."""
    answer: dict[str, Any] = field(default_factory=dict)
    _hearing: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"{self.server.url}/v1/calls/{self.id}"

    def auth(self, token: str = "") -> dict[str, str]:
        return {"Authorization": f"Bearer {token or self.server.token}"}

    async def open(self) -> None:
        """Offer, answer, connected."""
        self.peer.addTrack(AudioStreamTrack())
        self.channel = self.peer.createDataChannel("oai-events")
        self.channel.on("message", lambda text: self.events.append(json.loads(text)))
        self.peer.on("track", self._hear)
        await self.peer.setLocalDescription(await self.peer.createOffer())
        offer = {"type": "offer", "sdp": self.peer.localDescription.sdp, **self.extra}
        async with self.http.post(f"{self.server.url}/v1/calls", json=offer, headers=self.auth()) as response:
            self.status = response.status
            assert response.status == 201, await response.text()
            self.answer = answer = await response.json()
            assert response.headers["Location"] == f"/v1/calls/{answer['id']}"
        self.id = answer["id"]
        await self.peer.setRemoteDescription(RTCSessionDescription(answer["sdp"], "answer"))
        await self.until(lambda: self.events and self.frames > 10, "connected and heard")

    def _hear(self, track: Any) -> None:
        async def listen() -> None:
            while True:
                await track.recv()
                self.frames += 1

        self._hearing = asyncio.create_task(listen())

    async def until(self, condition: Any, what: str, seconds: float = 15.0) -> None:
        limit = asyncio.get_running_loop().time() + seconds
        while not condition():
            if asyncio.get_running_loop().time() > limit:
                raise AssertionError(f"not within {seconds:g} s: {what}; {self.events[-3:]}")
            await asyncio.sleep(0.02)

    async def ask(self, text: str, expected: str) -> None:
        """Type a question, and wait for an answer with these words."""
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        self.channel.send(json.dumps({"type": "conversation.item.create", "item": item}))
        kind = "response.output_audio_transcript.done"
        await self.until(
            lambda: any(e["type"] == kind and expected in e["transcript"].lower() for e in self.events),
            f"an answer with {expected!r}",
        )

    async def close(self) -> None:
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.gather(self._hearing, return_exceptions=True)
        await self.peer.close()


@asynccontextmanager
async def rtc_call(server: Server, **extra: Any) -> AsyncIterator[RtcCall]:
    """A connected call over WebRTC, with further fields in its offer."""
    async with aiohttp.ClientSession() as http:
        call = RtcCall(server, http, RTCPeerConnection(), extra=extra)
        try:
            await call.open()
            yield call
        finally:
            await call.close()
