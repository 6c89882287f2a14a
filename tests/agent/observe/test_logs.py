import io
import json
import logging
from collections.abc import Iterator

import pytest

from agent.errors import EngineError
from agent.observe.logs import call_logger, configure


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_lines_carry_the_call_and_the_extras() -> None:
    out = io.StringIO()
    configure(json=True, level="info", stream=out)
    call_logger("call_1").info("turn done", extra={"response_ms": 412.5})
    (line,) = lines(out)
    assert line["call_id"] == "call_1"
    assert line["response_ms"] == 412.5
    assert line["message"] == "turn done"
    assert line["level"] == "info"
    assert str(line["ts"]).endswith("Z")


def test_a_foreign_exceptions_text_is_left_out_and_ours_is_kept() -> None:
    out = io.StringIO()
    configure(json=True, stream=out)
    log = logging.getLogger("x")
    try:
        raise KeyError("my card number is 1234")
    except KeyError:
        log.exception("hook failed")
    try:
        raise EngineError("queue is full")
    except EngineError:
        log.exception("engine failed")
    assert "1234" not in out.getvalue()
    foreign, ours = (line["exception"] for line in lines(out))
    assert isinstance(foreign, dict)
    assert isinstance(ours, dict)
    assert foreign["type"] == "KeyError"
    assert "test_logs.py" in foreign["at"][-1]
    assert ours["text"] == "queue is full"


def test_audio_and_long_values_never_reach_the_log() -> None:
    out = io.StringIO()
    configure(json=True, stream=out)
    logging.getLogger("x").warning("odd", extra={"pcm": b"\x01\x02" * 400, "text": "word " * 1000})
    (line,) = lines(out)
    assert line["pcm"] == "<800 bytes>"
    assert len(str(line["text"])) < 250


def test_text_stays_one_line_whatever_a_peer_sent() -> None:
    out = io.StringIO()
    configure(json=False, stream=out)
    logging.getLogger("x").warning("bad header", extra={"name_sent": "a\nERROR forged\x1b[2J"})
    assert out.getvalue().count("\n") == 1
    assert "\\n" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_the_level_holds_and_peers_libraries_are_quiet() -> None:
    out = io.StringIO()
    configure(json=True, level="warning", stream=out)
    logging.getLogger("agent").info("no")
    configure(json=True, level="debug", stream=out)
    logging.getLogger("aiortc.rtcpeerconnection").debug("v=0 ...")
    logging.getLogger("aiohttp.access").info("GET /v1/stream?token=secret")
    assert out.getvalue() == ""


def test_off_a_terminal_the_default_is_json() -> None:
    out = io.StringIO()
    configure(stream=out)
    logging.getLogger("x").info("hello")
    assert lines(out)[0]["message"] == "hello"


def test_an_unknown_level_says_which_there_are() -> None:
    with pytest.raises(ValueError, match="debug, info, warning"):
        configure(level="loud")


def test_a_message_that_floods_is_thinned_out_and_counted() -> None:
    out = io.StringIO()
    now = 0.0
    configure(json=True, stream=out, clock=lambda: now)
    log = logging.getLogger("x")
    for number in range(1000):
        log.error("socket.accept() out of system resource", extra={"number": number})
    log.error("something else")
    now = 1.5
    log.error("socket.accept() out of system resource")
    log.error("socket.accept() out of system resource")
    told = lines(out)
    assert [line["message"] for line in told[:50]] == ["socket.accept() out of system resource"] * 50
    assert [line["message"] for line in told[50:]] == ["something else"] + [told[0]["message"]] * 2
    assert [line.get("left_out") for line in told[50:]] == [None, 950, None]
