"""Invariants of a history: it obeys the engine's promises, whatever disturbed it.

`check` is one pure function over a journal (what the outside saw: executions, commits, calls and replies, deaths)
and a dump of the store; it knows nothing of the engine's insides. The promises by number:

1 durability of acknowledged submits · 2 no ghosts · 3 a committed step was executed before · 4 one commit per
record, consecutive · 5 nothing is handed out before the record and the attempt it starts from are durable ·
6 a step runs again only after a fault or a retryable failure · 7 nothing forward after the end, no older epoch
after a newer one · 8 one runner per procedure · 9 a step starts from the stored state, byte for byte ·
10 locks exclude, poisoned keys are not granted, all locks are free at the end · 11 undo in strictly reverse
order, none skipped, none after its record · 12 a parent is resumed once and sees exactly what had ended ·
13 children are created once · 14 terminal states and outputs are final, read before and after each restart ·
15 everything ends · 16 recovery is idempotent · 17 bystanders are unharmed · 18 no orphan process · 19 the same seed
gives the same trace · 20 honest errors · 21 what an operator stopped stands still, limits are kept ·
22 a running step whose undo is decided is told at once, and a kill for that is not charged ·
24 what new code has run goes to no old code while workers are replaced, and an attempt that began no step leaves no
undo and takes nothing from the next (23 is of the actor simulation) · 25 each failure that is charged has the record
of its attempt, written with it, and the store keeps the newest of each step · 26 what a step reported before its end is
stored with that or before, and the newest value of each key is kept · 27 no step runs on a host without its labels,
nor on one with other code of its type, steps never take more of a host's resources than it offers, and one that was
lost with three hosts in a row runs with no other on its host · 28 each instant of a schedule starts one procedure, in
the commit that moves the schedule on · 33 of debounced submits the last durable one runs, in its time, and each
counts once · 34 the row of what an application enqueued goes in the commit that creates its procedure, or keeps the
refusal · 35 lists find a procedure by the tags that its last recorded step left, and by its state. Number 0 is
"memory equals store".

What an operator asked for counts: a retried root may move again in a new run, a bypassed procedure ends without
its steps, and what was removed is forgotten, so that its id may be used anew.

The rules are split by what they look at: `execution_rules`, `log_rules`, `undo_rules`, `lock_rules`, `family_rules`,
`caller_rules`, `operator_rules`, `cancel_rules`, `deploy_rules`, `report_rules` and `placement_rules`. A pure function over one history cannot see 0 and
16 (the simulation compares memory with a restored core, and one recovery with another), 18 and 19 (tests of their own),
nor the gate (the fake shell watches it). ``docs/explanation/testing.md`` says for each number which check or test covers it, on
which input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from actorproc.model.ids import StepToken
from actorproc.model.messages.outcomes import Renewed
from actorproc.model.policies import Scheduling
from actorproc.model.rows.writes import (
    DeleteEnqueued,
    DeleteEvent,
    DeleteLinks,
    DeleteLock,
    DeletePoison,
    DeleteProcedure,
    DeleteReply,
    DeleteSchedule,
    DeleteUndo,
    PutAcknowledgement,
    PutAttempt,
    PutChild,
    PutEnqueued,
    PutEvent,
    PutExposed,
    PutLock,
    PutNote,
    PutPoison,
    PutProcedure,
    PutRemoval,
    PutReply,
    PutSchedule,
    PutStart,
    PutStep,
    PutSwitch,
    PutUndo,
    TrimLog,
    Write,
)
from actorproc.testing.histories.evidence import StoreDump, Violation
from tests.simulator.rules.adoption_rules import AdoptionRules, LossRules
from tests.simulator.rules.ask_rules import AskRules
from tests.simulator.rules.caller_rules import CallerRules
from tests.simulator.rules.cancel_rules import CancelRules
from tests.simulator.rules.debounce_rules import DebounceRules
from tests.simulator.rules.deploy_rules import DeployRules
from tests.simulator.rules.enqueued_rules import EnqueuedRules
from tests.simulator.rules.execution_rules import ExecutionRules
from tests.simulator.rules.family_rules import FamilyRules
from tests.simulator.rules.judge import Entry, Facts, Judge
from tests.simulator.rules.lock_rules import LockRules
from tests.simulator.rules.log_rules import LogRules
from tests.simulator.rules.operator_rules import OperatorRules
from tests.simulator.rules.placement_rules import PlacementRules
from tests.simulator.rules.report_rules import ReportRules
from tests.simulator.rules.schedule_rules import ScheduleRules
from tests.simulator.rules.tag_rules import TagRules
from tests.simulator.rules.undo_rules import UndoRules

__all__ = ["Entry", "StoreDump", "Violation", "check"]


_NO_LIMITS = Scheduling()
_DISTURBANCES = frozenset(
    {"host-died", "commit-failed", "read-failed", "worker-died", "worker-left", "host-lost", "claimed"}
)


def check(
    journal: Iterable[Entry],
    dump: StoreDump,
    *,
    bystander: str | None = None,
    scheduling: Scheduling = _NO_LIMITS,
    is_forgetful: bool = False,
) -> list[Violation]:
    """All violations of a finished history, in the order they were seen. Pure.

    `is_forgetful`: events that no procedure takes are removed in the end.
    """
    pass_ = _Pass(bystander, scheduling, is_forgetful=is_forgetful)
    for kind, *fields in journal:
        pass_.read(kind, fields)
    for judge in pass_.judges:
        judge.check_end(dump)
    return pass_.found


class _Pass:
    """One walk over a journal: keeps the facts and shows every entry, and every part of a commit, to the judges."""

    def __init__(self, bystander: str | None, scheduling: Scheduling, *, is_forgetful: bool) -> None:
        self.found: list[Violation] = []
        self.facts = facts = Facts()
        found = self.found
        self.judges: list[Judge] = [
            ExecutionRules(facts, found),
            LockRules(facts, found),
            LogRules(facts, found),
            FamilyRules(facts, found),
            UndoRules(facts, found),
            CallerRules(facts, found, bystander, is_forgetful=is_forgetful),
            OperatorRules(facts, found, scheduling),
            CancelRules(facts, found),
            DeployRules(facts, found),
            ReportRules(facts, found),
            ScheduleRules(facts, found),
            DebounceRules(facts, found),
            EnqueuedRules(facts, found),
            TagRules(facts, found),
            PlacementRules(facts, found),
            AdoptionRules(facts, found),
            LossRules(facts, found),
            AskRules(facts, found),
        ]
        self._listeners: dict[str, list[Callable[..., None]]] = {}
        self._readers: dict[type[Write], Callable[[Any], None]] = {
            PutProcedure: self._put_head,
            PutStep: self._put_step,
            PutChild: self._put_child,
            PutUndo: self._put_unit,
            PutLock: lambda write: self._show("lock", write.record),
            DeleteLock: lambda write: self._show("lock_gone", write.path, write.holder),
            PutPoison: lambda write: self._show("poison", write.record),
            DeletePoison: lambda write: self._show("poison_gone", write.path),
            PutEvent: self._put_event,
            DeleteEvent: lambda write: self._show("signal_taken", write.target, write.seq),
            DeleteProcedure: self._delete_procedure,
            PutRemoval: lambda write: self._show("removed", write.record.root),
            PutAcknowledgement: lambda write: self._show("acknowledged", write.record.root),
            PutSwitch: lambda write: self._show("switch", write.paused),
            PutStart: lambda write: self._show("start", write.record),
            PutAttempt: lambda write: self._show("attempt", write.record),
            PutExposed: lambda write: self._show("exposed", write.record),
            PutReply: lambda write: self._show("reply_stored", write.record),
            DeleteReply: lambda write: self._show("reply_gone", write.procedure, write.mark),
            PutNote: lambda write: self._show("note", write.record),
            PutSchedule: lambda write: self._show("schedule", write.record),
            DeleteSchedule: lambda write: self._show("schedule_gone", write.id),
            PutEnqueued: lambda write: self._show("row_refused", write.record),
            DeleteEnqueued: lambda write: self._show("enqueued_gone", write.key),
            TrimLog: self._trim_log,
            DeleteLinks: self._delete_links,
        }

    def read(self, kind: str, fields: Sequence[Any]) -> None:
        """The next entry."""
        if kind == "commit":
            self._read_commit(fields[1])
            return
        if kind in _DISTURBANCES:
            self.facts.disturbed += 1
        elif kind == "exit":
            self._note_exit(*fields)
        self._show(kind, *fields)

    def _show(self, what: str, *fields: object) -> None:
        """Call ``on_<what>`` of all who listen for it."""
        listeners = self._listeners.get(what)
        if listeners is None:
            name = "on_" + what.replace("-", "_")
            found = (getattr(judge, name, None) for judge in self.judges)
            listeners = self._listeners[what] = [method for method in found if method is not None]
        for listener in listeners:
            listener(*fields)

    def _note_exit(self, token: StepToken, unit: str | None, outcome: Any) -> None:
        del unit
        if token.procedure in self.facts.heads:
            exits = self.facts.exits.setdefault(token.procedure, set())
            exits.add(outcome.state)
            if isinstance(outcome, Renewed):
                exits.add(outcome.fresh)

    # ------------------------------------------------------------ commits
    def _read_commit(self, writes: list[Write]) -> None:
        self._show("commit_begins")
        readers = self._readers
        later: list[Write] = []
        for write in writes:
            kind = type(write)
            if kind is DeleteProcedure:
                self._compare(later)  # before another procedure is submitted under this id
            elif isinstance(write, PutUndo):
                # The next generation pushes units under the numbers of those that were removed.
                same = DeleteUndo(write.record.root, write.record.seq)
                if same in later:
                    later.remove(same)
                    self._compare([same])
            reader = readers.get(kind)
            if reader is not None:
                reader(write)
            if kind is DeleteUndo or kind is PutChild:
                later.append(write)
        self._compare(later)
        self.facts.drop_stale()
        self._show("committed")

    def _compare(self, later: list[Write]) -> None:
        """Undo units and links are compared with heads of the same commit, which come after them."""
        for write in later:
            if isinstance(write, DeleteUndo):
                unit = self.facts.units.pop((write.root, write.seq), None)
                self._show("unit_gone", write.root, write.seq, unit)
            elif isinstance(write, PutChild):
                self._show("linked", write.record)
        later.clear()

    def _put_head(self, write: PutProcedure) -> None:
        record = write.record
        before = self.facts.heads.get(record.id)
        if write.was is None:
            self._show("created", record, before)
        self.facts.heads[record.id] = record
        self._show("head", record, before)

    def _put_step(self, write: PutStep) -> None:
        record = write.record
        key = (record.procedure, record.number)
        before = self.facts.records.get(key)
        self.facts.records[key] = record
        self._show("record", record, before)

    def _trim_log(self, write: TrimLog) -> None:
        for number in range(write.first, write.last + 1):
            self.facts.records.pop((write.procedure, number), None)
        self._show("trimmed", write)

    def _delete_links(self, write: DeleteLinks) -> None:
        self.facts.links.pop(write.parent, None)
        self._show("unlinked", write.parent)

    def _put_child(self, write: PutChild) -> None:
        link = write.record
        links = self.facts.links.setdefault(link.parent, {})
        known = links.get((link.step, link.index))
        links[link.step, link.index] = link.child
        self._show("link", link, known)

    def _put_unit(self, write: PutUndo) -> None:
        unit = write.record
        self.facts.units[unit.root, unit.seq] = unit
        self._show("unit", unit)

    def _put_event(self, write: PutEvent) -> None:
        event = write.record
        if event.taken:
            self._show("signal_taken", event.target, event.seq)
        else:
            self._show("signal_kept", event)

    def _delete_procedure(self, write: DeleteProcedure) -> None:
        self.facts.forget(write.record.id)
        self._show("removed", write.record.id)
