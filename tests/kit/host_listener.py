"""A listener through which hosts join a pool, as the door of a manager that leads has it."""

from __future__ import annotations

import contextlib
import secrets
import threading
from typing import Any

from actorproc.workers.link.certificates import LinkCertificate, made_credentials
from actorproc.workers.link.handshake import LinkRole
from actorproc.workers.link.listener import LinkGuest, LinkListener, dial
from actorproc.workers.link.stream import LinkStream

__all__ = ["HostListener", "certificate"]

_CERTIFICATE: list[LinkCertificate] = []


def certificate() -> LinkCertificate:
    """The certificate of all listeners of this process."""
    if not _CERTIFICATE:
        _CERTIFICATE.append(LinkCertificate(made_credentials("here")))
    return _CERTIFICATE[0]


class HostListener:
    """Lets hosts into a pool.

    Args:
        pool: The pool, a `HostedPool`.
        patience: Seconds of silence of a host.
    """

    def __init__(self, pool: Any, patience: float) -> None:
        self.pool = pool
        self.secret = secrets.token_bytes(32)
        self.listener = LinkListener(
            "127.0.0.1",
            0,
            certificate=certificate(),
            secret=self.secret,
            silence=patience,
            roles=frozenset({LinkRole.HOST}),
        )
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                guest = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._let_in, args=(guest,), daemon=True).start()

    def _let_in(self, guest: LinkGuest) -> None:
        with contextlib.suppress(OSError):
            self.pool.come(guest.admit(), guest.address)

    def dial(self, port: int | None = None) -> LinkStream:
        """Connect as a host."""
        return dial(
            "127.0.0.1",
            port or self.listener.port,
            secret=self.secret,
            pin=certificate().current().pin,
            role=LinkRole.HOST,
            epoch=0,
            name="here",
            within=3,
        )

    def close(self) -> None:
        """Let no more hosts in."""
        self.listener.close()
