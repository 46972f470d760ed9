"""Promises between parents and children: created once, seen once and exactly as they ended (12, 13)."""

from __future__ import annotations

from collections import Counter

from actorproc.model.ids import Mode, StepToken
from actorproc.model.rows.records import CHILD_STATES, ChildRecord, ProcedureRecord, StepKind
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.testing.histories.evidence import StoreDump, Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["FamilyRules"]

ChildRow = tuple[str, ProcedureState, bytes]
"""Child as a step sees it: id, state, output."""


class _Resumed:
    """One resume of a parent. Children that ended in the same commit may have ended before it or after."""

    __slots__ = ("at_least", "at_most", "seen")

    def __init__(self) -> None:
        self.at_least: set[str] = set()
        self.at_most: set[str] = set()
        """Children that had ended then."""
        self.seen: tuple[ChildRow, ...] | None = None
        """Children that the first execution after it saw."""


class FamilyRules(Judge):
    """Judges links when they are committed, and what a parent sees when it goes on."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.resumed: dict[tuple[str, int, int], _Resumed] = {}
        """By parent, the step it was resumed for, and its run."""
        self.shown: dict[str, set[str]] = {}
        """Children whose end steps of a parent have seen."""
        self.group_since: dict[str, int] = {}
        """First step of the present group of children, by parent."""
        self.resumed_now: set[tuple[str, int, int]] = set()
        self.ended_now: set[str] = set()
        """Procedures that were resumed, and those that ended, in this commit."""

    # ------------------------------------------------------------ commits
    def on_link(self, link: ChildRecord, before: str | None) -> None:
        if before is not None:
            self.say(13, f"child {link.index} of step {link.step} of {link.parent} was linked twice")
        indexes = [index for step, index in self.facts.links[link.parent] if step == link.step]
        if sorted(indexes) != list(range(len(indexes))):
            self.say(13, f"children of step {link.step} of {link.parent} have the places {sorted(indexes)}")

    def on_linked(self, link: ChildRecord) -> None:
        """All heads of the commit are known."""
        if link.child not in self.facts.heads and link.parent in self.facts.heads:  # else both were removed at once
            self.say(13, f"{link.child} is linked, but was not stored with its parent")

    def on_created(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        if before is not None:
            self.say(13, f"{record.id} was created twice")
        if record.parent is not None and record.parent not in self.facts.heads:
            self.say(13, f"{record.id} was stored before its parent {record.parent}")

    def on_head(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        if record.state in TERMINAL and (before is None or before.state not in TERMINAL or before.run != record.run):
            self.ended_now.add(record.id)
        if before is None or not record.awaiting:
            return
        if record.step > before.step and self._is_placed(record):
            self._sees_the_same(before, record)
            return
        if record.rolling and record.step > before.step:
            self._take_over(before, record)
        if not (_runs_on(before, record) or _was_resumed_and_failed(before, record)):
            return
        key = (record.id, record.step, record.run)
        waited = before if before.interrupted is None else before.interrupted
        was_suspended = waited.state is ProcedureState.WAITING and before.step == record.step
        if was_suspended and key in self.resumed:
            self.say(12, f"{record.id} was resumed twice for step {record.step}")
        if was_suspended or before.step != record.step:
            self._note_resumed(record)

    def _note_resumed(self, record: ProcedureRecord) -> None:
        key = (record.id, record.step, record.run)
        self.resumed[key] = _Resumed()
        self.resumed_now.add(key)

    def _is_placed(self, record: ProcedureRecord) -> bool:
        """True if its last record says that no step ran, as by new code another one comes next."""
        last = self.facts.records.get((record.id, record.records))
        return last is not None and last.outcome == "placed"

    def _sees_the_same(self, before: ProcedureRecord, record: ProcedureRecord) -> None:
        known = self.resumed.get((record.id, before.step, before.run))
        if known is not None:
            self.resumed[record.id, record.step, record.run] = known

    def _take_over(self, before: ProcedureRecord, record: ProcedureRecord) -> None:
        """Its step said poisoned, or ended too late to count: run again, it sees what it saw.

        One that suspended has ended; where that resumed it at once, the next one sees what had ended then, also when
        the procedure was to be aborted and failed in the same commit.
        """
        numbers = range(before.records + 1, record.records + 1)
        steps = (self.facts.records.get((record.id, number)) for number in numbers)
        outcome = next((step.outcome for step in steps if step is not None and step.kind is StepKind.STEP), "")
        if outcome == "suspended":
            if record.interrupted is None:
                self._note_resumed(record)
            return
        if not before.awaiting:
            return
        for run in range(before.run, 0, -1):
            known = self.resumed.get((record.id, before.step, run))
            if known is not None:
                self.resumed[record.id, record.step, record.run] = known
                return

    def on_committed(self) -> None:
        for key in self.resumed_now:
            links = self.facts.links.get(key[0], {})
            ended = {child for child in links.values() if self.facts.heads[child].state in TERMINAL}
            self.resumed[key].at_least = ended - self.ended_now
            self.resumed[key].at_most = ended
        self.resumed_now.clear()
        self.ended_now.clear()

    def on_removed(self, id: str) -> None:
        """A submit of this id from now on makes another procedure."""
        for key in [key for key in self.resumed if key[0] == id]:
            del self.resumed[key]
            self.resumed_now.discard(key)  # it went in the commit that resumed it
        self.shown.pop(id, None)
        self.group_since.pop(id, None)

    # ------------------------------------------------------------ what a parent sees
    def on_children(self, token: StepToken, since: int, rows: tuple[ChildRow, ...]) -> None:
        """A step that follows a suspend asked for the outcomes of its children."""
        head = self.facts.heads.get(token.procedure)
        if head is None or token.mode is not Mode.EXECUTE:
            return
        # A run that repeats the step sees what the run before saw.
        runs = (self.resumed.get((head.id, token.step, run)) for run in range(head.run, 0, -1))
        resumed = next((found for found in runs if found is not None), None)
        if resumed is None:
            self.say(12, f"{token} sees children, but {head.id} was never resumed for it")
            return
        if resumed.seen is None:
            self._check_group(token, since)
        links = self.facts.links.get(head.id, {})
        group = [child for (step, _), child in links.items() if step >= since]
        ids = [row[0] for row in rows]
        at_least, at_most = resumed.at_least & set(group), resumed.at_most & set(group)
        if len(set(ids)) != len(ids) or not at_least <= set(ids) <= at_most:
            ended = f"{sorted(at_least)} had ended when it was resumed, at most {sorted(at_most)}"
            self.say(12, f"{token} sees {ids}; {ended}")
        if head.wait == "all" and set(ids) != set(group):
            self.say(12, f"{token} sees {ids} of the children {group} it waited for")
        if head.wait != "all" and group and not ids:
            self.say(12, f"{token} goes on before any child ended")
        for id, state, output in rows:
            child = self.facts.heads[id]
            closing = self.facts.records[id, child.records]
            if (state, output) != (child.state, closing.output if state is ProcedureState.SUCCESS else b""):
                self.say(12, f"{token} sees {id} as {state} with {output!r}, it is {child.state}: {closing}")
        if resumed.seen is not None and resumed.seen != rows:
            self.say(12, f"{token} sees {rows}, an execution before it saw {resumed.seen}")
        resumed.seen = rows
        self.shown.setdefault(head.id, set()).update(ids)

    def _check_group(self, token: StepToken, since: int) -> None:
        """A group has all children that were started since the parent last had seen the end of all."""
        parent, suspended_in = token.procedure, token.step - 1
        links = self.facts.links.get(parent, {})
        earlier = {child for (step, _), child in links.items() if step < suspended_in}
        if earlier <= self.shown.get(parent, set()):
            self.group_since[parent] = suspended_in
        expected = {child for (step, _), child in links.items() if step >= self.group_since.get(parent, suspended_in)}
        if (given := {child for (step, _), child in links.items() if step >= since}) != expected:
            self.say(12, f"{token} sees outcomes of {sorted(given)}; the group it waited for is {sorted(expected)}")

    # ------------------------------------------------------------ the end
    def _check_counts(self, dump: StoreDump) -> None:
        for id, head in dump.heads.items():
            if head.child_states is None or self.facts.heads.get(id) is None:
                continue
            states = Counter(
                dump.heads[child].state for child in self.facts.links.get(id, {}).values() if child in dump.heads
            )
            counted = {state: count for state, count in zip(CHILD_STATES, head.child_states, strict=False) if count}
            if counted != states:
                self.say(12, f"{id} counts its children as {counted}, and they are {dict(states)}")

    def check_end(self, dump: StoreDump) -> None:
        self._check_counts(dump)
        born = Counter(head.parent for head in dump.heads.values())
        for id, head in dump.heads.items():
            linked = len(self.facts.links.get(id, ()))
            if not head.children == born[id] == linked:
                self.say(13, f"{id} counts {head.children} children; {born[id]} are stored, {linked} are linked")


def _runs_on(before: ProcedureRecord, record: ProcedureRecord) -> bool:
    """True if it may run a step that sees what has ended by now; its last step once more sees what it saw before."""
    if record.state is not ProcedureState.RUNNABLE or (before.interrupted is not None and before.interrupted.step):
        return False
    # One that fails runs no step any more, save what it was given in the very commit that failed it.
    return not record.rolling or not (before.rolling or not record.attempt)


def _was_resumed_and_failed(before: ProcedureRecord, record: ProcedureRecord) -> bool:
    """Within one commit, as when its deadline passed meanwhile; a retry runs the step that it was resumed for.

    Had it still waited when it failed, its head would say so.
    """
    stopped = record.interrupted
    return (
        before.state is ProcedureState.WAITING
        and record.rolling
        and not before.rolling
        and record.step == before.step
        and (stopped is None or stopped.state is ProcedureState.RUNNABLE)
    )
