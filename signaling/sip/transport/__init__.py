"""Sockets under the SIP core (RFC 3261 section 18): UDP, TCP and TLS. No SIP logic lives here."""
