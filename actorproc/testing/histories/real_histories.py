"""Judging what real processes did: the lines of a `Journal` against a dump of the store, as one pure function.

It is the outside view of `invariants`, whose numbers it uses. Commits cannot be seen from outside, so the rules that
need them (5, 15, 16, 17, 20) are left to the simulation. The rest is checked as far as lines can show it:

1 acknowledged roots are stored · 2 what is stored was submitted, what ran is stored · 3 each record was made by a
complete execution · 4 records are consecutive · 6 a forward step that answered runs again only after a kill · 7 no
older epoch after a newer one, nothing forward after an undo, nothing at all after the end · 8 one runner per procedure
· 9 a step starts with the state the step before ended with · 10 the referee saw no conflict, no lock is left ·
11 undo in reverse, none skipped · 12 a parent goes on after its children · 13 children are created once · 14 final
states are final.

Every step and undo of a journalled class must be inside `Journal.step`, every kill announced by `Journal.killing`.
`retry(id)` opens a new run, which the order of lines cannot tell from the first: such roots are not for this check.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from actorproc.model.rows.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.testing.histories.evidence import StoreDump, Violation
from actorproc.testing.journal import JournalLine

__all__ = ["JournalHistory", "check_journal"]

_INIT = 1
"""Parent of a process whose parent has died."""


def check_journal(lines: Iterable[JournalLine], dump: StoreDump) -> list[Violation]:
    """Judge the lines of a journal against a dump of the store. Pure.

    Args:
        lines: The lines, in order.
        dump: The store when the last host has stopped.

    Returns:
        All violations, those of single lines first.
    """
    history = JournalHistory(dump)
    for line in lines:
        history.read(line)
    history.judge_end()
    return history.found


class _JournalLine:
    """Lines of one procedure, as they were read."""

    __slots__ = ("epoch", "exits", "first", "forward", "last_forward", "open", "reached", "states", "undos")

    def __init__(self) -> None:
        self.epoch = 0
        self.open: JournalLine | None = None
        """The step that runs."""
        self.reached = 0
        """Highest forward step that began."""
        self.exits: dict[tuple[str, int, str | None], JournalLine] = {}
        """The end of the last complete execution by mode, step and unit."""
        self.states: dict[int, set[str]] = {}
        """States forward steps ended with, by step."""
        self.forward: dict[str, int] = {}
        """Place at which each undo unit was first entered."""
        self.undos: dict[str, tuple[int, int]] = {}
        """First entry and last exit of each unit's undo; exit -1: none."""
        self.first = -1
        self.last_forward = -1


class JournalHistory:
    """One walk over a journal, beside the store at its end."""

    def __init__(self, dump: StoreDump) -> None:
        self.dump = dump
        self.found: list[Violation] = []
        self.place = -1
        self.procedures: dict[str, _JournalLine] = {}
        self.submitted: set[str] = set()
        self.acknowledged: set[str] = set()
        self.resolved: dict[str, str] = {}
        self.killed: set[int] = set()
        self.hosts: dict[int, int] = {}
        """Process of the host by epoch."""

    def say(self, number: int, text: str) -> None:
        self.found.append(Violation(number, text))

    def of(self, id: str) -> _JournalLine:
        return self.procedures.setdefault(id, _JournalLine())

    # ------------------------------------------------------------ line by line
    def read(self, line: JournalLine) -> None:
        self.place += 1
        match line.kind:
            case "enter":
                self._enter(line)
            case "exit" | "raised":
                self._leave(line)
            case "submitted":
                self.submitted.add(line.procedure)
            case "acknowledged":
                self.acknowledged.add(line.procedure)
            case "resolved":
                before = self.resolved.setdefault(line.procedure, line.text)
                if before != line.text:
                    self.say(14, f"{line.procedure} ended as {before} and later as {line.text}")
            case "killing":
                self.killed.add(line.pid)
            case "conflict":
                self.say(10, f"{_shown(line)}: {line.text}")
            case _:
                pass  # effects are for people

    def _is_doomed(self, line: JournalLine) -> bool:
        """True if the process of this line is killed, or its host: what it did around that time may be lost.

        A kill is announced before it strikes, so the line itself may be older or younger than the announcement.
        """
        if line.host == _INIT:
            return True  # the host was dead already when the step began
        return line.pid in self.killed or self.hosts.get(line.epoch) in self.killed

    def _may_be_lost(self, exited: JournalLine, _again: JournalLine) -> bool:
        """True if the answer of this execution may not have been heard, so that the step runs again."""
        return self._is_doomed(exited)

    def _enter(self, line: JournalLine) -> None:
        seen = self.of(line.procedure)
        if self.hosts.get(line.epoch, _INIT) == _INIT:
            self.hosts[line.epoch] = line.host
        if line.epoch < seen.epoch:
            self.say(7, f"{_shown(line)} runs after epoch {seen.epoch}")
        seen.epoch = max(seen.epoch, line.epoch)
        if line.root in self.resolved and not self._is_undone_behind(line):
            self.say(7, f"{_shown(line)} runs although {line.root} is {self.resolved[line.root]}")
        self._check_alone(seen, line)
        if seen.first < 0:
            seen.first = self.place
        if line.mode == "execute":
            self._enter_forward(seen, line)
        elif line.mode == "rollback" and line.unit is not None:
            first, _ = seen.undos.get(line.unit, (self.place, -1))
            seen.undos[line.unit] = (first, -1)
        seen.open = line

    def _is_undone_behind(self, line: JournalLine) -> bool:
        """True if it is a child that a parent which ended well did not wait for: it ends later, and not well."""
        head = self.dump.heads.get(line.procedure)
        is_member = line.procedure != line.root and self.resolved[line.root] == ProcedureState.SUCCESS
        return is_member and head is not None and head.state is not ProcedureState.SUCCESS

    def _check_alone(self, seen: _JournalLine, line: JournalLine) -> None:
        if seen.open is None:
            return
        if not self._is_doomed(seen.open):
            self.say(8, f"{_shown(line)} begins while {_shown(seen.open)} still runs in process {seen.open.pid}")

    def _enter_forward(self, seen: _JournalLine, line: JournalLine) -> None:
        if seen.undos:
            self.say(7, f"{_shown(line)} runs although the procedure is being undone")
        if line.step < seen.reached:
            self.say(6, f"{_shown(line)} runs although step {seen.reached} began before")
        exited = seen.exits.get(("execute", line.step, line.unit))
        if exited is not None and not self._may_be_lost(exited, line):
            self.say(6, f"{_shown(line)} runs again although no worker was killed since its answer")
        if line.step > 1:
            ended = seen.states.get(line.step - 1)
            if ended is None:
                self.say(3, f"{_shown(line)} runs, but step {line.step - 1} never ended")
            elif line.state not in ended:
                self.say(9, f"{_shown(line)} starts with state {line.state}, step {line.step - 1} ended with {ended}")
        seen.reached = max(seen.reached, line.step)
        seen.last_forward = self.place
        if line.unit is not None:
            seen.forward.setdefault(line.unit, self.place)
        for id, child in self.procedures.items():
            # A child that was killed may have failed for good without another line.
            is_running = child.open is not None and not self._is_doomed(child.open)
            if is_running and self._is_awaited_child(id, line.procedure):
                self.say(12, f"{_shown(line)} goes on although its child {id} is inside a step")

    def _is_awaited_child(self, id: str, parent: str) -> bool:
        head, above = self.dump.heads.get(id), self.dump.heads.get(parent)
        return head is not None and above is not None and head.parent == parent and above.wait == "all"

    def _leave(self, line: JournalLine) -> None:
        seen = self.of(line.procedure)
        if seen.open is None or seen.open.pid != line.pid:
            self.say(8, f"{_shown(line)} ends in process {line.pid}, where it does not run")
        seen.open = None
        if line.mode == "execute":
            seen.last_forward = self.place
        if line.kind == "raised":
            return
        seen.exits[line.mode, line.step, line.unit] = line
        if line.mode == "execute":
            seen.states.setdefault(line.step, set()).add(line.state)
        elif line.mode == "rollback" and line.unit in seen.undos:
            seen.undos[line.unit] = (seen.undos[line.unit][0], self.place)

    # ------------------------------------------------------------ the end
    def judge_end(self) -> None:
        heads = self.dump.heads
        for id in sorted(self.acknowledged - heads.keys()):
            self.say(1, f"{id} was acknowledged and is not in the store")
        for id in sorted(self.procedures.keys() - heads.keys()):
            self.say(2, f"{id} ran and is not in the store")
        for id, state in self.resolved.items():
            if id in heads and heads[id].state != state:
                self.say(14, f"{id} ended as {state}, the store says {heads[id].state}")
        for id, head in heads.items():
            self._judge_log(head, self.dump.steps[id])
            self._judge_family(head)
            if head.state is ProcedureState.ROLLEDBACK:
                self._judge_undo(head)
        if all(head.state in TERMINAL for head in heads.values()):
            self.found += [Violation(10, f"still held at the end: {lock}") for lock in self.dump.locks]

    def _judge_log(self, head: ProcedureRecord, steps: list[StepRecord]) -> None:
        numbers = [record.number for record in steps]
        if numbers != list(range(1, head.records + 1)):
            self.say(4, f"the step log of {head.id} has numbers {numbers}; its head says {head.records}")
        commits = [record for record in steps if record.kind is StepKind.COMMIT]
        if head.state is ProcedureState.SUCCESS and len(commits) != 1:
            self.say(14, f"{head.id} succeeded with {len(commits)} closing records")
        seen = self.procedures.get(head.id)
        executed = set() if seen is None else {step for mode, step, _ in seen.exits if mode == "execute"}
        for record in steps:
            # A record without a slot was made by the manager: the submit, or the end of a failure.
            from_step = record.slot >= 0 and record.kind is not StepKind.ROLLBACK
            if from_step and record.number - 1 not in executed:
                self.say(3, f"record {record.number} of {head.id} is there, but step {record.number - 1} never ended")
            if record.slot >= 0 and record.kind is StepKind.ROLLBACK and record.label is not None:
                undone = None if seen is None else seen.undos.get(record.label)
                if undone is None or undone[1] < 0:
                    self.say(3, f"record {record.number} of {head.id} is there, but undo {record.label!r} never ended")

    def _judge_family(self, head: ProcedureRecord) -> None:
        heads = self.dump.heads
        if head.parent is None:
            if head.id not in self.submitted:
                self.say(2, f"{head.id} is stored and was never submitted")
        elif head.parent not in heads:
            self.say(13, f"{head.id} is stored without its parent {head.parent}")
        else:
            self._judge_wait(head, heads[head.parent])
        children = sum(other.parent == head.id for other in heads.values())
        if children != head.children:
            self.say(13, f"{head.id} made {head.children} children, {children} are stored")

    def _judge_wait(self, child: ProcedureRecord, parent: ProcedureRecord) -> None:
        """Between a child's first and last forward line its parent begins nothing."""
        inner, outer = self.procedures.get(child.id), self.procedures.get(parent.id)
        if inner is None or outer is None or parent.wait != "all" or inner.first < 0:
            return
        if inner.first < outer.last_forward < inner.last_forward:
            self.say(12, f"{parent.id} went on before its child {child.id} ended")

    def _judge_undo(self, head: ProcedureRecord) -> None:
        seen = self.procedures.get(head.id)
        if seen is None or not head.rollback_supported:
            return
        units = sorted(seen.forward.items(), key=lambda item: item[1])
        undone = [(unit, *seen.undos.get(unit, (-1, -1))) for unit, _ in units]
        for unit, _, ended in undone:
            if ended < 0:
                self.say(11, f"{head.id} is rolled back, but {unit!r} was never undone")
        for (unit, began, _), (later, _, ended) in pairwise(undone):
            if 0 <= began < ended:
                self.say(11, f"{head.id} undid {unit!r} before {later!r}, which ran after it")
        self._judge_undo_above(head, seen)

    def _judge_undo_above(self, head: ProcedureRecord, seen: _JournalLine) -> None:
        """Check that acts of its parent before this child began are undone after this child."""
        outer = None if head.parent is None else self.procedures.get(head.parent)
        last = max((ended for _, ended in seen.undos.values()), default=-1)
        if outer is None or last < 0:
            return
        for unit, (began, _) in outer.undos.items():
            if outer.forward.get(unit, seen.first) < seen.first and began < last:
                self.say(11, f"{head.parent} undid {unit!r} before its child {head.id} was undone")


def _shown(line: JournalLine) -> str:
    return f"{line.procedure} step {line.step} attempt {line.attempt} ({line.mode}, epoch {line.epoch})"
