"""Worker hosts as people and programs see them."""

from __future__ import annotations

import msgspec

__all__ = ["HostReport"]


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """One worker host that has joined the manager that leads."""

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
    python: str
    pid: int
    """Process of its agent."""
    joined_at: float
    """Epoch seconds."""
    silent_for: float
    """Seconds since it was heard of last."""
    round_trip: float | None
    """Seconds of the last sign of life and its answer; None: not known yet."""
    limits: str
    """Enforcement of memory limits there, as `Health.limits`."""
    process_limits: str
    """Protection against fork bombs there, as `Health.process_limits`."""
