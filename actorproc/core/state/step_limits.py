"""Limits and retries of the next step of a procedure: those of its submit, else those of its class."""

from __future__ import annotations

import msgspec

from actorproc.core.queues.host_table import demand_of, demand_of_lone
from actorproc.core.state.head import runs_alone
from actorproc.core.state.parts.types import KnownLimits, KnownTypes
from actorproc.model.policies import Backoff, StepLimits, TypeMeta
from actorproc.model.rows.records import ProcedureRecord

__all__ = ["backoff_of", "known_limits_of", "limits_of", "retries_overtime"]


def limits_of(types: KnownTypes, record: ProcedureRecord) -> StepLimits:
    """The limits of a procedure whose class is registered."""
    return record.limits if record.limits is not None else known_limits_of(types, record).limits


def known_limits_of(types: KnownTypes, record: ProcedureRecord) -> KnownLimits:
    """The same with what follows from them."""
    if record.limits is not None:
        known = _known(record.limits, None, record.type_name if record.type_name in types.divided else "")
    else:
        meta = types.metas[record.type_name]
        found = types.limits.get(record.type_name)
        if found is None or found.meta is not meta:
            code = record.type_name if record.type_name in types.divided else ""
            found = types.limits[record.type_name] = _known(meta.limits, meta, code)
        known = found
    if record.past is not None and runs_alone(record):
        return _alone(known, record.id)
    return known


def _alone(known: KnownLimits, procedure: str) -> KnownLimits:
    """Limits of a step that runs alone on its host."""
    limits = msgspec.structs.replace(known.limits, threads=1)
    return KnownLimits(limits, is_plain=False, meta=known.meta, demand=demand_of_lone(known.demand, procedure))


def backoff_of(types: KnownTypes, record: ProcedureRecord) -> Backoff:
    """The retry policy of a procedure whose class is registered."""
    given = record.limits.retry if record.limits is not None else None
    return given if given is not None else types.metas[record.type_name].retry


def retries_overtime(types: KnownTypes, record: ProcedureRecord) -> bool:
    """True: a step that was killed for its wall time or CPU time is tried again."""
    if record.limits is not None and record.limits.retry is not None:
        return record.limits.retries_overtime
    return types.metas[record.type_name].retries_overtime


def _known(limits: StepLimits, meta: TypeMeta | None, code: str) -> KnownLimits:
    demand = demand_of(limits.on, limits.resources, code)
    is_plain = demand is None and not (
        limits.dedicated or limits.threads > 1 or limits.is_watched or limits.concerns_worker
    )
    return KnownLimits(limits, is_plain, meta, demand)
