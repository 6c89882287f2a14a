"""Certificates for links between machines: read once, checked before anything listens or connects."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from agent.errors import ConfigError

__all__ = ["TlsFiles"]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. A core needs certificate and key; with `ca` it also asks every edge for a certificate (mutual TLS).
    An edge needs `ca`; with certificate and key it shows its own."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str = ""
    """Edge: the name in the core's certificate, where it is not the host of the address."""

    @property
    def given(self) -> bool:
        """Whether TLS is wanted."""
        return any((self.ca, self.certificate, self.key))

    def read(self, *, core: bool) -> tuple[bytes | None, bytes | None, bytes | None]:
        """CA, key and certificate as PEM.

        Raises ConfigError: a file is missing, unreadable or no PEM, or key and certificate do not fit.
        """
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("core.tls_certificate and core.tls_key are set together or not at all")
        if core and self.certificate is None:
            raise ConfigError("core.tls_certificate: a core that listens with TLS needs one")
        if not core and self.ca is None:
            raise ConfigError("core.tls_ca: needed to know the core by")
        ca = _read("core.tls_ca", self.ca)
        key = _read("core.tls_key", self.key)
        certificate = _read("core.tls_certificate", self.certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (ssl.SSLError, OSError) as exc:
            raise ConfigError(f"core.tls_key: does not fit core.tls_certificate, or is no PEM ({exc})") from exc
        try:
            if ca is not None:
                context.load_verify_locations(cadata=ca.decode("ascii", "replace"))
        except ssl.SSLError as exc:
            raise ConfigError(f"core.tls_ca: holds no certificate in PEM ({exc})") from exc
        return ca, key, certificate


def _read(setting: str, path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"{setting}: cannot read {path} ({exc.strerror})") from exc
