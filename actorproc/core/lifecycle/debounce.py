"""Debounced submits: of all that come for a key, the last one runs, once none has come for a time.

The first submit of a key makes a root that waits for its due time. A further one takes its place while it waits: it
has that root's id, its own state and options, and the wait begins anew. Once the wait is over the root runs as any
other, and the next submit of the key begins another wait, under another id. So one root waits for a key at most.

A submit may come twice: its client asks again after a lost answer. Its token is kept with the run that it began or
changed, and with the next few runs of the key. So the second one changes nothing, even when that run has ended.
"""

from __future__ import annotations

from msgspec.structs import replace

from actorproc.core.queues.worker_table import BULKY
from actorproc.core.state import head
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.residents import ResidentSet
from actorproc.errors import DuplicateProcedure
from actorproc.model.rows.cold_trees import debounce_of
from actorproc.model.rows.record_parts import TOKEN, Debounce, DebounceTerms, Past
from actorproc.model.rows.records import NewProcedure, ProcedureRecord

__all__ = ["KEPT", "RUNS", "begin", "clash", "newest", "run_of", "shorten", "take_place"]

KEPT = 64
"""Tokens that a root keeps at most for each run of its key."""
RUNS = 4
"""Runs of a key of which a root knows, itself included."""


# ---------------------------------------------------------------------- looking
def newest(residents: ResidentSet, key: str) -> ProcedureRecord | None:
    """The newest root of a key, which `Coordinator.missing` has had loaded; None: there is none."""
    name = residents.debounced.get(key)
    return None if name is None else residents.procs[name]


def run_of(known: ProcedureRecord, token: bytes) -> str | None:
    """The run that this very submit has begun or changed before; None: it comes for the first time."""
    mark = debounce_of(known)
    if mark is not None:
        for name, tokens in mark.runs:
            if any(tokens[at : at + TOKEN] == token for at in range(0, len(tokens), TOKEN)):
                return name
    return None


def clash(new: NewProcedure, waiting: ProcedureRecord | None, terms: DebounceTerms) -> DuplicateProcedure | None:
    """The error of a submit whose key another type waits for; None: it may wait."""
    if waiting is None or waiting.type_name == new.type_name:
        return None
    return DuplicateProcedure(
        f"{waiting.id} waits for further submits of {terms.key!r}, and is a {waiting.type_name}; a {new.type_name} "
        "cannot take its place. Use a key for each type"
    )


# ---------------------------------------------------------------------- deciding
def begin(state: EngineState, record: ProcedureRecord, terms: DebounceTerms, before: ProcedureRecord | None) -> None:
    """A new root waits; `before` is the run of its key before it."""
    mark = None if before is None else debounce_of(before)
    runs = ((record.id, terms.token), *(() if mark is None else mark.runs))[:RUNS]
    record.past = replace(record.past or Past(), debounce=Debounce(terms.key, terms.within, runs))
    state.residents.debounced[terms.key] = record.id
    head.wait_until(record, _due(state, record, terms))


def take_place(state: EngineState, record: ProcedureRecord, new: NewProcedure, terms: DebounceTerms) -> None:
    """The root that waits is what this submit says from now on, and waits anew. The caller writes its first state.

    It keeps its id, its place in submit order, what was sent to it, and what operators did with it.
    """
    if record.deadline is not None:
        state.timers.discard(record.deadline, record.id)
    if new.deadline is not None:
        state.timers.add(new.deadline, record.id)
    if new.limits is not None and (new.limits.dedicated or new.limits.is_placed):
        state.types.note_choosy()
    state.workers.table.forget_size(record.id)
    if len(new.state) >= BULKY:
        state.workers.table.note_size(record.id, len(new.state))
    record.version, record.digest = new.version, new.digest
    record.unit, record.step_name = new.unit, new.step_name
    record.unit_no_return, record.poisons = new.no_return, new.poisons
    record.locks, record.locked = new.locks, not new.locks
    record.limits, record.limit_keys = new.limits, new.limit_keys
    record.owner, record.priority, record.tags = new.owner, new.priority, new.tags
    record.deadline = new.deadline
    record.past = replace(record.past or Past(), debounce=_with_submit(record, terms), trace=new.trace)
    head.note_searchable(record, new.searchable)
    state.residents.overdue.pop(record.id, None)
    head.wait_until(record, _due(state, record, terms))
    state.decision.touch(record)


def shorten(state: EngineState, record: ProcedureRecord) -> None:
    """The clock may have been set back: no wait is longer from now on than its last submit said."""
    mark = debounce_of(record)
    if mark is None or record.due_at is None or record.due_at <= state.decision.now + mark.within:
        return
    head.wait_until(record, state.decision.now + mark.within)
    state.timers.add(state.decision.now + mark.within, record.id)
    state.decision.touch(record)


def _due(state: EngineState, record: ProcedureRecord, terms: DebounceTerms) -> float:
    at = state.decision.now + terms.within
    return min(at, record.created_at + terms.at_most) if terms.at_most else at


def _with_submit(record: ProcedureRecord, terms: DebounceTerms) -> Debounce:
    mark = debounce_of(record)
    assert mark is not None
    (name, tokens), *others = mark.runs
    return Debounce(terms.key, terms.within, ((name, (terms.token + tokens)[: KEPT * TOKEN]), *others))
