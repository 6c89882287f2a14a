"""Two network namespaces with a bad network between them: the server lives in one, the caller in the other.

Needs root, iproute2 and /dev/net/tun, and says so when one is missing. Whatever happens, leaving the block ends every
process in the namespaces and removes them; what a killed run left behind is removed by the next one.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self, TypeVar

import pytest

from tests.e2e.link import Counts, LinkSettings

T = TypeVar("T")

PREFIX = "rejoinder"
SERVER_ADDRESS, CALLER_ADDRESS = "10.77.0.1", "10.77.0.2"
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
NAMESPACES = Path("/run/netns")
_numbers = itertools.count()


def in_namespace(namespace: str, work: Callable[[], T]) -> T:
    """What `work` returns when it is run inside the namespace, in a thread of its own (setns(2) is per thread)."""
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            with (NAMESPACES / namespace).open() as file:
                if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
            outcome.append(work())
        except BaseException as exc:
            failure.append(exc)

    thread = threading.Thread(target=run, name=f"in {namespace}")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


class Network:
    """A context manager. `server` and `caller` are the namespaces' names."""

    def __init__(self) -> None:
        run = f"{os.getpid()}-{next(_numbers)}"
        self.server = f"{PREFIX}-server-{run}"
        self.caller = f"{PREFIX}-caller-{run}"
        self._devices: list[int] = []
        self._link: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            pytest.fail("network namespaces need root: run these tests as root (sudo make test)")
        if shutil.which("ip") is None:
            pytest.fail("`ip` is missing: run bash tests/install_peers.sh, or install iproute2")
        if not Path("/dev/net/tun").exists():
            pytest.fail("/dev/net/tun is missing: load the kernel's tun module (modprobe tun)")
        _sweep()
        try:
            for name, address in ((self.server, SERVER_ADDRESS), (self.caller, CALLER_ADDRESS)):
                self._add(name, address)
            self._link = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("link.py")), *map(str, self._devices)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=self._devices,
                text=True,
            )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in (self.caller, self.server):
            _remove(name)
        if self._link is not None:
            assert self._link.stdin is not None
            self._link.stdin.close()
            try:
                self._link.wait(5)
            except subprocess.TimeoutExpired:
                self._link.kill()
                self._link.wait()
            assert self._link.stdout is not None
            self._link.stdout.close()
        for device in self._devices:
            os.close(device)

    def _add(self, name: str, address: str) -> None:
        _ip("netns", "add", name)
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        self._devices.append(device)
        request = struct.pack("16sH22x", b"rejoinder%d", IFF_TUN | IFF_NO_PI)
        interface = fcntl.ioctl(device, TUNSETIFF, request)[:16].rstrip(b"\0").decode()
        # A device keeps its descriptor when it moves: this process stays at the other end of it.
        _ip("link", "set", interface, "netns", name)
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", interface)
        _ip("-n", name, "link", "set", interface, "up")

    def set(self, settings: LinkSettings) -> None:
        """Change the network from here on."""
        self._tell(vars(settings))

    def counts(self) -> tuple[Counts, Counts]:
        """What the link did with packets from the server, and from the caller."""
        self._tell({"counts": True})
        assert self._link is not None
        assert self._link.stdout is not None
        from_server, from_caller = json.loads(self._link.stdout.readline())
        return Counts(**from_server), Counts(**from_caller)

    def kill_caller(self) -> None:
        """Every process of the caller's side, at once and without goodbye."""
        _kill(self.caller)

    def chromium(self, folder: Path) -> Path:
        """A program that starts Chromium on the caller's side."""
        path = folder / "chromium"
        path.write_text(f'#!/bin/sh\nexec ip netns exec {self.caller} /usr/bin/chromium "$@"\n')
        path.chmod(0o755)
        return path

    def _tell(self, message: dict[str, object]) -> None:
        assert self._link is not None
        assert self._link.stdin is not None
        self._link.stdin.write(json.dumps(message) + "\n")
        self._link.stdin.flush()


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20)
    if done.returncode:
        pytest.fail(f"`ip {' '.join(words)}` failed: {done.stderr.strip()}")
    return done.stdout


def _kill(namespace: str) -> None:
    """The processes in a namespace of ours; nobody else's can be there."""
    for _ in range(50):
        done = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, timeout=20)
        pids = [int(pid) for pid in done.stdout.split()]
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _remove(namespace: str) -> None:
    if (NAMESPACES / namespace).exists():
        _kill(namespace)
        subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, timeout=20)


def _sweep() -> None:
    """Namespaces of runs that were killed."""
    for path in NAMESPACES.glob(f"{PREFIX}-*-*-*") if NAMESPACES.exists() else ():
        owner = path.name.split("-")[2]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            _remove(path.name)
