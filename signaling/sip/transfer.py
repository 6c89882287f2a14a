"""REFER and its reports, both ways (RFC 3515, RFC 3891, RFC 5589). Pure.

A transfer of ours is no success before the peer's final report says so.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from signaling.sip.call_state import CallState
from signaling.sip.errors import SipError, WrongState
from signaling.sip.fields import NameAddr, Replaces, parse_name_addr
from signaling.sip.message import Response, reason_of
from signaling.sip.multipart import parts_of
from signaling.sip.protocol import TransferAsked, TransferProgressed
from signaling.sip.stack import Exchange, Indifferent
from signaling.sip.transaction.server import ServerTransaction
from signaling.sip.uri import Uri

if TYPE_CHECKING:
    from signaling.sip.call import Call

__all__ = ["TransferIn", "TransferOut"]

SIPFRAG = "message/sipfrag"
FRAG_STATUS = re.compile(rb"SIP/2\.0 ([1-6][0-9]{2})(?: |\r|\n|$)", re.IGNORECASE)
GRACE_S = 2.0
"""A subscription that ends without a final report may still be followed by the report that overtook it."""


class TransferOut:
    """Our REFER on one call."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._seq: int | None = None

    @property
    def running(self) -> bool:
        return self._seq is not None

    def begin(self, target: Uri | None, other: Call | None, now: float) -> None:
        """Send a REFER to `target`, or to the peer of `other`, whose dialog the target is to replace.

        Raises WrongState unless the call is up and no transfer runs.
        """
        self._call.need_up()
        if self._seq is not None:
            raise WrongState("transfer: another one runs")
        if other is not None:
            other.need_up()
            consulted = other.need_dialog()
            replaces = Replaces(consulted.call_id, consulted.remote.tag or "0", consulted.local.tag or "0")
            target = consulted.target.with_header("Replaces", str(replaces))
        if target is None:
            raise WrongState("transfer: a target or another call is needed")
        dialog = self._call.need_dialog()
        request = dialog.request("REFER")
        request.headers.add("Refer-To", str(NameAddr(target)))
        request.headers.add("Referred-By", str(NameAddr(dialog.local.uri)))
        self._seq = request.cseq.number
        self._call.deadlines.set("transfer", now + self._call.stack.settings.transfer_limit_s)
        self._call.send(request, self, now, contact=True)

    def on_answer(self, exchange: Exchange, response: Response, now: float) -> None:  # noqa: ARG002 - of a protocol
        """The peer takes the REFER, or not."""
        if self._seq is None or response.status < 200:
            return
        self._seq = exchange.request.cseq.number
        if response.status >= 300:
            self._finish(response.status)

    def on_notify(self, transaction: ServerTransaction, now: float) -> None:
        """A report. Raises SipError with the status that refuses it."""
        request = transaction.request
        event, _, params = (request.headers.get("Event") or "").partition(";")
        if event.strip().lower() != "refer":
            raise SipError("Event: refer was expected", status=489, headers=(("Allow-Events", "refer"),))
        found = re.search(r"id\s*=\s*([0-9]+)", params)
        mine = self._seq is not None and (found is None or found.group(1) == str(self._seq))
        if not mine:
            raise SipError("NOTIFY: no such subscription", status=481)
        status = next((_frag_status(part.body) for part in parts_of(request) if part.content_type == SIPFRAG), None)
        ended = (request.headers.get("Subscription-State") or "").lower().lstrip().startswith("terminated")
        self._call.stack.respond(transaction, 200, now)
        if status is not None and status >= 200:
            self._finish(status)
            return
        if status is not None:
            self._call.stack.tell(TransferProgressed(self._call.name, status, final=False))
        if ended:
            self._call.deadlines.set("transfer", now + GRACE_S)

    def timed_out(self, now: float) -> None:  # noqa: ARG002 - as all deadlines have it
        """No final report: the outcome is unknown, which is no success."""
        self._finish(408)

    def abandon(self) -> None:
        """The call is over, and with it the subscription."""
        if self._seq is not None:
            self._finish(487)

    def _finish(self, status: int) -> None:
        if self._seq is not None:
            self._seq = None
            self._call.deadlines.clear("transfer")
            self._call.stack.tell(TransferProgressed(self._call.name, status, final=True))


def _frag_status(body: bytes) -> int | None:
    found = FRAG_STATUS.match(body.lstrip())
    return int(found.group(1)) if found else None


class TransferIn:
    """The peer's REFER on one call: declined unless the settings allow it."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._asked: ServerTransaction | None = None
        self._subscription: int | None = None

    def on_refer(self, transaction: ServerTransaction, now: float) -> None:  # noqa: ARG002 - as all handlers have it
        """Raises SipError 603 where transfers are not allowed, 491 while another one waits."""
        request = transaction.request
        if not self._call.stack.settings.allow_refer:
            raise SipError("REFER: not allowed", status=603)
        if self._asked is not None or self._subscription is not None or self._call.state is not CallState.UP:
            raise SipError("REFER: another transfer waits", status=491)
        values = request.headers.all("Refer-To")
        if len(values) != 1:
            raise SipError("Refer-To: exactly one was expected", field="Refer-To")
        uri = parse_name_addr(values[0], "Refer-To").uri
        if uri.scheme not in ("sip", "sips", "tel"):
            raise SipError("Refer-To: sip, sips or tel was expected", status=416, field="Refer-To")
        if (uri.param("method") or "INVITE").upper() != "INVITE":
            raise SipError("Refer-To: only INVITE was expected", status=405, field="Refer-To")
        replaces = uri.header("Replaces")
        if replaces is not None:
            Replaces.parse(replaces)
        self._asked = transaction
        self._call.stack.tell(TransferAsked(self._call.name, uri.without_headers(), replaces))

    def accept(self, now: float) -> None:
        """202, and the first report. Raises WrongState when nothing was asked."""
        transaction = self._take()
        transaction.respond(self._accepted(transaction), now)
        self._subscription = transaction.request.cseq.number
        self._notify(100, now)

    def refuse(self, status: int, now: float) -> None:
        """Raises WrongState when nothing was asked."""
        self._call.stack.respond(self._take(), status, now)

    def report(self, status: int, now: float) -> None:
        """Raises WrongState when nothing was accepted."""
        if self._subscription is None:
            raise WrongState("transfer: none was accepted")
        self._notify(status, now)
        if status >= 200:
            self._subscription = None

    def abandon(self, now: float) -> None:
        """The call is over."""
        if self._asked is not None:
            self._call.stack.respond(self._take(), 481, now)

    def _take(self) -> ServerTransaction:
        if self._asked is None:
            raise WrongState("transfer: none was asked for")
        transaction, self._asked = self._asked, None
        return transaction

    def _accepted(self, transaction: ServerTransaction) -> Response:
        response = Response.to_request(transaction.request, 202)
        self._call.stack.dress(response, transaction.peer, contact=True)
        return response

    def _notify(self, status: int, now: float) -> None:
        if self._call.state is not CallState.UP:
            return
        request = self._call.need_dialog().request("NOTIFY")
        request.headers.add("Event", f"refer;id={self._subscription}")
        state = "active;expires=60" if status < 200 else "terminated;reason=noresource"
        request.headers.add("Subscription-State", state)
        request.headers.add("Content-Type", f"{SIPFRAG};version=2.0")
        request.body = f"SIP/2.0 {status} {reason_of(status)}\r\n".encode()
        self._call.send(request, Indifferent(), now, contact=True)
