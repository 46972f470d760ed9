"""Replacing all workers one by one, so that they run the code that is on disk now."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from actorproc.engine.messages import ManagerStatus, SlotStatus
from actorproc.errors import ManagerStopped
from actorproc.model.ids import WorkerId
from actorproc.model.slots import is_dedicated

__all__ = ["replace_each"]

_LOOK = 0.05
"""Seconds between looks at a worker that is being replaced."""
_TO_COME = ("booting", "running")
"""States of the slot of a worker that the manager may not know yet."""


class ReloadTarget(Protocol):
    """Requests to the engine."""

    @property
    def closed(self) -> bool:
        """It was stopped."""
        ...

    def manager_status(self) -> ManagerStatus | None:
        """Workers and what they have in hand."""
        ...

    def slots(self) -> tuple[SlotStatus, ...]:
        """Worker slots."""
        ...


def replace_each(engine: ReloadTarget, replace: Callable[[WorkerId], None], timeout: float) -> int:
    """Replace each worker that is there now, the next one when the place of the last is filled; how many were.

    Raises `TimeoutError` naming a worker that still runs the old code, `ManagerStopped`.
    """
    deadline = time.monotonic() + timeout

    def wait_until(is_so: Callable[[ReloadTarget, WorkerId], bool], worker: WorkerId) -> None:
        while not is_so(engine, worker):
            if engine.closed:
                msg = "the manager was stopped while it replaced its workers"
                raise ManagerStopped(msg)
            if time.monotonic() > deadline:
                raise TimeoutError(_why_late(engine, worker, timeout))
            time.sleep(_LOOK)

    slots = engine.slots()
    status = engine.manager_status()
    # Idle ones first: for as long as the others are in their steps there are workers to do the work.
    entries = sorted(status.workers, key=lambda entry: entry.procedure is not None) if status is not None else []
    workers = [entry.worker for entry in entries]
    booting = {WorkerId(slot.slot, slot.incarnation) for slot in slots if slot.state in _TO_COME}.difference(workers)
    count = 0
    for worker in (*workers, *sorted(booting)):
        if worker in booting:
            wait_until(_has_booted, worker)  # it may have loaded old code
            if not _is_there(engine, worker):
                continue
        replace(worker)
        wait_until(_is_replaced, worker)
        count += 1
    return count


def _is_there(engine: ReloadTarget, worker: WorkerId) -> bool:
    status = engine.manager_status()
    return status is not None and any(entry.worker == worker for entry in status.workers)


def _has_booted(engine: ReloadTarget, worker: WorkerId) -> bool:
    """True once the manager knows the worker, or it comes no more."""
    return _is_there(engine, worker) or not any(
        WorkerId(slot.slot, slot.incarnation) == worker and slot.state in _TO_COME for slot in engine.slots()
    )


def _is_replaced(engine: ReloadTarget, worker: WorkerId) -> bool:
    status = engine.manager_status()
    if status is None or any(entry.worker == worker for entry in status.workers):
        return False
    if is_dedicated(worker.slot):
        return True  # the next one comes with the next step of its procedure
    slot = next((slot for slot in engine.slots() if slot.slot == worker.slot), None)
    return (
        slot is None or slot.state == "retiring" or (slot.state == "running" and slot.incarnation > worker.incarnation)
    )


def _why_late(engine: ReloadTarget, worker: WorkerId, timeout: float) -> str:
    status = engine.manager_status()
    entry = next((entry for entry in status.workers if entry.worker == worker), None) if status is not None else None
    if entry is not None:
        says = f"is still in step {entry.step} of {entry.procedure}" if entry.procedure else "has not ended"
    else:
        slot = next((slot for slot in engine.slots() if slot.slot == worker.slot), None)
        if slot is not None and (slot.incarnation, slot.state) == (worker.incarnation, "booting"):
            says = "has not booted"
        else:
            says = f"has no successor that boots: {slot.reason or slot.state}" if slot is not None else "is gone"
    return (
        f"worker {worker.slot} {says} after {timeout:g} s; workers that were not replaced yet go on with the old code. "
        "Reload again when it is through"
    )
