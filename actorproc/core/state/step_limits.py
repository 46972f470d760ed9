"""Limits and retries of the next step of a procedure: those of its submit, of the step, else of its class."""

from __future__ import annotations

import msgspec

from actorproc.core.queues.host_table import demand_of, demand_of_lone
from actorproc.core.state.head import runs_alone
from actorproc.core.state.parts.types import KnownLimits, KnownTypes
from actorproc.model.policies import Backoff, StepLimits, StepPolicy, TypeMeta
from actorproc.model.rows.records import ProcedureRecord

__all__ = ["alone", "backoff_of", "known_limits_of", "limits_of", "retries_overtime"]


def limits_of(types: KnownTypes, record: ProcedureRecord) -> StepLimits:
    """The limits of a procedure whose class is registered, or whose submit sets them all."""
    given = record.limits
    if given is None:
        return known_limits_of(types, record).limits
    limits = given if given.given is None else given.over(_declared(types, record))
    return _for_class(limits, types.metas.get(record.type_name))


def known_limits_of(types: KnownTypes, record: ProcedureRecord) -> KnownLimits:
    """The same with what follows from them."""
    if record.limits is not None:
        code = record.type_name if record.type_name in types.divided else ""
        known = _known(limits_of(types, record), None, code)
        if record.limits.given is not None and (meta := types.metas.get(record.type_name)) is not None and meta.steps:
            known = msgspec.structs.replace(known, steps={})
    else:
        meta = types.metas[record.type_name]
        found = types.limits.get(record.type_name)
        if found is None or found.meta is not meta:
            found = types.limits[record.type_name] = _of_class(types, meta)
        known = found if found.steps is None else found.steps.get(record.current_name or "", found)
    if record.past is not None and runs_alone(record):
        return _alone(known, record.id)
    return known


def _of_class(types: KnownTypes, meta: TypeMeta) -> KnownLimits:
    code = meta.type_name if meta.type_name in types.divided else ""
    known = _known(meta.limits, meta, code)
    if not meta.steps:
        return known
    steps = {name: _known(policy.limits, meta, code) for name, policy in meta.steps.items()}
    # None of them is None, so that no step takes the short way: the one that follows may have other limits.
    steps = {name: msgspec.structs.replace(each, steps={}) for name, each in steps.items()}
    return msgspec.structs.replace(known, steps=steps)


def _declared(types: KnownTypes, record: ProcedureRecord) -> StepLimits:
    meta = types.metas.get(record.type_name)
    if meta is None:
        return StepLimits()
    policy = _policy_of(meta, record)
    return meta.limits if policy is None else policy.limits


def _policy_of(meta: TypeMeta, record: ProcedureRecord) -> StepPolicy | None:
    """The policies of the step itself; for the undo of a step, too."""
    return meta.steps.get(record.current_name or "") if meta.steps else None


def alone(limits: StepLimits) -> StepLimits:
    """The same limits for a step that runs by itself in its worker."""
    return msgspec.structs.replace(limits, threads=1, tasks=limits.tasks and 1)


def _for_class(limits: StepLimits, meta: TypeMeta | None) -> StepLimits:
    """Limits of a submit as they hold for a class: only where its steps are async they run as tasks."""
    if meta is None or bool(meta.tasks) == bool(limits.tasks):
        return limits
    return msgspec.structs.replace(limits, tasks=meta.tasks or None)


def _alone(known: KnownLimits, procedure: str) -> KnownLimits:
    """Limits of a step that runs alone on its host."""
    limits = alone(known.limits)
    return KnownLimits(limits, is_plain=False, meta=known.meta, demand=demand_of_lone(known.demand, procedure))


def backoff_of(types: KnownTypes, record: ProcedureRecord) -> Backoff:
    """The retry policy of a procedure whose class is registered."""
    given = record.limits.retry if record.limits is not None else None
    if given is not None:
        return given
    meta = types.metas[record.type_name]
    policy = _policy_of(meta, record)
    return meta.retry if policy is None else policy.retry


def retries_overtime(types: KnownTypes, record: ProcedureRecord) -> bool:
    """True: a step that was killed for its wall time or CPU time is tried again."""
    if record.limits is not None and record.limits.retry is not None:
        return record.limits.retries_overtime
    meta = types.metas[record.type_name]
    policy = _policy_of(meta, record)
    return meta.retries_overtime if policy is None else policy.retries_overtime


def _known(limits: StepLimits, meta: TypeMeta | None, code: str) -> KnownLimits:
    demand = demand_of(limits.on, limits.resources, code)
    is_plain = demand is None and not (
        limits.dedicated or limits.beside > 1 or limits.is_watched or limits.concerns_worker
    )
    return KnownLimits(limits, is_plain, meta, demand)
