"""Admission of hosts: what a host and the manager that leads must have in common."""

from __future__ import annotations

import sys

from actorproc.model.slots import MOST_WORKERS
from actorproc.workers.hosts.handshake import HOST_PROTOCOL, HostHello, HostRefused

__all__ = ["refusal_of"]


def refusal_of(hello: HostHello, epoch: int) -> HostRefused | None:
    """The refusal of a host that does not fit; None: it may join. Other code is none: such a host waits.

    Args:
        hello: Its first message.
        epoch: Epoch of the manager.
    """
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if hello.protocol != HOST_PROTOCOL:
        why = (
            f"it speaks version {hello.protocol} of the protocol of hosts (actorproc {hello.version}), and the "
            f"manager version {HOST_PROTOCOL}; use the same version of actorproc on both"
        )
        return HostRefused(why, "protocol", final=True)
    if hello.python != python:
        why = f"it runs Python {hello.python}, and the manager Python {python}; use the same version on both"
        return HostRefused(why, "python", final=True)
    if hello.epoch > epoch:
        return HostRefused(f"it has seen epoch {hello.epoch}, and this manager leads with {epoch}", "epoch")
    if not 0 <= hello.workers <= MOST_WORKERS:
        why = f"it offers {hello.workers} workers; 0 to {MOST_WORKERS} are allowed"
        return HostRefused(why, "workers", final=True)
    return None
