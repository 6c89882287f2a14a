"""TLS for SIP (RFC 3261 section 26.3.1, RFC 5922): 1.2 and up, peers verified."""

from __future__ import annotations

import ssl
from pathlib import Path

from agent.errors import ConfigError

__all__ = ["client_context", "server_context"]


def server_context(certificate: Path, key: Path | None = None) -> ssl.SSLContext:
    """For connections to us. Raises ConfigError when the files cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as exc:
        raise ConfigError(f"sip.tls_certificate: no usable certificate and key ({type(exc).__name__})") from exc
    return context


def client_context(authorities: Path | None = None) -> ssl.SSLContext:
    """For connections of ours: the name in the certificate must be the host we call.

    Args:
        authorities: PEM file of those we trust; None: the system's. Raises ConfigError when it cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=str(authorities) if authorities is not None else None)
    except (OSError, ssl.SSLError) as exc:
        raise ConfigError(f"sip.tls_authorities: not a PEM file of certificates ({type(exc).__name__})") from exc
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
