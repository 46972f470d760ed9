"""Steps in workers' hands that are to end early: told, taken back while they have not begun, or killed.

A forward step whose undo is decided is told at once (`Context.aborting`) and may go on to its end, or for its
`StepLimits.abort_grace`; force kills it. An answer before the kill counts. Neither concerns a step past the point
of no return, or one that undoes. A kill is charged to no counter; where its worker runs other
steps they start again. An async step is cancelled instead, at once where nothing gives it time, and its worker
is killed only if it does not end.
"""

from __future__ import annotations

from math import inf

from actorproc.core.queues.worker_table import InHand, Worker
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.residents import ResidentSet
from actorproc.core.state.step_limits import limits_of
from actorproc.core.state.tree import Tree
from actorproc.model.ids import Mode
from actorproc.model.messages.commands import AskAbort, KillWorker, TakeBack
from actorproc.model.rows.records import ProcedureRecord

__all__ = [
    "ABORTED",
    "KILLED",
    "cancel_step",
    "kill_cancelled",
    "kill_outstaying",
    "kill_step",
    "resume_cancelling",
    "stop_forced",
    "stop_next",
    "take_back",
]

KILLED = "killed"
"""Reason to stop a step whose attempt an operator ends: it runs again."""
ABORTED = "aborted"
"""Kind of the report of a worker that is killed since its step must not go on: no limit was passed."""
_REASONS = {
    KILLED: "killed by operator",
    "aborted": "aborted by force",
    "undone": "its undo is decided",
    "abort-grace": "it still ran when the time was over that its abort_grace gives a step whose undo is decided",
    "bypassed": "bypassed by force",
    "deadline": "past the procedure's deadline",
}
"""The words to the worker, by the reason why the step must not go on."""


# ---------------------------------------------------------------------- one step
def take_back(state: EngineState, record: ProcedureRecord) -> None:
    """Ask for a step that a worker has in hand and has not begun."""
    worker = state.workers.table.in_hand.get(record.id)
    if worker is None:
        return
    item = worker.queue[record.id]
    if not item.recalled and not state.workers.table.has_begun(worker, item):
        item.recalled = True
        state.decision.command(TakeBack(worker.id, (item.token,)))


def stop_forced(state: EngineState, worker: Worker, item: InHand) -> None:
    """End a step that must not go on: kill the worker when the step runs, else take it back.

    Killing for a step that only waits behind another would hit an innocent one.
    """
    if state.workers.table.has_begun(worker, item):
        if not item.killed:
            item.killed = True
            why = item.forced or "aborted"
            # The kind says that no limit of the step was passed, also when memory is lost before its worker is.
            kind = KILLED if why == KILLED else ABORTED
            state.decision.command(KillWorker(worker.id, item.token, _REASONS[why], kind))
    elif not item.recalled:
        item.recalled = True
        state.decision.command(TakeBack(worker.id, (item.token,)))


def stop_next(state: EngineState, worker: Worker) -> None:
    """A worker goes on to its next step: one that must not go on was not taken back in time."""
    following = next(iter(worker.queue.values()))
    if following.forced is not None:
        stop_forced(state, worker, following)


# ---------------------------------------------------------------------- a step whose undo is decided
def cancel_step(state: EngineState, record: ProcedureRecord) -> None:
    """Tell the forward step in hand, if there is one, that its undo is decided. Telling it again changes nothing."""
    worker = state.workers.table.in_hand.get(record.id)
    if worker is None:
        return
    item = worker.queue[record.id]
    if item.told or not _may_stop(state.residents, record, item):
        return
    record.cancelled_at = state.decision.now
    state.decision.touch(record)
    item.told = True
    state.decision.command(AskAbort(item.token))
    take_back(state, record)
    _allow(state, record, item)


def kill_step(state: EngineState, record: ProcedureRecord, why: str = "aborted") -> None:
    """Kill the forward step in hand, if there is one and it may be stopped."""
    worker = state.workers.table.in_hand.get(record.id)
    if worker is None:
        return
    item = worker.queue[record.id]
    if not _may_stop(state.residents, record, item):
        return
    if item.forced is None:
        item.forced = why
    stop_forced(state, worker, item)


def kill_cancelled(state: EngineState, top: ProcedureRecord) -> None:
    """Kill the forward steps of a procedure and its descendants whose undo is decided."""
    tree = state.residents.tree_of(top)
    for name in sorted(tree.running):
        if tree.members[name].rolling and tree.is_below(name, top.id):
            kill_step(state, tree.members[name])


def kill_outstaying(state: EngineState, record: ProcedureRecord) -> None:
    """A timer of the procedure went off: its step may have had the time it was given."""
    worker = state.workers.table.in_hand.get(record.id)
    if worker is None:
        return
    kill_at = worker.queue[record.id].kill_at
    if kill_at is not None and kill_at <= state.decision.now:
        kill_step(state, record, "abort-grace")


def resume_cancelling(state: EngineState, tree: Tree) -> None:
    """Restore the notices and kills of running steps, whose workers lived on while memory was read again."""
    for name in sorted(tree.running):
        record = tree.members[name]
        item = state.workers.table.in_hand[name].queue[name]
        is_decided = record.rolling or (record.aborting and record.cancelled_at is not None)
        if not is_decided or not _may_stop(state.residents, record, item):
            continue
        item.told = True
        line = [tree.members[above] for above in tree.lineage(name)]
        if any(above.rolling and above.aborting and above.forced for above in line):
            kill_step(state, record)
        _allow(state, record, item)


def _may_stop(residents: ResidentSet, record: ProcedureRecord, item: InHand) -> bool:
    """True of a forward step before the point of no return whose procedure no operator bypasses."""
    mode = item.token.mode
    if mode is Mode.ROLLBACK or mode is Mode.ASK_ABORT or record.bypassing:
        return False
    if record.unit_no_return and mode is Mode.EXECUTE:
        return False
    return record.rolling or not residents.has_no_return(record)


def _allow(state: EngineState, record: ProcedureRecord, item: InHand) -> None:
    """Let the step go on for the abort grace of its limits."""
    grace = None
    if record.limits is not None or record.type_name in state.types.metas:
        grace = limits_of(state.types, record).abort_grace
    if grace is None:
        grace = state.settings.scheduling.abort_grace
    if grace is None and item.is_task:
        kill_step(state, record, "undone")  # a task is told by its cancellation, which it may act on
        return
    if grace is None or grace == inf:
        return
    item.kill_at = (state.decision.now if record.cancelled_at is None else record.cancelled_at) + grace
    if item.kill_at <= state.decision.now:
        kill_step(state, record, "abort-grace")
    else:
        state.timers.add(item.kill_at, record.id)
