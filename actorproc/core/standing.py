"""Facts about the whole manager: its epoch, its counters, its switches."""

from __future__ import annotations

from actorproc.model.policies import Quotas

__all__ = ["Standing"]

_QUOTAS = Quotas()


class Standing:
    """Part of the `Book`: the time of the event, the next numbers to give, and whether steps are handed out."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.now = 0.0
        self.batch = 1
        self.next_seq = 1
        self.next_ticket = 1
        self.dispatching = True
        self.paused: str | None = None
        """Why an operator paused the whole manager; None: it is not paused. Durable."""
        self.gated = False
        """Nothing is handed out until the gate is opened; not durable."""
        self.unattended = False
        """No class and no worker will come: what a class must be asked waits for the next manager. Not durable."""
        self.audits = 0
        """Rows of the audit log about the manager itself."""
        self.quotas = _QUOTAS
        self.stale_results = 0

    @property
    def hands_out(self) -> bool:
        """Steps may be handed out: no trouble, no pause of the whole manager, no closed gate."""
        return self.dispatching and self.paused is None and not self.gated
