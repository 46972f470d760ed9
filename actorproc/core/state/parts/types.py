"""Types: the traits of registered classes, their limits, and the procedures that wait for a class."""

from __future__ import annotations

import msgspec

from actorproc.core.queues.host_table import Demand
from actorproc.model.policies import StepLimits, TypeMeta
from actorproc.model.rows.records import ProcedureRecord

__all__ = ["KnownLimits", "KnownTypes"]


class KnownLimits(msgspec.Struct, frozen=True, gc=False):
    """Limits with what is asked of them for every step, answered once."""

    limits: StepLimits
    is_plain: bool
    """Any worker will do, the step runs alone in it, and nothing but its time is limited."""
    meta: TypeMeta | None = None
    """The class that says so; None: the submit does."""
    demand: Demand | None = None
    """Labels and resources of the host that it asks for."""
    steps: dict[str, KnownLimits] | None = None
    """Of a class: the same for each step that has limits of its own; None: all steps have these."""


class KnownTypes:
    """Part of the `EngineState`: traits, limits and parked procedures by type."""

    def __init__(self) -> None:
        self.metas: dict[str, TypeMeta] = {}
        """Traits of the registered classes."""
        self.blanks: dict[str, ProcedureRecord] = {}
        """Heads of no procedure by type. New ones are copies of them: half of what it takes to make them by name."""
        self.limits: dict[str, KnownLimits] = {}
        """Limits of a step's resources by registered class."""
        self.parked: dict[str, dict[str, None]] = {}
        """Resident procedures by type that cannot run until the type is registered."""
        self.parkings = 0
        """Number of times that a procedure was parked: a change of it says that there is something new."""
        self.choosy: set[str] = set()
        """Classes whose steps do not go to any worker: to one of their own, or on hosts with labels or resources."""
        self.divided: frozenset[str] = frozenset()
        """Types of which not all hosts have the code that the manager has."""
        self.sorts_work = False
        """Such a class, or such a procedure in memory, has been met: procedures wait in classes of work."""

    def know(self, meta: TypeMeta) -> None:
        """Note that this type is registered: its procedures need not be parked."""
        self.metas[meta.type_name] = meta
        self.blanks.pop(meta.type_name, None)
        if meta.dedicated or meta.is_placed or meta.type_name in self.divided:
            self.choosy.add(meta.type_name)
            self.sorts_work = True
        else:
            self.choosy.discard(meta.type_name)

    def divide(self, divided: frozenset[str]) -> list[str]:
        """Note of which types not all hosts have the code; those of which that is new, or over."""
        changed = sorted(self.divided ^ divided)
        self.divided = divided
        for type_name in changed:
            self.limits.pop(type_name, None)
            if (meta := self.metas.get(type_name)) is not None:
                self.know(meta)
        self.sorts_work = self.sorts_work or bool(divided)
        return changed

    def note_choosy(self) -> None:
        """Note that a procedure has been met whose steps do not go to any worker."""
        self.sorts_work = True

    def of(self, record: ProcedureRecord) -> TypeMeta | None:
        """Traits of the procedure's class, None while it is not registered."""
        return self.metas.get(record.type_name)

    def count_parking(self) -> None:
        """Count a procedure that is parked."""
        self.parkings += 1

    def forget(self, procedure: str) -> None:
        """Drop a procedure that leaves memory."""
        for parked in self.parked.values():  # as many as types that have had a parked procedure
            parked.pop(procedure, None)
