"""Which limits hold for the next step of a procedure: those of its submit, else those of its class."""

from __future__ import annotations

from actorproc.core.book import Book
from actorproc.core.known_limits import KnownLimits
from actorproc.model.policies import StepLimits, TypeMeta
from actorproc.model.records import ProcedureRecord

__all__ = ["known_limits_of", "limits_of"]


def limits_of(book: Book, record: ProcedureRecord) -> StepLimits:
    """The limits of a procedure whose class is registered."""
    return record.limits if record.limits is not None else known_limits_of(book, record).limits


def known_limits_of(book: Book, record: ProcedureRecord) -> KnownLimits:
    """The same with what follows from them."""
    if record.limits is not None:
        return _known(record.limits, None)
    meta = book.types[record.type_name]
    known = book.limits.get(record.type_name)
    if known is None or known.meta is not meta:
        known = book.limits[record.type_name] = _known(meta.limits, meta)
    return known


def _known(limits: StepLimits, meta: TypeMeta | None) -> KnownLimits:
    is_plain = not (limits.dedicated or limits.threads > 1 or limits.is_watched or limits.concerns_worker)
    return KnownLimits(limits, is_plain, meta)
