"""SRTP with keys out of the signalling (RFC 3711, RFC 4568), by libsrtp."""

from __future__ import annotations

from pylibsrtp import Error, Policy, Session

from agent.media.rtp_session import SrtpKey

__all__ = ["Cipher"]

PROFILES = {
    "AES_CM_128_HMAC_SHA1_80": Policy.SRTP_PROFILE_AES128_CM_SHA1_80,
    "AES_CM_128_HMAC_SHA1_32": Policy.SRTP_PROFILE_AES128_CM_SHA1_32,
}


class Cipher:
    """Both directions of one call. Both keys, or none: then packets pass as they are.

    Args:
        send: our key.
        receive: the peer's.
    """

    def __init__(self, send: SrtpKey | None, receive: SrtpKey | None) -> None:
        self.keys = (send, receive)
        self._send = _session(send, Policy.SSRC_ANY_OUTBOUND)
        self._receive = _session(receive, Policy.SSRC_ANY_INBOUND)

    def protect(self, packet: bytes) -> bytes:
        """RTP to SRTP."""
        return packet if self._send is None else bytes(self._send.protect(packet))

    def protect_rtcp(self, packet: bytes) -> bytes:
        """RTCP to SRTCP."""
        return packet if self._send is None else bytes(self._send.protect_rtcp(packet))

    def unprotect(self, packet: bytes) -> bytes | None:
        """SRTP to RTP; None for what is not the peer's, or came twice."""
        try:
            return packet if self._receive is None else bytes(self._receive.unprotect(packet))
        except Error:
            return None

    def unprotect_rtcp(self, packet: bytes) -> bytes | None:
        """SRTCP to RTCP, or None."""
        try:
            return packet if self._receive is None else bytes(self._receive.unprotect_rtcp(packet))
        except Error:
            return None


def _session(key: SrtpKey | None, which: int) -> Session | None:
    if key is None:
        return None
    policy = Policy(key=key.key, ssrc_type=which, srtp_profile=PROFILES[key.suite])
    # A packet that is sent again with the same sequence number is none of ours; libsrtp would refuse it otherwise.
    policy.allow_repeat_tx = True
    return Session(policy=policy)
