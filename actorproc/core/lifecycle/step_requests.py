"""Requests of a step that are granted in the commit of its success: new roots, and changes of its tags."""

from __future__ import annotations

from msgspec.structs import replace

from actorproc.core.lifecycle.restart import make_room
from actorproc.core.lifecycle.submit import admit, clash_of_twins, refusal
from actorproc.core.scheduler.schedule import wake
from actorproc.core.state.engine_state import EngineState
from actorproc.model.messages.outcomes import StepRequests
from actorproc.model.rows.records import NewProcedure, ProcedureRecord
from actorproc.model.rows.tags import MAX_TAGS, changed_tags
from actorproc.model.trace_context import child_trace

__all__ = ["grant", "problem_with_requests"]


def problem_with_requests(state: EngineState, record: ProcedureRecord, requests: StepRequests) -> str | None:
    """Reason why the engine cannot grant what a step asked for; None when it can."""
    named: dict[str, NewProcedure] = {}
    for new in requests.roots:
        twin = named.setdefault(new.id, new)
        error = refusal(state, new) if twin is new else clash_of_twins(new, twin)
        if error is not None:
            return f"submit_root: {error}"
    count = len(changed_tags(record.tags, requests.tags)) if requests.tags else 0
    if count > MAX_TAGS:
        return f"set_tag: {record.id} would have {count} tags, of {MAX_TAGS} at most; remove some, or use a field"
    return None


def grant(state: EngineState, record: ProcedureRecord, requests: StepRequests) -> None:
    """Carry out what the step asked for that is recorded with this decision."""
    for new in requests.roots:
        if new.id in state.residents.procs:
            continue  # it was submitted before, with the same start
        make_room(state, (), (new.id,))
        due_at = None if new.due_at is None else state.decision.now + new.due_at
        trace = child_trace(record, new.id, left=True)
        wake(state, admit(state, replace(new, due_at=due_at, trace=trace), parent=None))
    if requests.tags:
        record.tags = changed_tags(record.tags, requests.tags)
        state.decision.touch(record)
