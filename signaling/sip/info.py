"""Key presses as INFO (the forms that telephones use: application/dtmf-relay and application/dtmf). Pure."""

from __future__ import annotations

import re

from agent.media.dtmf import DIGITS
from signaling.sip.dialog import Dialog
from signaling.sip.errors import SipError
from signaling.sip.message import Request
from signaling.sip.multipart import parts_of

__all__ = ["digit_of", "info_request"]

DEFAULT_MS = 160
MAX_MS = 10_000
SIGNAL = re.compile(r"^signal\s*=\s*([0-9A-Da-d*#]|1[0-5])\s*$", re.IGNORECASE | re.MULTILINE)
DURATION = re.compile(r"^duration\s*=\s*([0-9]{1,5})\s*$", re.IGNORECASE | re.MULTILINE)


def digit_of(request: Request) -> tuple[str, int] | None:
    """The digit and its duration in ms. None: an INFO without a body or of another package.

    Raises SipError 400 on a malformed key press, 415 on another type of body that has no package (RFC 6086).
    """
    parts = parts_of(request)
    for part in parts:
        text = part.body.decode("ascii", "replace").replace("\r", "\n")
        if part.content_type == "application/dtmf-relay":
            signal, duration = SIGNAL.search(text), DURATION.search(text)
            if signal is None:
                raise SipError("INFO: `Signal=digit` was expected", field="Signal")
            return _digit(signal.group(1)), _duration(duration.group(1) if duration else "")
        if part.content_type == "application/dtmf":
            if not re.fullmatch(r"\s*([0-9A-Da-d*#]|1[0-5])\s*", text):
                raise SipError("INFO: one digit was expected", field="body")
            return _digit(text.strip()), DEFAULT_MS
    if parts and "Info-Package" not in request.headers:
        accept = (("Accept", "application/dtmf-relay, application/dtmf"),)
        raise SipError("INFO: a key press was expected", status=415, headers=accept)
    return None


def _digit(text: str) -> str:
    # 10 and 11 are event codes that some senders put there (RFC 4733 section 3.2).
    return DIGITS[int(text)] if len(text) == 2 else text.upper()


def _duration(text: str) -> int:
    return min(max(int(text or DEFAULT_MS), 1), MAX_MS)


def info_request(dialog: Dialog, digit: str, duration_ms: int) -> Request:
    """One key press. Raises ValueError on a character that is no digit."""
    if len(digit) != 1 or digit.upper() not in DIGITS:
        raise ValueError(f"digit: one of {DIGITS} was expected")
    request = dialog.request("INFO")
    request.headers.add("Content-Type", "application/dtmf-relay")
    request.body = f"Signal={digit.upper()}\r\nDuration={duration_ms}\r\n".encode()
    return request
