"""Deciding: who answers for each event, and what that sets off until nothing moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actorproc.core.lifecycle import enqueued, removal, renewal, signals, step_record, submit
from actorproc.core.lock_manager import acquire
from actorproc.core.operator.verbs import VERBS
from actorproc.core.results import abort, adoption, due_times, firings, on_result, victims, worker_loss
from actorproc.core.rollback import failure_scope
from actorproc.core.scheduler import dedicated, lanes, reload, scaling, schedule
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.schedules import named_by_timer
from actorproc.model.messages.commands import Decision
from actorproc.model.messages.events import (
    EnqueuedFound,
    Event,
    HostAdded,
    HostClaimed,
    HostDraining,
    HostRemoved,
    NoteMade,
    ReloadBegan,
    RemovalContinued,
    Resized,
    ResultsTaken,
    SignalsExpired,
    StepDelayed,
    StepEnded,
    StepReported,
    StepReturned,
    Submitted,
    Tick,
    TreesExpired,
    TypeRegistered,
    WorkerLeaving,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.policies import TypeMeta

__all__ = ["HANDLERS", "follow_up", "settle"]


def settle(state: EngineState) -> Decision:
    """Follow up what an event set off; then fill the workers and close the decision."""
    follow_up(state)
    while not _fills_workers(state):
        follow_up(state)
    if state.ended.shedding:
        renewal.shed(state)
    return state.close()


def follow_up(state: EngineState) -> None:
    """Carry out all that an event set off without a worker: grants, victims, failing scopes.

    Empties the pending decision.
    """
    while True:
        if state.locks.table.has_news:
            for record in acquire.note_grants(state):
                schedule.wake(state, record)
        elif state.follow_ups.bereft:
            acquire.demote(state)
        elif state.follow_ups.retaken:
            retried = state.residents.trees[state.follow_ups.retaken.popitem()[0]]
            schedule.go_on(state, retried, retried.root)
        elif state.follow_ups.hurried:
            schedule.hurry(state)
        elif (
            state.follow_ups.refused
            or state.follow_ups.orphaned
            or state.follow_ups.outlived
            or state.follow_ups.victims
        ):
            victims.fail_next(state)
        elif (top := failure_scope.next_scope(state)) is not None:
            failure_scope.advance(state, top)
        elif state.follow_ups.searches:
            victims.search_stalled(state)
        elif state.queues.admission.waiting and state.queues.admission.next() is not None:
            schedule.let_in(state)
        elif state.follow_ups.overdue:
            _end_overdue(state)
        else:
            return


def _end_overdue(state: EngineState) -> None:
    """Procedures whose turn came after their deadline; by now it may have ended with its tree, for that of a relative.

    Or a relative was handed a step from which there is no way back: then it goes forward, late as it is.
    """
    record = state.residents.procs[state.follow_ups.overdue.popitem()[0]]
    if state.is_late(record):
        due_times.miss_deadline(state, record)
    else:
        schedule.wake(state, record)


def _fills_workers(state: EngineState) -> bool:
    """Give the workers what they have room for; True when that set off nothing else."""
    if state.workers.hired:
        dedicated.let_finished_go(state)
    schedule.fill(state)
    return not state.follow_ups.overdue and not state.follow_ups.refused


def _register(state: EngineState, event: TypeRegistered) -> None:
    known = state.types.metas.get(event.meta.type_name)
    state.types.know(event.meta)
    if known is not None and _way_of(known) != _way_of(event.meta):
        lanes.queue_again(state, event.meta.type_name)
    if state.follow_ups.asking and not event.meta.asks_abort:
        abort.need_not_ask(state, event.meta.type_name)
    for declared in state.schedules.records.values():
        if declared.fault is not None and declared.new.type_name == event.meta.type_name:
            state.look_at_schedule(declared.id, state.decision.now)
    for name in state.types.parked.pop(event.meta.type_name, ()):
        record = state.residents.procs.get(name)
        if record is None or (record.parked is None and record.type_name != event.meta.type_name):
            continue  # it has ended, or goes on already since its own type was registered
        if record.parked is not None:
            record.parked = None
            state.decision.touch(record)
        if record.aborting and abort.may_abort(state.residents, record):
            abort.begin_abort(state, record)
        schedule.wake(state, record)


def _way_of(meta: TypeMeta) -> tuple[object, ...]:
    """Traits that decide where procedures of a class wait for a worker."""
    return meta.work_class, meta.dedicated, meta.on, meta.resources


def _tick(state: EngineState, _event: Tick) -> None:
    for name in state.timers.pop_due(state.decision.now):
        record = state.residents.procs.get(name)
        if record is not None:
            due_times.on_due(state, record)
        elif state.schedules.records and (due := named_by_timer(name)) is not None:
            firings.look_at(state, due)
    if state.residents.overdue and state.switches.hands_out:
        schedule.end_debounces(state)
    state.queues.key_limits.pass_time(state.decision.now)
    schedule.steal(state)
    scaling.look_after(state)


HANDLERS: dict[type[Event], Callable[[EngineState, Any], None]] = {
    StepEnded: on_result.on_ended,
    Submitted: submit.submit,
    EnqueuedFound: enqueued.take,
    StepReturned: on_result.on_returned,
    StepDelayed: on_result.on_delayed,
    WorkerReady: worker_loss.on_ready,
    HostClaimed: adoption.on_claimed,
    HostAdded: lanes.on_joined,
    HostDraining: dedicated.on_draining,
    HostRemoved: lanes.on_left,
    WorkerLeaving: dedicated.on_leaving,
    WorkerLost: worker_loss.on_lost,
    TypeRegistered: _register,
    SignalsExpired: signals.expire,
    NoteMade: step_record.note,
    StepReported: step_record.report,
    ResultsTaken: removal.take,
    TreesExpired: removal.expire,
    RemovalContinued: removal.continue_removal,
    Resized: scaling.resize,
    ReloadBegan: reload.begin,
    Tick: _tick,
    **{verb.event: verb.handle for verb in VERBS},
}
"""Handlers by type of event; a test compares it with the vocabulary."""
