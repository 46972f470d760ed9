"""Stored states that run anew for an operator: an ended root from its first one, a new root from that of any step."""

from __future__ import annotations

from actorproc.core.lifecycle import restart
from actorproc.core.lifecycle.submit import admit, too_many
from actorproc.core.lock_manager import acquire
from actorproc.core.scheduler.schedule import wake
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.quarantine import error_of
from actorproc.errors import ActorprocError, DuplicateProcedure, KeyPoisoned, NotAllowed, UnknownProcedure
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import ForkRequested, RestartRequested
from actorproc.model.rows.record_parts import origin_of
from actorproc.model.rows.records import IdReuse, NewProcedure, ProcedureRecord

__all__ = ["request_fork", "request_restart"]


# ---------------------------------------------------------------------- restart
def request_restart(state: EngineState, event: RestartRequested) -> None:
    """Begin the next generation of an ended root, as a submit with ``on_existing="restart"`` does."""
    known, new = state.residents.procs.get(event.id), event.new
    if known is None or event.id in state.damage.procedures:
        state.decision.command(Reply(event.reply, error=_unknown(state, event.id)))
        return
    reuse = new.reuse
    assert reuse is not None
    if restart.was_done(known, reuse):
        state.decision.command(Reply(event.reply, value=True))
        return
    error = _no_restart(state, event, known, reuse) or _no_run(state, new)
    if error is not None:
        state.decision.command(Reply(event.reply, error=error))
        return
    restart.make_room(state, (known.id,), (known.id,))
    record = admit(state, new, parent=None, like=known)
    record.begun = origin_of(known.begun, known.past)  # the first state of a fork is that of a later step
    state.audit(record, "restart", event, f"generation {record.generation}")
    wake(state, record)
    state.decision.command(Reply(event.reply, value=True))


def _no_restart(
    state: EngineState, event: RestartRequested, known: ProcedureRecord, reuse: IdReuse
) -> ActorprocError | None:
    if (error := restart.no_restart(state, reuse, known)) is not None:
        return error
    if known.generation != event.generation or known.type_name != event.new.type_name:
        return NotAllowed(
            f"{known.id} has begun again since this was asked: it is in generation {known.generation} now; look at it, "
            "and ask again"
        )
    return None


# ---------------------------------------------------------------------- fork
def request_fork(state: EngineState, event: ForkRequested) -> None:
    """Submit a new root with the state that another procedure had before one of its steps."""
    origin, new = state.residents.procs.get(event.id), event.new
    if origin is None or event.id in state.damage.procedures:
        state.decision.command(Reply(event.reply, error=_unknown(state, event.id)))
        return
    existing = None if new.fresh else state.residents.procs.get(new.id)
    if existing is not None and new.reuse is not None and restart.was_done(existing, new.reuse):
        state.decision.command(Reply(event.reply, value=True))
        return
    error = _taken(state, new, existing) or _no_run(state, new)
    if error is not None:
        state.decision.command(Reply(event.reply, error=error))
        return
    restart.make_room(state, (), (new.id,))
    record = admit(state, new, parent=None, like=origin)
    # Its steps go on counting where the other one stood: code may go by the numbers.
    record.begun = 1 - event.step
    where = f"step {event.step}" if new.step_name is None else f"step {new.step_name!r}"
    state.audit(origin, "fork", event, f"as {new.id}, from {where}")
    state.audit(record, "fork", event, f"of {origin.id}, from {where}")
    wake(state, record)
    state.decision.command(Reply(event.reply, value=True))


def _taken(state: EngineState, new: NewProcedure, existing: ProcedureRecord | None) -> ActorprocError | None:
    if new.id in state.damage.procedures:
        return error_of(state.damage, new.id)
    if existing is not None:
        return DuplicateProcedure(f"procedure {new.id} ({existing.type_name}) exists; a fork needs an id of its own")
    return None


# ---------------------------------------------------------------------- both
def _unknown(state: EngineState, id: str) -> ActorprocError:
    return error_of(state.damage, id) or UnknownProcedure(f"no procedure has the id {id!r}")


def _no_run(state: EngineState, new: NewProcedure) -> ActorprocError | None:
    """The reason why a root cannot be taken in now; its class need not be registered."""
    path = acquire.covers_poison(state.locks, new.locks, "") if state.locks.poisons else None
    if path is not None:
        return KeyPoisoned(f"{new.id} needs a poisoned key: {state.locks.poison_notice(path)}")
    return too_many(state, 1)
