"""Promises to async steps: beside each other as many as may be and no plain ones, and none is charged for another (36)."""

from __future__ import annotations

from typing import Any

from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.outcomes import Stopped
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.slots import host_of
from actorproc.testing.histories.evidence import Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["TaskRules"]


class TaskRules(Judge):
    """Judges by what is sent to workers, and by what commits charge after one of them has died."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.most: dict[StepToken, int] = {}
        """How many steps may run beside an async one, itself included."""
        self.in_hand: dict[WorkerId, dict[StepToken, None]] = {}
        """Steps that were sent and have not ended, by worker."""
        self.blamed: dict[WorkerId, StepToken] = {}
        """The step for which a worker is being killed."""
        self.innocent: dict[str, StepToken] = {}
        """Steps that ended with a worker that died in the hands of others, by procedure."""

    # ------------------------------------------------------------ steps
    def on_task(self, token: StepToken, most: int) -> None:
        """Comes before ``sent``."""
        self.most[token] = most

    def on_sent(self, token: StepToken, record: int, warm: bool) -> None:
        del record, warm
        self.innocent.pop(token.procedure, None)
        beside = self.in_hand.setdefault(token.worker, {})
        if token in beside:
            return  # once more, with its state
        most = [self.most.get(one, 0) for one in (*beside, token)]
        beside[token] = None
        if max(most) <= 1:
            return  # one after the other
        if min(most) <= 1:
            self.say(36, f"{token} was sent to a worker that has {[*beside][:-1]}, and not all are async steps")
        elif len(most) > min(most):
            self.say(
                36, f"{token} was sent to a worker that has {len(most) - 1}, and {min(most)} may run there at once"
            )

    def on_exit(self, token: StepToken, unit: str | None, outcome: Any) -> None:
        del unit
        self._over(token)
        if isinstance(outcome, Stopped) and self.most.get(token) is None:
            self.say(36, f"{token} is no async step, and was cancelled")

    def on_returned(self, token: StepToken) -> None:
        self._over(token)

    def on_kill(self, token: StepToken, reason: str) -> None:
        del reason
        self.blamed[token.worker] = token

    def on_worker_died(self, worker: WorkerId) -> None:
        steps = self.in_hand.pop(worker, {})
        blamed = self.blamed.pop(worker, None)
        tasks = [token for token in steps if self.most.get(token, 0) > 1]
        if len(tasks) > 1:
            self.innocent |= {token.procedure: token for token in tasks if token != blamed}

    def on_worker_left(self, worker: WorkerId) -> None:
        self.in_hand.pop(worker, None)
        self.blamed.pop(worker, None)

    def on_host_died(self) -> None:
        """Workers end with the manager, but for those of other hosts; it charges nothing for what it does not see."""
        self.in_hand = {worker: steps for worker, steps in self.in_hand.items() if host_of(worker.slot)}
        self.innocent.clear()

    def on_host_lost(self, name: str, _steps: int) -> None:
        for worker in [worker for worker in self.in_hand if f"h{host_of(worker.slot)}" == name]:
            del self.in_hand[worker]

    def on_claimed(self, number: int, _keep: object, adopted: tuple[StepToken, ...]) -> None:
        """A leader has let a host in: of its workers' steps it knows those that it takes over; others never came."""
        for worker, steps in self.in_hand.items():
            if host_of(worker.slot) == number:
                self.in_hand[worker] = {token: None for token in steps if token in adopted}

    def _over(self, token: StepToken) -> None:
        self.in_hand.get(token.worker, {}).pop(token, None)

    # ------------------------------------------------------------ commits
    def on_head(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        token = self.innocent.get(record.id)
        if token is not None and before is not None and record.crashes > before.crashes:
            self.say(36, f"{token} was charged with the death of a worker in which other async steps ran")

    def on_removed(self, id: str) -> None:
        self.innocent.pop(id, None)
