"""`rejoinder core` and an edge that cannot start: one line each, exit code 2."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cli import run
from agent.core.address import parse_core_address
from agent.core.link import Link
from agent.core.linking import LinkOptions, listening
from agent.core.messages import Hello


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--shard", "asr:en"], "core.listen: expected at least one address"),
        (["--listen", "unix:{folder}/c", "--metrics", ""], "core.shards: expected at least one"),
        (["--shard", "asr", "--listen", "unix:{folder}/c"], "core.shards: Value error, expected asr:LANGUAGE"),
        (["--shard", "asr:en", "--listen", "udp:1"], "core.listen: Value error, expected shm:/PATH"),
        (["--shard", "asr:en", "--listen", "shm:/nowhere/c"], "there is no folder /nowhere"),
        (["--shard", "asr:en", "--listen", "tcp://0.0.0.0:0"], "reaches other machines: set tls_ca"),
        (["--shard", "asr:en", "--listen", "tcp://127.0.0.1:{port}"], "cannot listen on 127.0.0.1:{port}: it is taken"),
        (["--shard", "asr:en", "--listen", "unix:{folder}/c", "--metrics", "127.0.0.1:{port}"], "is taken by another"),
        (["--shard", "asr:en", "--listen", "unix:{folder}/c", "--metrics", "9464"], "expected HOST:PORT"),
        (["--shard", "asr:xx", "--listen", "unix:{folder}/c", "--metrics", ""], "core.shards: asr:xx: language:"),
        (
            ["--shard", "tts:nobody", "--listen", "unix:{folder}/c", "--metrics", ""],
            "core.shards: tts:nobody: tts.voice",
        ),
    ],
)
def test_a_wrong_core_is_one_line_and_code_2(
    arguments: list[str], says: str, tmp_path: Path, taken: int, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["core", "--log-level", "error", *(text.format(folder=tmp_path, port=taken) for text in arguments)]
    assert run(command) == 2
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert says.format(port=taken) in told.err


def test_a_core_of_another_version_is_one_line_and_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    listens, over = threading.Event(), threading.Event()
    address = parse_core_address(f"shm:{tmp_path}/core")

    async def serve() -> None:
        links: asyncio.Queue[Link] = asyncio.Queue()
        async with listening(address, LinkOptions(), links.put_nowait, lambda _: True):
            listens.set()
            link = await asyncio.wait_for(links.get(), 60)
            await link.welcome(Hello("core", version=9), 60)
            await asyncio.to_thread(over.wait, 60)
            await link.close()

    other = threading.Thread(target=asyncio.run, args=(serve(),))
    other.start()
    try:
        assert listens.wait(20)
        monkeypatch.setenv("REJOINDER_CORE__URL", str(address))
        assert run(["serve", "--port", "0", "--log-level", "error"]) == 2
    finally:
        over.set()
        other.join(60)
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert "core protocol 9, this side 1: run the same version of Rejoinder on both" in told


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("shm:{folder}/none", "No such file or directory; start `rejoinder core`"),
        ("unix:{folder}/none", "no core answers there"),
        ("tcp://127.0.0.1:1", "no core answers there"),
        ("tcp://203.0.113.1:1", "reaches other machines"),
        ("inproc:", "leave core.url empty"),
        ("http://core", "core.url: Value error, expected shm:/PATH"),
    ],
)
def test_an_edge_without_its_core_is_one_line_and_code_2(
    url: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REJOINDER_CORE__URL", url.format(folder=tmp_path))
    assert run(["serve", "--port", "0", "--log-level", "error"]) == 2
    told = capfd.readouterr()
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert says in told.err
