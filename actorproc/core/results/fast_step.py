"""The short way from one step to the next, for the procedure that nothing stands beside.

Most answers say "executing", and most of those change nothing but the procedure itself. No other waits, no lock and no
limit is touched, and the worker that answered goes on with the next step. The long way asks a dozen parts of the core
and hears "nothing to do" from each. Here their conditions stand in one place. When one is not met, the answer takes
the long way. When all are met, the decision is the same to the byte (a test plays the same histories on both ways).
"""

from __future__ import annotations

from actorproc.core.lifecycle.step_record import commit_step, may_have_gone_on
from actorproc.core.scheduler.schedule import push_unit
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.head import is_plain
from actorproc.core.state.step_limits import known_limits_of
from actorproc.model.ids import Mode, StepToken
from actorproc.model.messages.commands import Decision, RunStep
from actorproc.model.messages.events import StepEnded
from actorproc.model.messages.outcomes import Advanced
from actorproc.model.trace_context import step_context

__all__ = ["go_straight_on"]

# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_EXECUTE = Mode.EXECUTE


def go_straight_on(state: EngineState, event: StepEnded, outcome: Advanced) -> Decision | None:
    """The decision when the procedure's next step goes to the same worker and nothing else moves; else None."""
    token = event.token
    procedure = token.procedure
    record = state.residents.procs.get(procedure)
    worker_table = state.workers.table
    worker = worker_table.in_hand.get(procedure)
    if record is None or worker is None or not _is_quiet(state) or not is_plain(record):
        return None
    if outcome.after or outcome.acquire or outcome.yield_ or outcome.no_return or outcome.poisons is not None:
        return None
    tree = state.residents.trees[record.root]
    if outcome.placed or outcome.requests is not None or tree.still or (record.parent is not None and tree.held):
        return None
    if (record.locks and record.lock_scope == "step") or record.type_name not in state.types.metas:
        return None
    if record.deadline is not None and record.deadline <= state.decision.now:
        return None
    if token.mode is not _EXECUTE or (record.attempt > 1 and may_have_gone_on(outcome)):
        return None
    item = worker.queue[procedure]
    known = known_limits_of(state.types, record)
    if item.forced is not None or item.token != token or not known.is_plain or known.steps is not None:
        return None
    if not worker_table.keep(worker, item, state.decision.now, outcome.elapsed):
        return None
    warm = state.workers.warm
    warm[procedure] = worker.id
    commit_step(state, record, item, outcome, "executing", None, 1)
    record.epoch = state.counters.epoch
    if record.unit is None:
        record.last_unit = None
    elif record.unit != record.last_unit:
        push_unit(state, record, record.unit)
    now, ready = state.decision.now, state.queues.run_queue
    if now != ready.told:
        ready.clock(now)
    item.token = StepToken(state.counters.epoch, worker.id, procedure, record.step, 1, _EXECUTE)
    limits = known.limits
    state.decision.commands.append(
        RunStep(
            item.token,
            record.type_name,
            True,  # warm
            record.root,
            record.parent,
            False,  # replayed
            False,  # aborting
            record.deadline,
            0,
            None,
            record.records,
            None,
            limits.wall_time,
            limits.grace,
            limits.heartbeat,
            generation=record.generation,
            begun=record.begun,
            step_name=record.step_name,
            trace=b"" if record.past is None else step_context(record, item.token),
        )
    )
    return state.close()


def _is_quiet(state: EngineState) -> bool:
    """No procedure waits for a worker, a slot, or to be asked; all workers are for all, and steps are handed out."""
    return not (
        state.workers.shares is not None
        or state.queues.run_queue.live
        or state.queues.run_queue.cold
        or state.queues.key_limits.waiting
        or state.queues.admission.capacity is not None
        or state.follow_ups.asking
        or state.workers.hired
        or state.workers.suspects
        or state.follow_ups.stalled
        or state.ended.shedding
        or not state.switches.hands_out
    )
