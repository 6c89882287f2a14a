"""The torture messages of RFC 4475, byte for byte."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(os.environ.get("REJOINDER_SIP") or Path(__file__).parents[4] / "shared" / "sip") / "rfc4475"

TAKEN = (
    "wsinv intmeth esc01 escnull esc02 lwsdisp longreq dblreq semiuri transports mpart01 unreason noreason "
    "badbranch insuf unkscm novelsc unksm2 bext01 invut regaut01 multi01 mcl01 bcast zeromf cparam01 cparam02 regescrt "
    "sdp01 inv2543"
).split()
"""Can be read; some are refused for what they ask (see SERVED)."""

REFUSED = {
    "badinv01": 400,
    "clerr": 400,
    "ncl": 400,
    "scalar02": 400,
    "scalarlg": 400,
    "quotbal": 400,
    "ltgtruri": 400,
    "lwsruri": 400,
    "lwsstart": 400,
    "trws": 400,
    "escruri": 400,
    "baddate": 400,
    "regbadct": 400,
    "badaspec": 400,
    "baddn": 400,
    "badvers": 505,
    "mismatch01": 400,
    "mismatch02": 400,
    "bigcode": 400,
    "test": 400,
}
"""Cannot be read, and the code of the refusal; responses among them are dropped."""

UNANSWERED = ("scalarlg", "bigcode", "bcast", "unreason", "noreason", "test")
"""Responses, and what has no Via to copy: nothing may be sent for them."""

SERVED = {
    "wsinv": 481,
    "intmeth": 501,
    "esc01": 100,
    "escnull": 405,
    "esc02": 501,
    "lwsdisp": 200,
    "longreq": 100,
    "dblreq": 405,
    "semiuri": 200,
    "transports": 200,
    "mpart01": 405,
    "badbranch": 200,
    "insuf": 400,
    "unkscm": 416,
    "novelsc": 416,
    "unksm2": 405,
    "bext01": 420,
    "invut": 415,
    "regaut01": 405,
    "multi01": 400,
    "mcl01": 400,
    "zeromf": 200,
    "cparam01": 405,
    "cparam02": 405,
    "regescrt": 405,
    "sdp01": 100,
    "inv2543": 400,
}
"""How a user agent meets each request it can read. We are no registrar: REGISTER is not allowed here. Max-Forwards 0
concerns proxies only; wsinv has a To tag, so it belongs to a call that does not exist; inv2543
has no Contact, which no answer could do without."""


def message(name: str) -> bytes:
    return (FOLDER / f"{name}.dat").read_bytes()


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.dat"))
