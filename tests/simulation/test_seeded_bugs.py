"""The simulation proves itself: bugs seeded in the core or the fake shell must be found within some hundred seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from actorproc.core import recovery
from actorproc.core.lifecycle import children, finish, removal, signals, step_record
from actorproc.core.lock_manager import acquire
from actorproc.core.queues.host_table import HostTable
from actorproc.core.queues.key_limits import KeyLimits, _Key
from actorproc.core.queues.worker_table import WorkerTable
from actorproc.core.results import abort, fast_end, on_result, postponed_steps, worker_loss
from actorproc.core.rollback import failure_scope, undo_step
from actorproc.core.rules import HANDLERS
from actorproc.core.scheduler import cancellation, lone_steps, reload, schedule
from actorproc.core.state import signal_ids
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.decision import PendingDecision
from actorproc.core.state.tree import Tree
from actorproc.errors import ManagerBusy
from actorproc.model.messages.commands import Decision, Reply, Resolve, ResolveAsk, RunStep
from actorproc.model.messages.events import ResultsTaken, Submitted, WorkerLost
from actorproc.model.messages.outcomes import Finished
from actorproc.model.rows.writes import (
    DeleteLock,
    DeleteReply,
    DeleteUndo,
    PutAcknowledgement,
    PutEvent,
    PutLock,
    PutPoison,
    PutProcedure,
    PutReply,
    PutSwitch,
    PutUndo,
    Write,
)
from actorproc.model.states import TERMINAL, ProcedureState
from tests.simulator.core_sim import fake_workers
from tests.simulator.core_sim.fake_shell import FakeShell
from tests.simulator.core_sim.simulation import simulate
from tests.simulator.core_sim.world import ending_of
from tests.simulator.generators import asks, hosts
from tests.simulator.generators.editions import FIRST_SEED

BUDGET = 400
"""Seeds a seeded bug may survive."""

SeededBug = Callable[[pytest.MonkeyPatch], None]


def _without(kind: type[Write]) -> SeededBug:
    def plant(patch: pytest.MonkeyPatch) -> None:
        honest = PendingDecision.write
        patch.setattr(
            PendingDecision, "write", lambda self, write: None if type(write) is kind else honest(self, write)
        )

    return plant


def _children_are_not_written_with_their_parent(patch: pytest.MonkeyPatch) -> None:
    honest = EngineState.close

    def close(self: EngineState) -> Decision:
        decision = honest(self)
        kept = [w for w in decision.writes if not (type(w) is PutProcedure and w.was is None and w.record.parent)]
        return Decision(kept, decision.commands)

    patch.setattr(EngineState, "close", close)


def _stale_answers_are_accepted(patch: pytest.MonkeyPatch) -> None:
    def current(self: WorkerTable, token):
        worker = self.in_hand.get(token.procedure)
        return None if worker is None else worker.queue[token.procedure]

    patch.setattr(WorkerTable, "current", current)


def _tags_are_lost(*modules: Any) -> SeededBug:
    def plant(patch: pytest.MonkeyPatch) -> None:
        for module in modules:
            honest = module.grant
            patch.setattr(
                module,
                "grant",
                lambda state, record, asked, honest=honest: honest(state, record, replace(asked, tags=())),
            )

    return plant


def _fields_are_not_followed(module: Any) -> SeededBug:
    """The module changes states, and leaves the texts by which lists find them."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        if hasattr(module, "note_searchable"):
            patch.setattr(module, "note_searchable", lambda *_: None)
        else:
            patch.setattr(module, "head", SimpleNamespace(**{**vars(module.head), "note_searchable": lambda *_: None}))

    return plant


def _tags_come_with_a_failed_attempt(patch: pytest.MonkeyPatch) -> None:
    honest = on_result.on_step_error

    def on_step_error(state, record, error, **options):
        record.tags = ()
        honest(state, record, error, **options)

    patch.setattr(on_result, "on_step_error", on_step_error)


def _a_parent_is_woken_one_child_early(patch: pytest.MonkeyPatch) -> None:
    honest = finish.tell_parent

    def tell_parent(state, child):
        parent = state.residents.procs[child.parent]
        if parent.pending == 2:
            parent.pending = 1
        honest(state, child)

    for module in (finish, fast_end):
        patch.setattr(module, "tell_parent", tell_parent)


def _units_are_undone_oldest_first(patch: pytest.MonkeyPatch) -> None:
    def oldest(tree, top_id, is_skipped=None):
        del is_skipped
        return next((unit for unit in tree.units.values() if tree.is_below(unit.procedure, top_id)), None)

    patch.setattr(Tree, "newest_unit", oldest)


def _a_unit_is_dropped_without_being_undone(patch: pytest.MonkeyPatch) -> None:
    honest = failure_scope.is_left_alone
    patch.setattr(
        failure_scope, "is_left_alone", lambda state, member, top: honest(state, member, top) or member.step == 2
    )


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
    honest = EngineState.close

    def close(self: EngineState) -> Decision:
        decision = honest(self)
        for write in decision.writes:
            if type(write) is PutProcedure:
                write.record.attempt = 0
        return decision

    patch.setattr(EngineState, "close", close)


def _a_lost_worker_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    honest = WorkerTable.lose
    patch.setattr(WorkerTable, "lose", lambda self, worker: honest(self, worker)[:0])


def _locks_are_forgotten_when_a_child_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(finish, "_pass_on_locks", lambda state, record: state.locks.table.release(record.id))


def _every_waiter_gets_its_locks(patch: pytest.MonkeyPatch) -> None:
    honest = schedule.wake

    def wake(state, record, **options):
        record.locked = record.locked or record.state not in TERMINAL
        honest(state, record, **options)

    for module in (schedule, finish, failure_scope):
        patch.setattr(module, "wake", wake)


def _poisoned_keys_are_given_all_the_same(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(acquire, "poisoned_key", lambda state, record: None)


def _a_repeated_step_sees_children_that_ended_later(patch: pytest.MonkeyPatch) -> None:
    def children(store, parent: str, since: int):
        links = [link for link in store.children(parent) if link.step >= since]
        heads = [store.procedure(link.child) for link in links]
        return tuple(ending_of(store, head) for head in heads if head is not None and head.ended_as)

    patch.setattr(fake_workers, "children_seen", children)


def _a_refused_submit_is_done_all_the_same(patch: pytest.MonkeyPatch) -> None:
    honest = FakeShell._reply

    def reply(self: FakeShell, command: Reply) -> None:
        is_submit = isinstance(self.callers.get(command.reply), Submitted)
        refused = Reply(command.reply, error=ManagerBusy("full")) if is_submit else command
        honest(self, refused)

    patch.setattr(FakeShell, "_reply", reply)


def _an_abort_is_acknowledged_and_not_stored(patch: pytest.MonkeyPatch) -> None:
    honest = EngineState.close

    def close(self: EngineState) -> Decision:
        decision = honest(self)
        for write in decision.writes:
            if type(write) is PutProcedure:
                write.record.aborting = False
        return decision

    patch.setattr(EngineState, "close", close)


def _each_recovery_counts_as_an_attempt(patch: pytest.MonkeyPatch) -> None:
    honest = recovery.take_up

    def take_up(state: EngineState, busy: Sequence[Tree]) -> None:
        for record in state.residents.procs.values():
            if record.state not in TERMINAL:
                record.attempt += 1
                state.decision.touch(record)
        honest(state, busy)

    patch.setattr(recovery, "take_up", take_up)


def _the_ends_of_children_are_forgotten_when_the_last_one_ends(patch: pytest.MonkeyPatch) -> None:
    honest = finish.tell_parent

    def tell_parent(state, child):
        honest(state, child)
        child.ended_as = 0

    for module in (finish, fast_end):
        patch.setattr(module, "tell_parent", tell_parent)


def _handles_are_told_what_the_worker_said_last(patch: pytest.MonkeyPatch) -> None:
    def resolve(self: FakeShell, command: Resolve) -> None:
        states = [worker.live[command.id] for worker in self.workers.live.values() if command.id in worker.live]
        self.world.journal.append(("resolve", command.id, command.state, states[-1] if states else b""))

    patch.setattr(FakeShell, "_resolve", resolve)


def _a_neighbour_pays_for_a_lost_worker(patch: pytest.MonkeyPatch) -> None:
    honest = worker_loss.on_lost

    def on_lost(state, event):
        for name in state.workers.table.in_hand:
            state.residents.procs[name].errors += 1
            state.decision.touch(state.residents.procs[name])
        honest(state, event)

    patch.setitem(HANDLERS, WorkerLost, on_lost)


def _a_pause_hands_out_all_the_same(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tree, "is_still", lambda self, procedure: False)


def _slots_are_given_to_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeyLimits, "concerns", lambda self, record: False)


def _a_rate_counts_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Key, "open_at", lambda self, now: 0.0)


def _a_child_that_ended_while_its_parent_ran_is_not_seen(patch: pytest.MonkeyPatch) -> None:
    honest = children.join_group

    def join_group(state, record, outcome):
        if not record.pending:
            record.group, record.width, record.started = record.step - 1, 0, 0
        return honest(state, record, outcome)

    patch.setattr(children, "join_group", join_group)


def _running_steps_are_not_told(patch: pytest.MonkeyPatch) -> None:
    for module in (failure_scope, abort):
        patch.setattr(module, "cancel_step", lambda *_: None)


def _a_kill_for_an_abort_is_charged(patch: pytest.MonkeyPatch) -> None:
    honest = worker_loss.end_forced

    def end_forced(state, record, item):
        record.crashes += 1
        state.decision.touch(record)
        honest(state, record, item)

    patch.setattr(worker_loss, "end_forced", end_forced)


def _force_kills_undos(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cancellation, "_may_stop", lambda *_: True)


def _old_code_gets_what_new_code_has_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(schedule, "open_to", lambda state, procedure, among: among)


def _a_failed_commit_forgets_the_reload(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reload, "take_over", lambda *_: None)


def _an_attempt_that_was_refused_unbegun_is_undone(patch: pytest.MonkeyPatch) -> None:
    for module in (postponed_steps, abort):
        patch.setattr(module, "note_unbegun", lambda *_: None)


def _a_step_that_was_placed_is_undone(patch: pytest.MonkeyPatch) -> None:
    honest = on_result._place

    def place(state, record, item, outcome):
        record.attempt += 1  # its unit is of the attempt before
        honest(state, record, item, outcome)

    patch.setattr(on_result, "_place", place)


def _what_was_awaited_is_lost_to_who_is_placed(patch: pytest.MonkeyPatch) -> None:
    honest = on_result._place

    def place(state, record, item, outcome):
        record.awaiting, record.payload = 0, None
        honest(state, record, item, outcome)

    patch.setattr(on_result, "_place", place)


def _results_are_removed_before_they_are_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(removal, "TERMINAL", frozenset(ProcedureState))
    patch.setattr(removal, "_is_in_use", lambda *_: False)
    honest = removal.take

    def take(state, event):
        state.residents.trees, kept = {}, state.residents.trees
        honest(state, event)
        state.residents.trees = kept

    patch.setitem(HANDLERS, ResultsTaken, take)


def _results_that_were_taken_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(HANDLERS, ResultsTaken, lambda state, event: state.decision.command(Reply(event.reply, value=())))


def _hosts_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(schedule, "on_hosts", lambda _workers, _demand, among: among)


def _resources_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostTable, "take", lambda *_: None)


def _resources_are_never_given_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostTable, "give_back", lambda *_: None)


def _a_step_is_alone_beside_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lone_steps, "_steps_of_others", lambda *_: 0)


def _others_go_to_a_host_that_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostTable, "is_kept_from", lambda *_: False)


def _a_host_that_was_kept_stays_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostTable, "release", lambda *_: None)


def _other_code_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostTable, "divided", frozenset())


def _replies_are_told_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    honest = FakeShell._add

    def add(self: FakeShell, decision: Decision) -> None:
        for command in decision.commands:
            if isinstance(command, ResolveAsk):
                self._resolve_ask(command)
        honest(self, Decision(decision.writes, [c for c in decision.commands if not isinstance(c, ResolveAsk)]))

    patch.setattr(FakeShell, "_add", add)


def _any_wait_takes_an_ask(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(signals, "_fits", lambda _row, _event: True)


def _an_ask_that_comes_again_counts_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(signals, "is_repeated", lambda *_: False)


def _an_attempt_that_fails_replies(patch: pytest.MonkeyPatch) -> None:
    honest = on_result.on_step_error

    def on_step_error(state, record, error, **options):
        signal_ids.settle_ask(state, record, Finished())
        honest(state, record, error, **options)

    patch.setattr(on_result, "on_step_error", on_step_error)


def _replies_go_with_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(signal_ids, "_drop", signal_ids._drop_with_reply)
    honest = signal_ids.forget

    def forget(state, procedure):
        for mark in state.signals.taken.get(procedure, ()):
            state.decision.write(DeleteReply(procedure, mark))
        honest(state, procedure)

    patch.setattr(signal_ids, "forget", forget)


ASK_BUGS: dict[str, SeededBug] = {
    "replies are not stored": _without(PutReply),
    "replies are told before the commit": _replies_are_told_before_the_commit,
    "any wait takes an ask": _any_wait_takes_an_ask,
    "an ask that comes again counts again": _an_ask_that_comes_again_counts_again,
    "an attempt that fails replies": _an_attempt_that_fails_replies,
    "replies go with the end": _replies_go_with_the_end,
}
"""Found only where procedures are asked: in histories from `asks.FIRST_SEED` on."""

HOST_BUGS: dict[str, SeededBug] = {
    "hosts are not looked at": _hosts_are_not_looked_at,
    "resources are not counted": _resources_are_not_counted,
    "resources are never given back": _resources_are_never_given_back,
}
"""Found only where there are hosts: in histories from `hosts.FIRST_SEED` on."""

LONE_BUGS: dict[str, SeededBug] = {
    "a step is alone on its host beside others": _a_step_is_alone_beside_others,
    "others go to a host that is kept for one": _others_go_to_a_host_that_is_kept,
    "a host that was kept for one stays kept": _a_host_that_was_kept_stays_kept,
    "other code is not looked at": _other_code_is_not_looked_at,
}
"""Found only where a procedure loses host after host: in histories from `hosts.FIRST_LONE` on."""

NEW_CODE_BUGS: dict[str, SeededBug] = {
    "old code gets what new code has run": _old_code_gets_what_new_code_has_run,
    "a failed commit forgets the reload": _a_failed_commit_forgets_the_reload,
    "an attempt that was refused unbegun is undone": _an_attempt_that_was_refused_unbegun_is_undone,
    "a step that was placed is undone": _a_step_that_was_placed_is_undone,
    "what was awaited is lost to who is placed": _what_was_awaited_is_lost_to_who_is_placed,
    "results are removed before they are there": _results_are_removed_before_they_are_there,
    "results that were taken stay": _results_that_were_taken_stay,
}
"""Found only where code changes, or results are taken: in histories from `editions.FIRST_SEED` on."""

BUGS: dict[str, SeededBug] = {
    "running steps are not told of their undo": _running_steps_are_not_told,
    "a kill for an abort is charged": _a_kill_for_an_abort_is_charged,
    "force kills undos": _force_kills_undos,
    "a lock grant is not stored": _without(PutLock),
    "a lock release is not stored": _without(DeleteLock),
    "undo units are not stored": _without(PutUndo),
    "undone units are not removed": _without(DeleteUndo),
    "children are not written with their parent": _children_are_not_written_with_their_parent,
    "tags of a step are lost": _tags_are_lost(step_record),
    "tags of an undo are lost": _tags_are_lost(undo_step),
    "tags change with a failed attempt": _tags_come_with_a_failed_attempt,
    "a step leaves its fields behind": _fields_are_not_followed(step_record),
    "an undo leaves its fields behind": _fields_are_not_followed(undo_step),
    "stale answers are accepted": _stale_answers_are_accepted,
    "a parent is woken one child early": _a_parent_is_woken_one_child_early,
    "a child that ended while its parent ran is not seen": _a_child_that_ended_while_its_parent_ran_is_not_seen,
    "units are undone oldest first": _units_are_undone_oldest_first,
    "a unit is dropped without being undone": _a_unit_is_dropped_without_being_undone,
    "replies leave before the commit": _replies_leave_before_the_commit,
    "steps are handed out before the commit": _steps_are_handed_out_before_the_commit,
    "attempts are not stored": _attempts_are_not_stored,
    "a lost worker is forgotten": _a_lost_worker_is_forgotten,
    "locks are forgotten when a child ends": _locks_are_forgotten_when_a_child_ends,
    "every waiter gets its locks": _every_waiter_gets_its_locks,
    "poisoned keys are given all the same": _poisoned_keys_are_given_all_the_same,
    "poison keys are not stored": _without(PutPoison),
    "signals are not stored": _without(PutEvent),
    "a repeated step sees children that ended later": _a_repeated_step_sees_children_that_ended_later,
    "the ends of children are forgotten": _the_ends_of_children_are_forgotten_when_the_last_one_ends,
    "a refused submit is done all the same": _a_refused_submit_is_done_all_the_same,
    "an abort is acknowledged and not stored": _an_abort_is_acknowledged_and_not_stored,
    "each recovery counts as an attempt": _each_recovery_counts_as_an_attempt,
    "handles are told what the worker said last": _handles_are_told_what_the_worker_said_last,
    "a neighbour pays for a lost worker": _a_neighbour_pays_for_a_lost_worker,
    "the switch of the manager is not stored": _without(PutSwitch),
    "a pause hands out all the same": _a_pause_hands_out_all_the_same,
    "slots are given to all": _slots_are_given_to_all,
    "a rate counts no start": _a_rate_counts_nobody,
    "an acknowledgement is not stored": _without(PutAcknowledgement),
}


_FIRST_SEEDS = (
    (BUGS, 1),
    (HOST_BUGS, hosts.FIRST_SEED),
    (LONE_BUGS, hosts.FIRST_LONE),
    (NEW_CODE_BUGS, FIRST_SEED),
    (ASK_BUGS, asks.FIRST_SEED),
)


@pytest.mark.parametrize("bug", [*BUGS, *NEW_CODE_BUGS, *HOST_BUGS, *LONE_BUGS, *ASK_BUGS])
def test_a_planted_bug_is_found(
    bug: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    (BUGS | NEW_CODE_BUGS | HOST_BUGS | LONE_BUGS | ASK_BUGS)[bug](monkeypatch)

    faults, found = 0, None
    first = next(seed for bugs, seed in _FIRST_SEEDS if bug in bugs)
    for seed in range(first, first + BUDGET):
        history = simulate(seed)
        faults += history.faults.total()
        if history.violations:
            found = history
            break

    assert found is not None, f"survived {faults} effective faults in {BUDGET} histories"
    # A plant that does not fit the code any more would be found for the wrong reason.
    assert not [violation for violation in found.violations if "raised TypeError" in violation.text]
    numbers = sorted({violation.number for violation in found.violations})
    said = f"found in history {found.seed}, after {faults} effective faults, as invariant {numbers}"
    print(f"{bug}: {said}")  # noqa: T201 - shown by pytest -rP
    record_property("histories", found.seed)
    record_property("faults", faults)
