"""Worker hosts as people and programs see them."""

from __future__ import annotations

from typing import Any

import msgspec

from actorproc.model.plain import plain_dict

__all__ = ["HOST_STATES", "HostInfo"]

HOST_STATES = ("joined", "draining", "silent")
"""Values of `HostInfo.state`."""


class HostInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One worker host that has joined the manager that leads, as shown by `ProcedureManager.hosts()`."""

    name: str
    """Its name in reports, such as ``h3``."""
    number: int
    machine: str
    """The name that it gave itself: its host name, unless another was given."""
    address: str
    state: str
    """joined, draining, or silent while its link is broken."""
    workers: int
    """Workers that live there, or are on their way."""
    busy: int
    """Workers there that have a step in hand."""
    labels: tuple[str, ...]
    resources: dict[str, float]
    code: str
    """Revision of the code that it gave; empty: files are compared."""
    other_code: tuple[str, ...]
    """Names of types of which it has other code than the manager, and so runs no steps."""
    python: str
    pid: int
    """Process of its agent."""
    joined_at: float
    """Epoch seconds."""
    silent_for: float
    """Seconds since it was heard of last."""
    round_trip: float | None
    """Seconds of the last sign of life and its answer; None: not known yet."""
    outstanding: int
    """Bytes that were sent to it, or wait for it, and that it has not acknowledged."""
    resumes: int
    """Number of times that its link was resumed."""
    limits: str
    """Enforcement of memory limits there, as `Health.limits`."""
    process_limits: str
    """Protection against fork bombs there, as `Health.process_limits`."""
    variables: dict[str, str]
    """Values of ``OMP_NUM_THREADS`` and ``CUDA_VISIBLE_DEVICES`` where they are set: launchers do that, and steps find
    them."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)

    def in_words(self) -> str:
        """The host as messages name it."""
        return f"{self.name} ({self.machine})"
