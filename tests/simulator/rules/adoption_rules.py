"""Promises about hosts that are not the manager's own: what a change of leaders, and the loss of a host, cost.

A step that a live host has in hand goes on when the leader changes, and its answer counts (31). One that was lost with
its host is charged with no error and no crash for that (32).
"""

from __future__ import annotations

from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.messages.outcomes import Failed, Refused, Stopped
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.slots import host_of
from actorproc.model.states import TERMINAL
from actorproc.testing.histories.evidence import Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["AdoptionRules", "LossRules"]


class AdoptionRules(Judge):
    """Judges by what began on other hosts than the manager's, and whether anything has ended it there."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.alive: dict[str, StepToken] = {}
        """Steps that run on a host, or have ended there well, by procedure."""
        self.unknown: tuple[str, ...] = ()
        """Types that the present leader did not know when it began."""

    def on_enter(self, token: StepToken, *_: object) -> None:
        before = self.alive.pop(token.procedure, None)
        if before is not None and (before.step, before.mode) == (token.step, token.mode) and token != before:
            self.say(31, f"{token} runs again, although nothing has ended {before} or lost its answer")
        head = self.facts.heads.get(token.procedure)
        is_known = head is not None and head.type_name not in self.unknown
        if host_of(token.worker.slot) and token.mode is not Mode.ASK_ABORT and is_known:
            self.alive[token.procedure] = token

    def on_exit(self, token: StepToken, unit: str | None, outcome: object) -> None:
        del unit
        head = self.facts.heads.get(token.procedure)
        # An answer of a later generation is not taken over: one of an earlier may bear the same numbers.
        if isinstance(outcome, (Failed, Refused, Stopped)) or (head is not None and head.generation > 1):
            self._over(token)

    def on_cut(self, token: StepToken) -> None:
        self._over(token)

    def on_worker_died(self, worker: WorkerId) -> None:
        self.alive = {id: token for id, token in self.alive.items() if token.worker != worker}

    def on_worker_left(self, worker: WorkerId) -> None:
        self.on_worker_died(worker)

    def on_worker_gone(self, worker: WorkerId, _with_host: bool) -> None:
        self.on_worker_died(worker)

    def on_host_lost(self, name: str, _steps: int) -> None:
        """None of its workers has joined the leader."""
        self.alive = {id: token for id, token in self.alive.items() if f"h{host_of(token.worker.slot)}" != name}

    def on_unregistered(self, *types: str) -> None:
        """A leader that does not know a class takes none of its steps over."""
        self.unknown = types
        heads = self.facts.heads
        self.alive = {id: token for id, token in self.alive.items() if heads[id].type_name not in types}

    def on_host_died(self) -> None:
        self.unknown = ()

    def on_head(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        """An answer that asked for what the engine refuses counts as an error; a retry or a generation begins anew."""
        if before is not None and (
            (record.errors, record.run, record.generation) != (before.errors, before.run, before.generation)
        ):
            self.alive.pop(record.id, None)

    def on_removed(self, id: str) -> None:
        self.alive.pop(id, None)

    def _over(self, token: StepToken) -> None:
        if self.alive.get(token.procedure) == token:
            del self.alive[token.procedure]


class LossRules(Judge):
    """Judges by what was sent to the workers of a host when that was lost, and the counters of its next head."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.in_hand: dict[str, StepToken] = {}
        """Steps that were sent to other hosts and have no end that the manager knows, by procedure."""
        self.lost: dict[str, StepToken] = {}
        """Those that were lost with their hosts, until the procedure's next step is sent."""

    def on_sent(self, token: StepToken, *_: object) -> None:
        self.lost.pop(token.procedure, None)
        self.in_hand.pop(token.procedure, None)
        if host_of(token.worker.slot) and token.mode is not Mode.ASK_ABORT:
            self.in_hand[token.procedure] = token

    def on_exceeded(self, token: StepToken) -> None:
        """Its host has said so, before it was lost."""
        if self.in_hand.get(token.procedure) == token:
            del self.in_hand[token.procedure]

    def on_worker_gone(self, worker: WorkerId, with_host: bool) -> None:
        for id, token in list(self.in_hand.items()):
            if token.worker == worker:
                del self.in_hand[id]
                if with_host:
                    self.lost[id] = token

    def on_head(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        token = self.lost.get(record.id)
        if token is None or before is None:
            return
        if (record.run, record.generation, record.step) != (before.run, before.generation, before.step):
            del self.lost[record.id]
        elif record.host_losses == 0 and (record.errors, record.crashes) > (before.errors, before.crashes):
            self.say(32, f"{token} was lost with its host, and charged with it")
            del self.lost[record.id]
        elif record.state in TERMINAL:
            del self.lost[record.id]

    def on_host_died(self) -> None:
        self.lost.clear()

    def on_removed(self, id: str) -> None:
        self.in_hand.pop(id, None)
        self.lost.pop(id, None)
