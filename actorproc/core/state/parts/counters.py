"""Counters: the next numbers to give, and how often something happened."""

from __future__ import annotations

__all__ = ["CoreCounters"]


class CoreCounters:
    """Part of the `EngineState`: numbers that only grow."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        """The life of the manager. It is another one after each start, and stays while it lasts."""
        self.batch = 1
        """The batch that decisions go into now."""
        self.next_seq = 1
        self.next_ticket = 1
        self.audits = 0
        """Rows of the audit log about the manager itself."""
        self.stale_results = 0
        """Answers that were dropped because their token was not current."""

    def restore(self, next_seq: int, next_ticket: int, audits: int) -> None:
        """Go on counting where the store says."""
        self.next_seq = next_seq
        self.next_ticket = next_ticket
        self.audits = audits

    def take_seq(self) -> int:
        """The number of a new procedure, in the order of submits."""
        given = self.next_seq
        self.next_seq = given + 1
        return given

    def take_ticket(self) -> int:
        """The number of a new lock request."""
        given = self.next_ticket
        self.next_ticket = given + 1
        return given

    def take_audit(self) -> int:
        """The number of a new row of the audit log about the manager itself."""
        self.audits += 1
        return self.audits

    def count_stale(self) -> None:
        """Count an answer that is dropped."""
        self.stale_results += 1

    def seal(self) -> int:
        """Decisions go into the next batch; the number of the one before."""
        self.batch += 1
        return self.batch - 1
