"""Promises about undo: strictly newest first, none skipped, none a second time after its record (11)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from actorproc.model.ids import Mode, StepToken
from actorproc.model.messages.outcomes import Advanced, Finished
from actorproc.model.rows.records import ProcedureRecord, StepKind, StepRecord, UndoRecord
from actorproc.model.states import ProcedureState
from actorproc.testing.histories.evidence import Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["UndoRules"]


class UndoRules(Judge):
    """Judges each undo unit when it is given up."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.tops: dict[tuple[str, int], str | None] = {}
        """Scope in which the undoing of a unit was begun."""
        self.unscoped: dict[tuple[str, int], str] = {}
        """Units begun to be undone in this commit, and whose, before the head that begins their scope was read."""
        self.begun: dict[tuple[str, int], str] = {}
        self.failed_now: set[str] = set()
        """Units whose undoing began in this commit, and whose; tops of the scopes that began in it."""
        self.renewed: set[str] = set()
        """Procedures that began a generation in this commit: the units of the last one are given up unrun."""
        self.placed: dict[str, tuple[int, int]] = {}
        """Step and attempt of a procedure that new code placed before another step."""
        self.placed_now: set[str] = set()
        self.undone: set[tuple[str, str | None]] = set()
        self.gone: set[tuple[str, str | None]] = set()
        """Units whose removal is durable."""
        self.skipped: list[tuple[str, str | None, str]] = []
        """Units of this commit that a best-effort rollback left behind, and the top of its scope at that time."""

    def on_enter(self, token: StepToken, unit: str | None, *_: object) -> None:
        if token.mode is Mode.ROLLBACK and (token.procedure, unit) in self.gone:
            self.say(11, f"{token} undoes {unit!r} again after its record")

    def on_exit(self, token: StepToken, unit: str | None, outcome: Any) -> None:
        if token.mode is Mode.ROLLBACK and isinstance(outcome, Finished):
            self.undone.add((token.procedure, unit))
        if isinstance(outcome, Advanced) and outcome.placed:
            self.placed[token.procedure] = token.step, token.attempt

    def on_record(self, record: StepRecord, before: StepRecord | None) -> None:
        if record.outcome == "again":
            self.renewed.add(record.procedure)
        elif record.outcome == "placed":
            self.placed_now.add(record.procedure)
        if before is None and record.kind is StepKind.ROLLBACK and record.outcome == "skipped":
            self.undone.add((record.procedure, record.label))
            # A later decision of the same commit may widen the scope: its top has left nothing behind.
            top = self._top_of(record.procedure) or record.procedure
            self.skipped.append((record.procedure, record.label, top))

    def on_committed(self) -> None:
        for id, label, top in self.skipped:
            for place in {id, top} & self.facts.heads.keys():
                listed = [(left.procedure, left.unit) for left in self.facts.heads[place].leftovers]
                if (id, label) not in listed:
                    self.say(11, f"the undo {label!r} of {id} was skipped and {place} does not list it")
        for unit, id in self.begun.items():
            widest = self.tops.get(unit)
            if widest is not None and widest in self.failed_now:
                self.tops[unit] = self._inner_scope(id, widest)
        self.skipped.clear()
        self.unscoped.clear()
        self.begun.clear()
        self.failed_now.clear()
        self.renewed.clear()
        self.placed_now.clear()

    def _inner_scope(self, id: str, top: str) -> str:
        """The scope an undo was handed out in when that of `top`, which failed in the same commit, took over after it.

        Of the inner one nothing is left but the error of its own, which is not the one that `top` failed with.
        """
        error = self.facts.heads[top].error
        culprit = None if error is None else error.procedure
        for name in self.facts.line(id):
            own = self.facts.heads[name].error
            if name == top or (own is not None and own.kind != "cancelled" and own.procedure != culprit):
                return name
        return top

    def on_head(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        if record.undoing and (before is None or before.undoing != record.undoing):
            self.tops.pop((record.root, record.undoing), None)
            self.unscoped[record.root, record.undoing] = record.id
            self.begun[record.root, record.undoing] = record.id
        if record.failing and (before is None or not before.failing):
            self.failed_now.add(record.id)
        # A decision writes the member before the top of its scope; the next one of the commit may widen the scope.
        for unit, id in list(self.unscoped.items()):
            if (top := self._top_of(id)) is not None:
                self.tops[unit] = top
                del self.unscoped[unit]

    def on_unit(self, unit: UndoRecord) -> None:
        self.undone.discard((unit.procedure, unit.label))
        self.gone.discard((unit.procedure, unit.label))
        self.tops.pop((unit.root, unit.seq), None)  # of the unit that had this number in an earlier generation

    def on_unit_gone(self, root: str, seq: int, unit: UndoRecord | None) -> None:
        if unit is None:
            self.say(11, f"undo unit {seq} of {root} was removed twice")
            return
        if unit.procedure in self.placed_now and (unit.step, unit.attempt) == self.placed.get(unit.procedure):
            return  # its step was never begun
        self.gone.add((unit.procedure, unit.label))
        if not self.renewed.isdisjoint(self.facts.line(unit.procedure)):
            return
        # An undo that ran when a wider failure began counts in its own scope: it ends like any running step.
        top = self.tops.get((root, seq)) or self._top_of(unit.procedure)
        if top is None:
            return  # the tree ended well, or gave the unit up
        if unit.procedure not in self.facts.heads or self._is_left_alone(self.facts.heads[unit.procedure]):
            return
        if (unit.procedure, unit.label) not in self.undone:
            self.say(11, f"undo unit {unit.label!r} of {unit.procedure} was removed and never undone")
        for later in self.facts.units.values():
            # Those of a poisoned member stay, for a retry of its root or until it is bypassed.
            is_skipped = self._is_poisoned(later.procedure) or self._is_bypassed(later.procedure)
            is_newer = later.root == root and later.seq > seq and not is_skipped
            if is_newer and top in self.facts.line(later.procedure):
                self.say(11, f"unit {seq} of {root} was undone before unit {later.seq}")

    def on_removed(self, id: str) -> None:
        """A submit of this id from now on makes another procedure."""
        for known in (self.undone, self.gone):
            known -= {key for key in known if key[0] == id}
        for key in [key for key in self.tops if key[0] == id]:
            del self.tops[key]
        self.skipped = [skip for skip in self.skipped if id not in {skip[0], skip[2]}]  # it went in the same commit

    def _top_of(self, id: str) -> str | None:
        """The top of the widest failure scope a procedure is in."""
        return next((name for name in reversed(self.facts.line(id)) if self.facts.heads[name].failing), None)

    def _is_poisoned(self, id: str) -> bool:
        error = self.facts.heads[id].error if id in self.facts.heads else None
        return error is not None and error.kind == "poisoned"

    def _is_bypassed(self, id: str) -> bool:
        return id in self.facts.heads and self.facts.heads[id].bypassed

    def _is_left_alone(self, head: ProcedureRecord) -> bool:
        """True if its units are given up unrun: it cannot be undone, is poisoned, or its parent compensates."""
        if head.state is ProcedureState.FAILED or not head.rollback_supported:
            return True
        if head.bypassing or head.bypassed:
            return True
        if self._is_poisoned(head.id):
            return True
        line = [self.facts.heads[id] for id in self.facts.line(head.id)]
        return any(inner.state is ProcedureState.SUCCESS and not outer.undo_children for inner, outer in pairwise(line))
