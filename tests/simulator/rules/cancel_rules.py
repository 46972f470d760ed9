"""Promises to running steps: told at once when their undo is decided, and killed for it, or by operators, at no charge (22)."""

from __future__ import annotations

from typing import Any

from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.messages.outcomes import Stopped
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.slots import host_of
from actorproc.testing.histories.evidence import Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["BY_OPERATOR", "CancelRules"]

BY_OPERATOR = "killed by operator"
"""Reason of a kill that an operator asked for."""
_FORWARD = frozenset({Mode.EXECUTE, Mode.ON_TIMEOUT})


class CancelRules(Judge):
    """Judges by the commits what workers are told of an abort, and which of their steps are killed for one."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.in_hand: dict[str, StepToken] = {}
        """Steps that were sent and have not ended, by procedure."""
        self.told: set[StepToken] = set()
        self.to_tell: dict[StepToken, None] = {}
        """Steps whose undo a commit decided; they are told before the next one."""
        self.killed: dict[str, StepToken] = {}
        """Steps killed for an abort, or by an operator, until their procedure's next step is sent."""
        self.why: dict[str, str] = {}
        """Reason of each of these kills, in words."""
        self.ending: set[StepToken] = set()
        """Steps in hand that were killed, for whatever reason: there is no more to tell them."""

    # ------------------------------------------------------------ steps
    def on_sent(self, token: StepToken, record: int, warm: bool) -> None:
        del record, warm
        self.in_hand[token.procedure] = token
        self.killed.pop(token.procedure, None)

    def on_exit(self, token: StepToken, unit: str | None, outcome: Any) -> None:
        del unit
        self._over(token)
        if isinstance(outcome, Stopped):
            return  # for that it was cancelled
        if self.killed.get(token.procedure) == token:  # its answer came before the kill: it may be an error
            del self.killed[token.procedure]

    def on_cut(self, token: StepToken) -> None:
        if not host_of(token.worker.slot):
            self._over(token)

    def on_returned(self, token: StepToken) -> None:
        self._over(token)

    def on_worker_died(self, worker: WorkerId) -> None:
        """A worker of the manager's own machine has died; of another one it hears later (`on_worker_gone`)."""
        if not host_of(worker.slot):
            self._over_on(worker)

    def on_host_lost(self, name: str, _steps: int) -> None:
        """For the manager its steps have ended, whatever becomes of them there."""
        for token in [token for token in self.in_hand.values() if f"h{host_of(token.worker.slot)}" == name]:
            self._over(token)

    def on_worker_left(self, worker: WorkerId) -> None:
        self.on_worker_died(worker)

    def on_worker_gone(self, worker: WorkerId, _with_host: bool) -> None:
        """The manager hears of the death of a worker on another host, to which it may have sent steps meanwhile."""
        self._over_on(worker)

    def _over_on(self, worker: WorkerId) -> None:
        for token in [token for token in self.in_hand.values() if token.worker == worker]:
            self._over(token)

    def on_host_died(self) -> None:
        self.in_hand.clear()
        self.told.clear()
        self.to_tell.clear()
        self.killed.clear()
        self.ending.clear()

    def _over(self, token: StepToken) -> None:
        if self.in_hand.get(token.procedure) == token:
            del self.in_hand[token.procedure]
        self.told.discard(token)
        self.ending.discard(token)
        self.to_tell.pop(token, None)

    # ------------------------------------------------------------ what they are told
    def on_ask_abort(self, token: StepToken) -> None:
        self.told.add(token)
        self.to_tell.pop(token, None)
        head = self.facts.heads.get(token.procedure)
        if token.mode is Mode.ROLLBACK:
            self.say(22, f"{token} undoes, and was told of an abort")
        elif head is not None and self._is_beyond(head, token):
            self.say(22, f"{token} is past the point of no return, and was told of an abort")

    def on_kill(self, token: StepToken, reason: str) -> None:
        if self.in_hand.get(token.procedure) == token:
            self.ending.add(token)
        if reason == BY_OPERATOR and self.in_hand.get(token.procedure) == token:
            self.killed[token.procedure] = token
            self.why[token.procedure] = "by an operator"
        if reason != "aborted by force" and "abort_grace" not in reason:
            return
        head = self.facts.heads.get(token.procedure)
        if token.mode is Mode.ROLLBACK:
            self.say(22, f"{token} undoes, and was killed: {reason}")
        elif head is not None and self._is_beyond(head, token):
            self.say(22, f"{token} is past the point of no return, and was killed: {reason}")
        elif token.mode in _FORWARD and self.in_hand.get(token.procedure) == token:
            if token not in self.told:
                self.say(22, f"{token} was killed and had not been told: {reason}")
            self.killed[token.procedure] = token
            self.why[token.procedure] = "for an abort"

    def _is_beyond(self, head: ProcedureRecord, token: StepToken) -> bool:
        """A step that declares the point of no return; its own head says so as long as it is not answered."""
        return token.mode is Mode.EXECUTE and head.unit_no_return and head.step == token.step

    # ------------------------------------------------------------ commits
    def on_head(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        token = self.in_hand.get(record.id)
        if token is not None and record.rolling and (before is None or not before.rolling):
            is_meant = token.mode in _FORWARD and not record.bypassing and not self._is_beyond(record, token)
            if is_meant and token not in self.told | self.ending:
                self.to_tell[token] = None
        if record.id in self.killed and before is not None:
            if (record.errors, record.crashes) > (before.errors, before.crashes):
                self.say(22, f"{self.killed[record.id]} was killed {self.why[record.id]}, and charged with it")
            if record.undoing or record.run > before.run:
                del self.killed[record.id]

    def on_commit_begins(self) -> None:
        """Check that the decisions of the commits before have been acted on."""
        for token in self.to_tell:
            self.say(22, f"{token} runs, its undo is decided, and it was not told")
        self.to_tell.clear()

    def on_removed(self, id: str) -> None:
        self.killed.pop(id, None)
