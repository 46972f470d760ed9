"""The simulation proves itself: bugs planted into the core or the fake shell must be found within some hundred seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from actorproc.core import ending, failing, queueing
from actorproc.core.book import Book
from actorproc.core.staff import Staff
from actorproc.core.tree import Tree
from actorproc.model.commands import Decision, Reply, RunStep
from actorproc.model.states import TERMINAL
from actorproc.model.writes import DeleteLock, DeleteUndo, PutLock, PutProcedure, PutUndo, Write
from actorproc.testing.fake_shell import FakeShell
from actorproc.testing.simulation import simulate

BUDGET = 400
"""Seeds a planted bug may survive."""

Plant = Callable[[pytest.MonkeyPatch], None]


def _without(kind: type[Write]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        honest = Book.write
        patch.setattr(Book, "write", lambda self, write: None if type(write) is kind else honest(self, write))

    return plant


def _children_are_not_written_with_their_parent(patch: pytest.MonkeyPatch) -> None:
    honest = Book.close

    def close(self: Book) -> Decision:
        decision = honest(self)
        kept = [w for w in decision.writes if not (type(w) is PutProcedure and w.was is None and w.record.parent)]
        return Decision(kept, decision.commands)

    patch.setattr(Book, "close", close)


def _stale_answers_are_accepted(patch: pytest.MonkeyPatch) -> None:
    def current(self: Staff, token):
        worker = self.in_hand.get(token.procedure)
        return None if worker is None else worker.queue[token.procedure]

    patch.setattr(Staff, "current", current)


def _a_parent_is_woken_one_child_early(patch: pytest.MonkeyPatch) -> None:
    honest = ending._tell_parent

    def tell_parent(book, child):
        parent = book.procs[child.parent]
        if parent.pending == 2:
            parent.pending = 1
        honest(book, child)

    patch.setattr(ending, "_tell_parent", tell_parent)


def _units_are_undone_oldest_first(patch: pytest.MonkeyPatch) -> None:
    def oldest(tree, top_id):
        return next((unit for unit in tree.units.values() if tree.is_below(unit.procedure, top_id)), None)

    patch.setattr(Tree, "newest_unit", oldest)


def _a_unit_is_dropped_without_being_undone(patch: pytest.MonkeyPatch) -> None:
    honest = failing._is_left_alone
    patch.setattr(failing, "_is_left_alone", lambda book, member, top: honest(book, member, top) or member.step == 2)


def _replies_leave_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    honest = FakeShell._add

    def add(self: FakeShell, decision: Decision) -> None:
        replies = [command for command in decision.commands if isinstance(command, Reply)]
        for reply in replies:
            self._reply(reply)
        honest(self, Decision(decision.writes, [c for c in decision.commands if not isinstance(c, Reply)]))

    patch.setattr(FakeShell, "_add", add)


def _steps_are_handed_out_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    honest = FakeShell._add

    def add(self: FakeShell, decision: Decision) -> None:
        honest(self, Decision(decision.writes, [c for c in decision.commands if not isinstance(c, RunStep)]))
        for command in decision.commands:
            if isinstance(command, RunStep):
                self._run_step(command)

    patch.setattr(FakeShell, "_add", add)


def _attempts_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    honest = Book.close

    def close(self: Book) -> Decision:
        decision = honest(self)
        for write in decision.writes:
            if type(write) is PutProcedure:
                write.record.attempt = 0
        return decision

    patch.setattr(Book, "close", close)


def _a_lost_worker_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    honest = Staff.lose
    patch.setattr(Staff, "lose", lambda self, worker: honest(self, worker)[:0])


def _locks_are_forgotten_when_a_child_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ending, "_pass_on_locks", lambda book, record: book.locks.release(record.id))


def _every_waiter_gets_its_locks(patch: pytest.MonkeyPatch) -> None:
    honest = queueing.wake

    def wake(book, record, **options):
        record.locked = record.locked or record.state not in TERMINAL
        honest(book, record, **options)

    for module in (queueing, ending, failing):
        patch.setattr(module, "wake", wake)


BUGS: dict[str, Plant] = {
    "a lock grant is not stored": _without(PutLock),
    "a lock release is not stored": _without(DeleteLock),
    "undo units are not stored": _without(PutUndo),
    "undone units are not removed": _without(DeleteUndo),
    "children are not written with their parent": _children_are_not_written_with_their_parent,
    "stale answers are accepted": _stale_answers_are_accepted,
    "a parent is woken one child early": _a_parent_is_woken_one_child_early,
    "units are undone oldest first": _units_are_undone_oldest_first,
    "a unit is dropped without being undone": _a_unit_is_dropped_without_being_undone,
    "replies leave before the commit": _replies_leave_before_the_commit,
    "steps are handed out before the commit": _steps_are_handed_out_before_the_commit,
    "attempts are not stored": _attempts_are_not_stored,
    "a lost worker is forgotten": _a_lost_worker_is_forgotten,
    "locks are forgotten when a child ends": _locks_are_forgotten_when_a_child_ends,
    "every waiter gets its locks": _every_waiter_gets_its_locks,
}


@pytest.fixture
def planted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[request.param](monkeypatch)


@pytest.mark.parametrize("planted", BUGS, indirect=True)
def test_a_planted_bug_is_found(planted: None) -> None:
    found = next((seed for seed in range(1, BUDGET + 1) if simulate(seed).violations), None)

    assert found is not None, f"survived {BUDGET} seeds"
