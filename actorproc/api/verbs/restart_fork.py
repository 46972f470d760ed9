"""Stored states that run again: an ended root from its first one, and a new root from that before any step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from actorproc.api.handle import ProcedureHandle
from actorproc.api.queries import Queries
from actorproc.api.verbs.inspect import InspectVerbs
from actorproc.engine.arguments import checked_by, checked_reason
from actorproc.errors import NotAllowed, UsageError
from actorproc.model.ids import check_id, new_id as made_id
from actorproc.model.messages.events import ForkRequested, RestartRequested
from actorproc.model.names import step_in_words
from actorproc.model.rows.record_parts import TOKEN
from actorproc.model.rows.records import IdReuse, NewProcedure, ProcedureRecord, StepKind, StepRecord, StepTerms
from actorproc.procedure.encoding.signing import signed_for_another
from actorproc.report.step_log import step_infos_of

__all__ = ["RestartVerbs"]


class _Place(NamedTuple):
    """A record from which a step of the present generation runs."""

    step: int
    """Number of the step, as the step sees it."""
    record: StepRecord


class RestartVerbs(InspectVerbs):
    """`restart`, `fork`."""

    def restart(self, id: str, reason: str | None = None, *, by: str | None = None) -> ProcedureHandle:
        """Begin an ended root again from its first state, as a new generation: after a success, a failure or an undo.

        It is a submit of the stored first state with ``on_existing="restart"``. Rows of the ended tree go.
        `ProcedureInfo.generation` grows by one, so keys and default ids of children are new. Owner, tags, priority and
        limits stay; a deadline does not. Its class need not be registered here.

        Args:
            id: The root.
            reason: An operator's reason, for `audit`. Default: None.
            by: Name of the one who asks, for `audit`. Default: None, the user of this process.

        Returns:
            A handle that waits for the end of the new generation.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
            NotAllowed: It is a child, has not ended, or left children behind that have not. Or its rollback gave up:
                `retry` goes on with that first. Or its first state is not kept: that of a call which ended well.
            KeyPoisoned: It left a key poisoned, or needs one that is.
            ManagerBusy: More procedures are unfinished than allowed.
            ManagerStopped: No manager runs.
        """
        name, why, who = check_id(id), checked_reason(reason), checked_by(by)
        engine = self._running()
        head, first = Queries(engine).head(name), engine.store.step(name, 1)
        new = self._from_record(head, name, "restart", first, 1)
        engine.request(lambda reply: RestartRequested(name, reply, new, head.generation, why, who))
        return ProcedureHandle(name, self)

    def fork(
        self,
        id: str,
        from_step: str | int,
        *,
        new_id: str | None = None,
        reason: str | None = None,
        by: str | None = None,
    ) -> ProcedureHandle:
        """Submit a new root that begins at a step of a procedure, with the state which that one had before the step.

        The procedure may have ended in any way, or run on; it is left alone. The fork is a procedure of its own: its
        idempotency keys are new, and it has none of the other's undo units, notes, children and signals. When it fails,
        only what the fork itself did is undone. Owner, tags, priority and limits are those of the procedure.

        Args:
            id: The procedure; a child's fork is a root as well.
            from_step: Name of the step of a saga or of a state, or its number (`Context.step`). Of a step that ran
                several times, a name means the last time that the procedure came to it.
            new_id: Id of the fork. Default: None, a new id.
            reason: An operator's reason, for `audit` of both. Default: None.
            by: Name of the one who asks, for `audit`. Default: None, the user of this process.

        Returns:
            A handle of the fork.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: An id is no id.
            UsageError: It has not come to a step of this name or number in its present generation; the message lists
                those of which the state is kept.
            NotAllowed: The step begins with the outcomes of children, or with what came for an event, which a fork has
                not: fork from the step before it.
            DuplicateProcedure: ``new_id`` exists.
            KeyPoisoned: It needs a key that is poisoned.
            ManagerBusy: More procedures are unfinished than allowed.
            TypeError: ``from_step`` is neither text nor an int.
            ManagerStopped: No manager runs.
        """
        name, why, who = check_id(id), checked_reason(reason), checked_by(by)
        if isinstance(from_step, bool) or not isinstance(from_step, str | int):
            msg = f"from_step is the name or the number of a step, not {from_step!r:.60}"
            raise TypeError(msg)
        engine = self._running()
        head, records = Queries(engine).log(name)
        place = _place_of(head, records, from_step)
        own = made_id() if new_id is None else check_id(new_id)
        new = self._from_record(head, own, "error", place.record, place.step, fresh=new_id is None)
        engine.request(lambda reply: ForkRequested(name, reply, new, place.step, why, who))
        return ProcedureHandle(own, self)

    def _from_record(
        self,
        head: ProcedureRecord,
        id: str,
        policy: str,
        record: StepRecord | None,
        step: int,
        *,
        fresh: bool = False,
    ) -> NewProcedure:
        """The procedure that begins with the state of a record."""
        if record is None or not record.state:
            msg = f"the state of {head.id} before {step_in_words(step, None)} is not kept any more"
            raise NotAllowed(msg)
        state = record.state
        if record.codec == "pickle" and id != head.id:
            state = signed_for_another(state, head.type_name, head.id, id, self._types.signing_key)
        # Records of earlier versions have no terms: all keys that it has asked for are more than the step needs.
        terms = record.terms or StepTerms(head.locks)
        return NewProcedure(
            id=id,
            fresh=fresh,
            type_name=head.type_name,
            version=record.version,
            state=state,
            codec=record.codec,
            digest=head.digest if id == head.id else b"",
            locks=terms.locks,
            poisons=terms.poisons,
            no_return=terms.no_return,
            unit=record.label,
            step_name=record.step_name,
            owner=head.owner,
            priority=head.priority,
            tags=head.tags,
            searchable=terms.searchable,
            limits=head.limits,
            limit_keys=head.limit_keys,
            reuse=IdReuse(policy, os.urandom(TOKEN)),  # type: ignore[arg-type]
        )


def _place_of(head: ProcedureRecord, records: Sequence[StepRecord], wanted: str | int) -> _Place:
    """The record from which the wanted step runs. Raises `UsageError` and `NotAllowed`."""
    places = _places(head, records)
    found = [at for at, place in enumerate(places) if wanted in (place.step, place.record.step_name)]
    if not found:
        kept = ", ".join(_in_words(place) for place in places[-20:])
        msg = f"{head.id} has no step {wanted!r} of which the state is kept. A fork may begin at: {kept or 'none'}"
        raise UsageError(msg)
    at = found[-1]
    while isinstance(wanted, str) and at > 0 and places[at - 1].record.step_name == wanted:
        at -= 1  # it came to this step here, and ran it several times
    before = at
    while places[before].record.outcome == "placed" and before > 0:
        before -= 1  # no step ran here: what the next one sees is what the step before left it
    seen = {"suspended": "the outcomes of children", "wait": "what came for an event"}
    what = seen.get(places[before].record.outcome)
    if what is not None:
        earlier = f": fork from {_in_words(places[before - 1])}" if before > 0 else ""
        msg = f"{_in_words(places[at])} of {head.id} begins with {what}, which a fork has not{earlier}"
        raise NotAllowed(msg)
    return places[at]


def _places(head: ProcedureRecord, records: Sequence[StepRecord]) -> list[_Place]:
    """Records of the present generation from which a step runs, with the number of that step, the first one first."""
    found: list[_Place] = []
    step = head.step
    for record, info in reversed(list(zip(records, step_infos_of(head, records), strict=True))):
        if info.generation != head.generation:
            break
        if record.kind is StepKind.STEP:
            found.append(_Place(max(1, step - head.begun), record))
        if record.kind is not StepKind.ROLLBACK:
            step -= record.steps
    return found[::-1]


def _in_words(place: _Place) -> str:
    return step_in_words(place.step, place.record.step_name)
