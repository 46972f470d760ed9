"""A step that ended when its tree failed already: it counts, and what it asked for is noted for a retry."""

from __future__ import annotations

from actorproc.core.lifecycle.children import join_group
from actorproc.core.state import head
from actorproc.core.state.engine_state import EngineState
from actorproc.model.messages.outcomes import Advanced, Outcome, Slept, Suspended, Waited
from actorproc.model.rows.records import Interrupted, ProcedureRecord
from actorproc.model.states import ProcedureState

__all__ = ["last_step", "note_interrupted", "stop_late"]


def stop_late(state: EngineState, record: ProcedureRecord) -> None:
    """A step of a failing scope ended: the member waits for nothing any more."""
    head.wait_no_longer(record)
    state.queues.run_queue.discard(record.id)
    state.decision.touch(record)


def note_interrupted(state: EngineState, record: ProcedureRecord, outcome: Outcome) -> None:
    """Note what a step asked for when its tree failed already: not begun now, kept for a retry that goes forward."""
    if isinstance(outcome, Suspended):
        join_group(state, record, outcome)
        head.interrupt(record, Interrupted(ProcedureState.WAITING))
    elif isinstance(outcome, Waited):
        due_at = None if outcome.timeout is None else state.decision.now + outcome.timeout
        waiting = ProcedureState.WAITING if due_at is None else ProcedureState.WAITING_TIMEOUT
        head.interrupt(record, Interrupted(waiting, outcome.event, due_at))
    elif isinstance(outcome, Slept | Advanced):
        pause = outcome.pause(state.decision.now) if isinstance(outcome, Slept) else outcome.after
        added = outcome.acquire if isinstance(outcome, Advanced) else ()
        keys = tuple(dict.fromkeys((*record.locks, *added))) if added else ()
        if pause > 0:
            intended = Interrupted(ProcedureState.WAITING_TIMEOUT, None, state.decision.now + pause, keys=keys)
            head.interrupt(record, intended)
        elif keys:
            head.interrupt(record, Interrupted(ProcedureState.RUNNABLE, keys=keys))


def last_step(record: ProcedureRecord) -> Interrupted:
    """The step that is about to end too late to count; where it was `on_timeout`, the wait before it."""
    waiting = ProcedureState.SUCCESS if record.event is None else ProcedureState.WAITING
    return Interrupted(
        waiting,
        record.event,
        step=record.step,
        record=record.state_at or record.records,
        step_name=record.step_name,
        searchable=record.searchable,
    )
