"""Certificate of a leader: made at its start, or the user's, whose files are watched."""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
import os
import ssl
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from actorproc.errors import EngineError

if TYPE_CHECKING:
    from cryptography import x509

__all__ = ["Credentials", "FileCertificate", "LinkCertificate", "made_credentials"]

logger = logging.getLogger("actorproc")

_LIVES = dt.timedelta(days=3650)
"""Life of a certificate that is made at a start. It is pinned, and its key goes with the process."""
_SKEW = dt.timedelta(days=2)
"""A certificate holds from so long ago: clocks of machines differ."""


@dataclass(frozen=True)
class Credentials:
    """A certificate with its key, ready for new links."""

    context: ssl.SSLContext
    pin: bytes
    """SHA-256 of the certificate."""
    ends: dt.datetime
    """Time until which it is valid."""

    @property
    def days_left(self) -> float:
        """Days for which the certificate is still valid; negative: it has ended."""
        return (self.ends - dt.datetime.now(dt.UTC)) / dt.timedelta(days=1)


class LinkCertificate:
    """A certificate that stays the same: one that was made at this start.

    Args:
        credentials: The certificate with its key.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def current(self) -> Credentials:
        """The certificate for the next link."""
        return self._credentials

    @property
    def days_left(self) -> float | None:
        """Days for which it is still valid; None: it goes with this process."""
        return None


class FileCertificate(LinkCertificate):
    """A certificate in files of the user's, which may be replaced at any time (`Config.tls`).

    Links that stand go on with the old one. A pair of files that cannot be used is warned of, and the old one is used.

    Args:
        certificate: File of the certificate and its chain, PEM.
        key: File of its key, PEM, without a password.
        publish: Called with the pin of a new certificate before the first link shows it; what it raises leaves the old
            one in use.

    Raises:
        EngineError: The files cannot be used.
    """

    def __init__(self, certificate: str, key: str, publish: Callable[[bytes], None] | None = None) -> None:
        self._files = (certificate, key)
        self._lock = threading.Lock()
        self.publish = publish
        self._seen = self._look()
        super().__init__(_from_files(*self._files))

    def current(self) -> Credentials:
        with self._lock:
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self._renew()
            return self._credentials

    @property
    def days_left(self) -> float | None:
        """Days for which the certificate of new links is still valid; negative: it has ended."""
        return self.current().days_left

    def _renew(self) -> None:
        try:
            new = _from_files(*self._files)
            if new.pin != self._credentials.pin and self.publish is not None:
                self.publish(new.pin)
        except Exception as error:  # noqa: BLE001 - whatever it is, links go on with the certificate that works
            self._seen = ()  # and the next link tries again
            logger.warning("the new certificate %s is not used yet: %s", self._files[0], error)
        else:
            self._credentials = new
            logger.info("new links show the new certificate of %s", self._files[0])

    def _look(self) -> tuple[tuple[int, ...], ...]:
        found: list[tuple[int, ...]] = []
        for file in self._files:
            try:
                status = os.stat(file)  # noqa: PTH116 - as it is given
            except OSError:
                found.append(())
            else:
                found.append((status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)


def made_credentials(name: str) -> Credentials:
    """A new certificate (P-256, signed by itself) whose key never leaves this process.

    Args:
        name: Name of this machine, for those who look at the certificate.

    Returns:
        The certificate with its key.

    Raises:
        EngineError: The package `cryptography` is missing.
    """
    try:
        from cryptography import x509  # noqa: PLC0415 - an extra, and slow to load
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as above
        from cryptography.x509.oid import NameOID  # noqa: PLC0415 - as above
    except ImportError as error:
        raise _missing() from error
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64] or "actorproc")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIVES)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with tempfile.TemporaryDirectory(prefix="actorproc-") as directory:  # OpenSSL reads keys from files only
        file = Path(directory) / "link.pem"
        file.touch(mode=0o600)
        file.write_bytes(secret + certificate.public_bytes(serialization.Encoding.PEM))
        context = _server_context(os.fspath(file), os.fspath(file))
    return _credentials(context, certificate)


def _from_files(certificate: str, key: str) -> Credentials:
    try:
        from cryptography import x509  # noqa: PLC0415 - an extra, and slow to load
    except ImportError as error:
        raise _missing() from error
    try:
        shown = x509.load_pem_x509_certificate(Path(certificate).read_bytes())
        context = _server_context(certificate, key)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        msg = f"Config.tls: the certificate {certificate} with the key {key} cannot be used: {error}"
        raise EngineError(msg) from error
    return _credentials(context, shown)


def _credentials(context: ssl.SSLContext, certificate: x509.Certificate) -> Credentials:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - loaded by the caller

    der = certificate.public_bytes(serialization.Encoding.DER)
    return Credentials(context, hashlib.sha256(der).digest(), certificate.not_valid_after_utc)


def _server_context(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # a link is never resumed
    context.load_cert_chain(certificate, key, password=_no_password)
    return context


def _no_password() -> str:
    """OpenSSL would ask the terminal."""
    raise ValueError("the key has a password; store it without one, readable by this user only")


def _missing() -> EngineError:
    return EngineError("links between machines need the package cryptography: pip install 'actorproc[postgres]'")
