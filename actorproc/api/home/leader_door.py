"""The door of a manager that leads a shared store: opened for one term, and named in the leader's row."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from actorproc.config import Config
from actorproc.control.link_door import LinkEntrance
from actorproc.store.shared import SharedStore
from actorproc.workers.link.addresses import address_text, local_address_towards, parsed_address, published_address
from actorproc.workers.link.certificates import Credentials, FileCertificate, LinkCertificate, made_credentials
from actorproc.workers.link.handshake import LinkRole
from actorproc.workers.link.listener import LinkListener

__all__ = ["made_in_advance", "open_door"]

_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - told apart, not listened on by itself


def made_in_advance(config: Config) -> Credentials | None:
    """A certificate for the next term, as to make one takes a tenth of a second; None: the user has given one.

    Args:
        config: The settings of the manager.

    Returns:
        The certificate.

    Raises:
        EngineError: The package `cryptography` is missing.
    """
    return None if config.tls is not None or not config.control else made_credentials(socket.gethostname())


def open_door(
    config: Config,
    store: SharedStore,
    database: str,
    credentials: Credentials | None,
    newer: Callable[[int], object],
) -> LinkEntrance | None:
    """Listen, and have the store name the place. Clients that come meanwhile wait until the manager has started.

    Args:
        config: The settings of the manager.
        store: The store, not owned yet.
        database: URL of the database; the default address is the one by which this machine reaches it.
        credentials: The certificate; None: that of `Config.tls`.
        newer: Called with the highest epoch that a client has seen.

    Returns:
        The entrance; None: `Config.control` lets no process in.

    Raises:
        EngineError: It cannot listen there, or the certificate cannot be used.
    """
    if not config.control:
        return None
    towards = local_address_towards(_host_of(database))
    host, port = parsed_address(config.listen) if config.listen is not None else (towards, 0)
    secret = secrets.token_bytes(32)
    certificate: LinkCertificate
    if config.tls is not None:
        certificate = FileCertificate(*config.tls)
    else:
        assert credentials is not None
        certificate = LinkCertificate(credentials)
    listener = LinkListener(
        host, port, certificate=certificate, secret=secret, silence=config.lease, roles=frozenset(LinkRole)
    )
    shown = towards if host in _EVERYWHERE else host, listener.port
    if config.advertise is not None:
        shown = parsed_address(config.advertise, listener.port)
    address = published_address(*shown)
    if isinstance(certificate, FileCertificate):
        certificate.publish = lambda pin: store.show_door(address, pin, secret)
    store.show_door(address, certificate.current().pin, secret)
    words = f"the door at {address_text(host, listener.port)}"
    return LinkEntrance(listener, newer, words, lambda: not store.has_lapsed)


def _host_of(url: str) -> str:
    """The first host of a URL of a database; "": a socket of this machine."""
    place = urlsplit(url).netloc.rpartition("@")[2].partition(",")[0]
    try:
        return parsed_address(place)[0] if place else ""
    except ValueError:
        return ""
