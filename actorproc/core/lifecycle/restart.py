"""Submits that name an existing id and say what is to become of it: refusals, and restarts of what has ended.

As the id reuse policies of Temporal's workflows. A restart begins a new generation of a root: its number is one
higher, so idempotency keys and default ids of children differ from those before. The root's rows are replaced in the
commit of the submit; members of the ended tree follow in slices, as those of `Status.again` do.

A submit may come twice: its client asks again after a lost answer. Each has a token, which the head keeps, so the
second one finds that it was done. The head keeps the tokens of its newest generations, so that a repetition that comes
after a later restart begins nothing either.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from actorproc.core.lifecycle.removal import remove_one
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.undo_order import ended_with, left_to_undo
from actorproc.errors import ActorprocError, DuplicateProcedure, KeyPoisoned, NotAllowed
from actorproc.model.rows.cold_trees import debounce_of
from actorproc.model.rows.record_parts import TOKEN
from actorproc.model.rows.records import IdReuse, NewProcedure, Past, ProcedureRecord
from actorproc.model.states import TERMINAL, ProcedureState

__all__ = ["KEPT", "follows", "make_room", "no_restart", "refusal", "was_done"]

KEPT = 16
"""Tokens that a head keeps at most: those of its newest generations."""


def refusal(state: EngineState, new: NewProcedure, reuse: IdReuse, known: ProcedureRecord) -> ActorprocError | None:
    """The error of a submit whose policy does not let it have the id of an existing procedure; None: it may."""
    if reuse.policy == "error":
        return DuplicateProcedure(
            f"procedure {known.id} ({known.type_name}) exists and is {known.state}, and was submitted with "
            "on_existing='error'; use another id"
        )
    if known.type_name != new.type_name:
        return DuplicateProcedure(
            f"procedure {known.id} exists as {known.type_name}; it cannot be restarted as {new.type_name}"
        )
    return no_restart(state, reuse, known)


def no_restart(state: EngineState, reuse: IdReuse, known: ProcedureRecord) -> ActorprocError | None:
    """The reason why a procedure cannot begin its next generation now; None when it can."""
    name = f"{known.id} cannot be restarted: it"
    if known.parent is not None:
        return NotAllowed(f"{name} is a child of {known.parent}; only a root can, with all that ran under it")
    if known.state not in TERMINAL:
        return NotAllowed(f"{name} has not ended (it is {known.state}); wait for its end, or abort it")
    tree = state.residents.tree_of(known)
    if tree.open:
        return NotAllowed(f"{name} left children behind that have not finished; it can be when they have")
    if tree.running:
        return NotAllowed(f"{name} has ended, but a worker is still asked whether it may be aborted; submit it again")
    if reuse.policy == "restart-failed" and known.state is ProcedureState.SUCCESS:
        return NotAllowed(
            f"{name} has succeeded, and on_existing='restart-failed' takes what failed or was undone; "
            "on_existing='restart' takes it as well"
        )
    path = next((path for path, poison in state.locks.poisons.items() if known.id in poison.roots), None)
    if path is not None:
        # The new generation is the same root to its own poison, which would not stop it.
        return KeyPoisoned(f"{name} left a key poisoned: {state.locks.poison_notice(path)}")
    has_failed = known.state is ProcedureState.FAILED
    unit = left_to_undo(state.residents, tree, ended_with(tree, known)) if has_failed else None
    if unit is not None:
        # Its units would go with the rows of the tree, and no retry could undo them any more.
        what = f"{unit.procedure} {unit.label}" if unit.label else unit.procedure
        return NotAllowed(
            f"{known.id} cannot be restarted: its rollback gave up, and {what} is not undone. "
            f"retry({known.id!r}) goes on with the undo; bypass({known.id!r}) leaves it as it is"
        )
    return None


def was_done(known: ProcedureRecord, reuse: IdReuse) -> bool:
    """True if this very submit began a generation of the procedure: it was sent again."""
    tokens = known.tokens
    return any(tokens[at : at + TOKEN] == reuse.token for at in range(0, len(tokens), TOKEN))


def make_room(state: EngineState, restarted: Iterable[str], accepted: Iterable[str]) -> None:
    """Remove the ended roots that begin anew, and members of earlier generations whose ids new procedures get."""
    for name in restarted:
        known = state.residents.procs[name]
        tree = state.residents.tree_of(known)
        state.dismiss(tree)
        state.residents.unsettled.pop(name, None)
        remove_one(state, known)
        state.ended.shedding.update((id_, member) for id_, member in tree.members.items() if member is not known)
        state.decision.predecessors[name] = known
    for name in accepted:
        if name in state.ended.shedding:
            remove_one(state, state.ended.shedding[name])


def follows(state: EngineState, record: ProcedureRecord, reuse: IdReuse) -> bool:
    """Mark the head of a procedure with its token; True when it is the next generation of another one.

    That one has the place of the other in submit order. So it stays the first of its tree. It keeps its age where a
    deadlock's victim is the youngest, as a restarted transaction keeps its timestamp.
    """
    known = state.decision.predecessors.pop(record.id, None)
    if known is None:
        record.past = Past(tokens=reuse.token)
        return False
    state.schedules.note_open(record.id)
    record.seq = known.seq
    record.generation = known.generation + 1
    renewed = state.counters.next_seq if known.children or known.renewed else 0
    tokens = (reuse.token + known.tokens)[: KEPT * TOKEN]
    known_by = debounce_of(known)
    mark = None if known_by is None else replace(known_by, waits=False)
    record.past = Past(renewed=renewed, tokens=tokens, first=record.generation, debounce=mark)
    return True
