"""Digest authentication, both sides (RFC 3261 section 22, RFC 7616, RFC 8760). Pure.

MD5 is what most trunks have; SHA-256 is used where the challenge names it. A server challenges with both, the stronger
first, and counts nonces so that nothing can be replayed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from signaling.sip.errors import SipError
from signaling.sip.grammar import QUOTED, TOKEN, quote, split, unquote

__all__ = ["Account", "Challenge", "DigestClient", "DigestServer", "Proof", "digest_response", "parse_digest"]

HASHES: dict[str, Callable[[bytes], str]] = {
    "md5": lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest(),
    "sha-256": lambda data: hashlib.sha256(data).hexdigest(),
}
STRONGEST_FIRST = ("sha-256", "sha-256-sess", "md5", "md5-sess")
NONCE_S = 60.0
"""A nonce is good this long for its first use; after that the client is told `stale` and asks anew unnoticed."""
MAX_NONCES = 10_000
"""Of which the highest count is remembered."""
MAX_PARTS = 32
NC = re.compile(r"[0-9a-fA-F]{8}")
HEX = re.compile(r"[0-9a-fA-F]{32,64}")


@dataclass(frozen=True, slots=True)
class Account:
    """A name and its password at a realm."""

    username: str
    password: str = field(repr=False)
    hosts: tuple[str, ...] = ()
    """Who may ask for it beside the outbound proxy, or the host a call was dialled at, as requests are sent there."""


def parse_digest(value: str, header: str) -> dict[str, str]:
    """The parameters of a Digest challenge or of Digest credentials, names in lower case, values unquoted.

    Raises SipError 400 when malformed; returns {} for another scheme, which is to be ignored.
    """
    scheme, _, rest = value.strip().partition(" ")
    if scheme.lower() != "digest":
        return {}
    found: dict[str, str] = {}
    parts = split(rest, ",")
    if len(parts) > MAX_PARTS:
        raise SipError(f"{header}: over {MAX_PARTS} parameters", field=header)
    for part in parts:
        name, equals, text = part.partition("=")
        name, text = name.strip().lower(), text.strip()
        if not equals or not TOKEN.fullmatch(name) or name in found:
            raise SipError(f"{header}: `name=value`, each once, was expected", field=header)
        if text.startswith('"') and not QUOTED.fullmatch(text):
            raise SipError(f"{header}: malformed quoted string", field=header)
        found[name] = unquote(text)
    return found


def digest_response(
    account: Account, params: dict[str, str], method: str, body: bytes, *, realm: str | None = None
) -> str:
    """The `response` value for credentials `params` (RFC 7616 section 3.4.1). Raises SipError on an unknown algorithm.

    Args:
        params: algorithm, nonce, uri, and with qop also nc and cnonce.
    """
    algorithm = params.get("algorithm", "MD5").lower()
    base = algorithm.removesuffix("-sess")
    if base not in HASHES:
        raise SipError("algorithm: MD5 or SHA-256 was expected", field="Authorization")

    def digest(text: str) -> str:
        return HASHES[base](text.encode("utf-8", "surrogateescape"))

    ha1 = digest(f"{account.username}:{params['realm'] if realm is None else realm}:{account.password}")
    if algorithm.endswith("-sess"):
        ha1 = digest(f"{ha1}:{params['nonce']}:{params.get('cnonce', '')}")
    qop = params.get("qop", "").lower()
    a2 = f"{method}:{params['uri']}"
    if qop == "auth-int":
        a2 += ":" + HASHES[base](body)
    if not qop:
        return digest(f"{ha1}:{params['nonce']}:{digest(a2)}")
    return digest(f"{ha1}:{params['nonce']}:{params['nc']}:{params['cnonce']}:{qop}:{digest(a2)}")


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a server asks for (RFC 7616 section 3.3)."""

    realm: str
    nonce: str
    algorithm: str = "MD5"
    qop: tuple[str, ...] = ()
    opaque: str | None = None
    stale: bool = False

    @classmethod
    def parse(cls, value: str, header: str) -> Challenge | None:
        """None for one we cannot answer: another scheme, algorithm or qop. Raises SipError when malformed."""
        params = parse_digest(value, header)
        if not params:
            return None
        if "realm" not in params or "nonce" not in params:
            raise SipError(f"{header}: realm and nonce are required", field=header)
        algorithm = params.get("algorithm", "MD5")
        qop = tuple(word.strip().lower() for word in params.get("qop", "").split(",") if word.strip())
        if algorithm.lower() not in STRONGEST_FIRST or (qop and not {"auth", "auth-int"} & set(qop)):
            return None
        stale = params.get("stale", "").lower() == "true"
        return cls(params["realm"], params["nonce"], algorithm, qop, params.get("opaque"), stale)


class DigestClient:
    """Answers challenges with one account; counts its uses of each nonce."""

    def __init__(self, account: Account, *, make_cnonce: Callable[[], str] = lambda: secrets.token_hex(8)) -> None:
        self._account = account
        self._make_cnonce = make_cnonce
        self._nonce = ""
        self._count = 0

    def choose(self, values: Iterable[str], header: str) -> Challenge | None:
        """The strongest challenge we can answer. Raises SipError when one is malformed."""
        found = [challenge for value in values if (challenge := Challenge.parse(value, header)) is not None]
        return min(found, key=lambda challenge: STRONGEST_FIRST.index(challenge.algorithm.lower()), default=None)

    def authorize(self, challenge: Challenge, method: str, uri: str, body: bytes) -> str:
        """The value of Authorization or Proxy-Authorization."""
        if challenge.nonce != self._nonce:
            self._nonce, self._count = challenge.nonce, 0
        self._count += 1
        params = {"username": self._account.username, "realm": challenge.realm, "nonce": challenge.nonce, "uri": uri}
        params["algorithm"] = challenge.algorithm
        if challenge.qop:
            params["qop"] = "auth" if "auth" in challenge.qop else "auth-int"
            params["nc"] = f"{self._count:08x}"
            params["cnonce"] = self._make_cnonce()
        params["response"] = digest_response(self._account, params, method, body)
        if challenge.opaque is not None:
            params["opaque"] = challenge.opaque
        bare = ("algorithm", "qop", "nc")
        return "Digest " + ", ".join(f"{k}={v if k in bare else quote(v)}" for k, v in params.items())


class Proof(Enum):
    """What came of credentials."""

    GOOD = auto()
    MISSING = auto()
    """None for our realm."""
    STALE = auto()
    """Right, but the nonce is used up: challenge again, with stale=true."""
    WRONG = auto()


class DigestServer:
    """Challenges callers and checks what they answer.

    Args:
        realm: ours.
        password_of: password of a user, or None. Unknown users cost the same time as known ones.
        secret: signs nonces; None makes a new one.
    """

    def __init__(self, realm: str, password_of: Callable[[str], str | None], *, secret: bytes | None = None) -> None:
        self.realm = realm
        self._password_of = password_of
        self._secret = secret or secrets.token_bytes(32)
        self._counts: OrderedDict[str, int] = OrderedDict()

    def challenges(self, now: float, *, stale: bool = False) -> list[str]:
        """Values of WWW-Authenticate, one an algorithm, the stronger first (RFC 8760 section 2.4)."""
        values = []
        for algorithm in ("SHA-256", "MD5"):
            nonce = self._nonce(now)
            extra = ", stale=true" if stale else ""
            values.append(
                f'Digest realm={quote(self.realm)}, nonce="{nonce}", algorithm={algorithm}, qop="auth,auth-int"{extra}'
            )
        return values

    def check(self, values: Iterable[str], method: str, uri: str, body: bytes, now: float) -> tuple[Proof, str]:
        """Judge the Authorization fields of a request: what they prove, and the user's name.

        Args:
            uri: the request URI; credentials for another one do not count.
        """
        for value in values:
            try:
                params = parse_digest(value, "Authorization")
            except SipError:
                return Proof.WRONG, ""
            if params.get("realm") == self.realm:
                return self._judge(params, method, uri, body, now), params.get("username", "")
        return Proof.MISSING, ""

    def _judge(self, params: dict[str, str], method: str, uri: str, body: bytes, now: float) -> Proof:
        qop = params.get("qop", "").lower()
        needed = ["username", "nonce", "uri", "response"] + (["nc", "cnonce"] if qop else [])
        age = self._age(params.get("nonce", ""), now)
        if age is None:
            # A nonce of another process or of before a restart: let the client try again with a new one. Nor may a
            # forged source address earn somebody a ban: who has a nonce of ours does receive what we send.
            return Proof.STALE
        if any(name not in params for name in needed) or qop not in ("", "auth", "auth-int"):
            return Proof.WRONG
        if params["uri"] != uri or not HEX.fullmatch(params["response"]):
            return Proof.WRONG
        if qop and not NC.fullmatch(params["nc"]):
            return Proof.WRONG
        password = self._password_of(params["username"])
        account = Account(params["username"], secrets.token_hex(8) if password is None else password)
        try:
            wanted = digest_response(account, params, method, body)
        except SipError:
            return Proof.WRONG
        right = hmac.compare_digest(wanted, params["response"].lower())
        if password is None or not right:
            return Proof.WRONG
        if age > NONCE_S:
            return Proof.STALE
        count = int(params["nc"], 16) if qop else 1
        if count <= self._counts.get(params["nonce"], 0):
            return Proof.STALE
        self._counts[params["nonce"]] = count
        self._counts.move_to_end(params["nonce"])
        while len(self._counts) > MAX_NONCES:
            self._counts.popitem(last=False)
        return Proof.GOOD

    def _nonce(self, now: float) -> str:
        stamp = f"{int(now * 1000):012x}{secrets.token_hex(4)}"
        return stamp + self._sign(stamp)

    def _sign(self, stamp: str) -> str:
        return hmac.new(self._secret, stamp.encode(), hashlib.sha256).hexdigest()[:32]

    def _age(self, nonce: str, now: float) -> float | None:
        stamp, signature = nonce[:20], nonce[20:]
        try:
            good = hmac.compare_digest(self._sign(stamp), signature)
            made = int(stamp[:12], 16) / 1000
        except (TypeError, ValueError, UnicodeError):
            return None
        return now - made if good else None
