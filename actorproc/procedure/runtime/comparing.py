"""Comparison of a submit with the first stored state of its id, field by field."""

from __future__ import annotations

from actorproc.model.rows.records import NewProcedure, StepRecord
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.encoding.digest import are_alike, digest_of
from actorproc.procedure.runtime.type_runtime import TypeRuntime

__all__ = ["differing_fields"]


def differing_fields(runtime: TypeRuntime, stored: StepRecord, new: NewProcedure) -> tuple[str, ...]:
    """Fields in which a new state differs from the first one stored of its id, as today's class reads it.

    A class with a `dump` of its own has no fields: its whole state is called "state". Raises `StateRefused` when the
    class does not read the stored one.
    """
    before = runtime.load(stored.state, stored.codec, stored.version, new.id)
    after = runtime.load(new.state, new.codec, new.version, new.id)
    own = runtime.runtime_of(after)
    if type(before) is not type(after) or (own._state_codec == "data" and not own._dumps_fields):
        return () if _digest(runtime, before, new) == new.digest else ("state",)
    if own._state_codec == "data" and _digest(runtime, before, new) == new.digest:
        return ()
    one, other = own._format.values(before), own._format.values(after)
    codec = own.codec if own._state_codec == "data" else None
    return tuple(name for name in dict.fromkeys((*other, *one)) if not are_alike(name, one, other, codec))


def _digest(runtime: TypeRuntime, procedure: Procedure, new: NewProcedure) -> bytes:
    own = runtime.runtime_of(procedure)
    state = own.dump_state(procedure, new.id)
    return digest_of(own._state_codec, state, positioned=own._has_position, ordered=own._format.names is not None)
