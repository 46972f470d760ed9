"""The supervisor actor: which process is in which worker slot, and whether it is worth starting another.

Four ends of a worker are told apart. A step crash respawns at once and is the step's fault. A boot failure and a
worker that ends by itself with nothing to do are the slot's fault. They are counted in a sliding window with backoff,
and a slot that fails too often is parked. So is one whose worker does not come to the end of its boot. With every slot
parked the engine has failed, and the host is told. After a cool-down one worker is tried in a parked slot; the first
that boots brings the engine back. A death of an idle worker by a foreign signal is not charged: it is replaced, with
short pauses in a storm of kills.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import msgspec
import pykka

from actorproc.config import Config
from actorproc.engine.end_waiters import fail_future, settle_future
from actorproc.engine.messages import (
    AddHost,
    AddSlot,
    Booted,
    DrainHostSlots,
    Gone,
    LaunchAll,
    RemoveHost,
    ReportStatus,
    RetireSlot,
    SlotParked,
    SlotRecovered,
    SlotStatus,
    StandDown,
    Wake,
)
from actorproc.engine.reply_router import ReplyRouter
from actorproc.engine.runtime.clock import Alarm
from actorproc.engine.runtime.inbox import QuickActor
from actorproc.engine.workers.boot_deadlines import BOOT_PATIENCE, BootDeadlines
from actorproc.engine.workers.restart_policy import SlotRestarts, is_killed_from_outside
from actorproc.errors import EngineError, InternalError, WorkerBootFailed
from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import CrashReport
from actorproc.model.slots import first_slot, host_of
from actorproc.support.clock import Clock
from actorproc.support.engine_log import engine_logger
from actorproc.workers.base import WorkerPool

__all__ = ["SupervisorActor", "SupervisorParts"]

logger = engine_logger("actorproc")


class SupervisorParts(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of a supervisor."""

    config: Config
    clock: Clock
    alarm: Alarm
    pool: WorkerPool
    slots: int
    replies: ReplyRouter
    on_failed: Callable[[EngineError], None]
    """Called when every slot is parked. Must return at once."""
    on_slot: Callable[[SlotParked | SlotRecovered], None]
    """Told when a slot is parked or comes back. Must return at once."""
    on_recovered: Callable[[], None]
    """Called when a worker has booted after that. Must return at once."""
    on_broken: Callable[[InternalError], None]
    """Called once, when a bug stopped the supervisor. Must return at once."""


class _Slot:
    """One worker slot."""

    __slots__ = ("incarnation", "number", "past", "reason", "restart_at", "restarts", "state")

    def __init__(self, number: int, past: SlotRestarts) -> None:
        self.number = number
        self.past = past
        self.incarnation = 0
        self.state = "booting"
        self.restarts = 0
        self.reason: str | None = None
        self.restart_at: float | None = None

    @property
    def worker(self) -> WorkerId:
        return WorkerId(self.number, self.incarnation)


class SupervisorActor(QuickActor):
    """Keeps a worker in every slot."""

    def __init__(self, parts: SupervisorParts) -> None:
        super().__init__()
        self._parts = parts
        self._slots = {number: _Slot(number, self._no_past()) for number in range(parts.slots)}
        self._boot_deadlines = BootDeadlines(BOOT_PATIENCE * parts.config.boot_timeout, parts.clock, parts.pool.stop)
        self._incarnations: dict[int, int] = {}
        """The last incarnation of slots that were given up: a slot that is used again goes on counting."""
        self._starting: Future[None] | None = None
        self._is_failed = False
        """Every slot was parked, and none has booted since."""
        self._unheard: set[int] = set()
        """Slots whose first worker has neither booted nor failed."""
        self._has_booted = False
        """Some worker did, since the start, whatever became of it."""
        self._stopping = False
        self._routes: dict[type, Callable[[Any], None]] = {
            Gone: self._gone,
            AddSlot: self._add_slot,
            RetireSlot: self._retire_slot,
            AddHost: self._add_host,
            DrainHostSlots: self._drain_host,
            RemoveHost: self._remove_host,
            Booted: self._booted,
            LaunchAll: self._launch_all,
            Wake: self._wake,
            ReportStatus: self._report,
            StandDown: self._stand_down,
        }

    def on_receive(self, message: Any) -> None:
        """Route one message; a failure here is a bug and ends the engine."""
        try:
            self._routes[type(message)](message)
        except BaseException as error:  # Pykka would stop every actor of the host for some of these
            self._stopping = True
            logger.critical("the actorproc supervisor failed", exc_info=error)
            broken = InternalError(f"the supervisor failed and stopped: {type(error).__name__}: {error}")
            broken.__cause__ = error
            self._parts.replies.close(broken)
            self._parts.on_broken(broken)

    # ------------------------------------------------------------ starting
    def _launch_all(self, message: LaunchAll) -> None:
        self._starting = message.future
        self._unheard = {number for number in self._slots if host_of(number) == 0}
        self._has_booted = False
        for slot in list(self._slots.values()):
            if host_of(slot.number) == 0:
                self._launch(slot)
        if not self._unheard:  # this machine runs no steps
            self._starting = None
            settle_future(message.future, None)

    def _launch(self, slot: _Slot) -> None:
        slot.incarnation += 1
        if slot.state != "parked":  # one that is tried again counts as parked until it boots
            slot.state = "booting"
        slot.restart_at = None
        self._boot_deadlines.begin(slot.worker)
        self._parts.pool.launch(slot.worker, replace=True)
        self._arm()

    def _booted(self, message: Booted) -> None:
        self._boot_deadlines.over(message.worker)
        self._arm()
        slot = self._slots.get(message.worker.slot)
        if slot is None:
            return
        if message.worker == slot.worker and slot.state != "retiring":
            if slot.state == "parked":
                self._parts.on_slot(SlotRecovered(slot.worker))
            slot.state, slot.reason = "running", None
            self._has_booted = True
            slot.past.booted(self._parts.clock.monotonic())
            self._recover()
        self._heard(slot)

    def _heard(self, slot: _Slot) -> None:
        """Every slot's first worker counts for `start`: one that boots is enough, none is an error."""
        self._unheard.discard(slot.number)
        future = self._starting
        if future is None or self._unheard:
            return
        self._starting = None
        if self._has_booted:
            settle_future(future, None)
        else:
            self._stopping = True
            fail_future(future, WorkerBootFailed(f"no worker process can start: {slot.reason}"))

    # ------------------------------------------------------------ more and fewer
    def _no_past(self) -> SlotRestarts:
        config = self._parts.config
        return SlotRestarts(config.restart_limit, config.restart_period, config.parked_for)

    def _add_slot(self, _message: AddSlot) -> None:
        if self._stopping:
            return
        number = next(number for number in itertools.count() if number not in self._slots)
        slot = self._slots[number] = _Slot(number, self._no_past())
        slot.incarnation = self._incarnations.get(number, 0)
        self._launch(slot)

    def _retire_slot(self, message: RetireSlot) -> None:
        slot = self._slots.get(message.worker.slot)
        if slot is not None and slot.worker == message.worker:
            slot.state = "retiring"
            self._parts.pool.stop(slot.worker)

    # ------------------------------------------------------------ hosts
    def _add_host(self, message: AddHost) -> None:
        if self._stopping:
            return
        living = {worker.slot: worker for worker in message.living}
        first = first_slot(message.host)
        for number in range(first, first + message.slots):
            slot = self._slots[number] = _Slot(number, self._no_past())
            slot.incarnation = self._incarnations.get(number, 0)
            if number in living:
                slot.incarnation, slot.state = living[number].incarnation, "running"
                slot.past.booted(self._parts.clock.monotonic())
            else:
                self._launch(slot)
        if living:
            self._recover()

    def _slots_of(self, host: int) -> list[_Slot]:
        return [slot for slot in self._slots.values() if host_of(slot.number) == host]

    def _drain_host(self, message: DrainHostSlots) -> None:
        for slot in self._slots_of(message.host):
            if slot.state == "running":
                slot.state = "retiring"
            elif slot.state == "booting":
                slot.state = "retiring"
                self._parts.pool.stop(slot.worker)
            else:  # it has no worker
                self._give_up(slot)

    def _remove_host(self, message: RemoveHost) -> None:
        for slot in self._slots_of(message.host):
            self._boot_deadlines.over(slot.worker)
            self._give_up(slot)
        self._arm()

    def _give_up(self, slot: _Slot) -> None:
        self._incarnations[slot.number] = slot.incarnation
        del self._slots[slot.number]

    # ------------------------------------------------------------ replacing
    def _gone(self, message: Gone) -> None:
        is_stuck = self._boot_deadlines.over(message.worker) and not message.booted
        slot = self._slots.get(message.worker.slot)
        if slot is None or message.worker != slot.worker or self._stopping:
            return
        if message.successor is not None:
            self._succeed(slot, message)
            return
        if slot.state == "retiring":
            self._give_up(slot)
            return
        slot.restarts += 1
        slot.reason = self._stuck_in_words() if is_stuck else _in_words(message.report)
        if message.booted and (not message.idle or message.report.kind == "stopped"):
            # A step's fault, which counts there; or replaced in order, between two steps.
            logger.info("worker slot %d is replaced: %s", slot.number, message.report.message)
            self._launch(slot)
            return
        logger.warning("worker slot %d: %s", slot.number, slot.reason)
        now = self._parts.clock.monotonic()
        is_killed = message.booted and is_killed_from_outside(message.report)
        wait = None if is_stuck else slot.past.killed(now) if is_killed else slot.past.failed(now)
        if wait is None:
            self._park(slot, now, message.report)
        elif wait == 0.0:
            self._launch(slot)
        else:
            slot.state = "backing-off"
            slot.restart_at = now + wait
        self._heard(slot)
        self._arm()

    def _succeed(self, slot: _Slot, message: Gone) -> None:
        """A spare took the place of a worker that died in a step."""
        assert message.successor is not None
        slot.incarnation = message.successor.incarnation
        slot.restarts += 1
        # One that was being retired is gone by this, but its spare is not being retired: the manager's core counts it
        # among its workers, and retires it when it has nothing to do.
        slot.state, slot.reason = "running", None
        logger.info("worker slot %d: a spare goes on after this: %s", slot.number, message.report.message)

    def _park(self, slot: _Slot, now: float, report: CrashReport) -> None:
        slot.state = "parked"
        rest = slot.past.parked()
        slot.restart_at = now + rest
        logger.error(
            "worker slot %d is parked and tried again in %.0f s: it failed too often; last: %s",
            slot.number,
            rest,
            slot.reason,
        )
        self._parts.on_slot(SlotParked(slot.worker, report))
        own = [other for other in self._slots.values() if host_of(other.number) == 0]
        is_hopeless = own != [] and all(other.state == "parked" for other in self._slots.values())
        if is_hopeless and not self._is_failed and self._starting is None:  # else `start` raises
            self._is_failed = True
            self._parts.on_failed(WorkerBootFailed(f"every worker slot is parked; last: {slot.reason}"))

    def _recover(self) -> None:
        if self._is_failed:
            self._is_failed = False
            logger.warning("workers can be started again")
            self._parts.on_recovered()

    def _wake(self, _message: Wake) -> None:
        now = self._parts.clock.monotonic()
        for slot in self._slots.values():
            if slot.restart_at is not None and slot.restart_at <= now and not self._stopping:
                self._launch(slot)
        self._boot_deadlines.end_late(now)
        self._arm()

    def _stuck_in_words(self) -> str:
        within = self._boot_deadlines.within
        return f"its worker was not ready within {within:g} s (twice Config.boot_timeout) and was ended"

    def _arm(self) -> None:
        whens = (self._boot_deadlines.next(), *(slot.restart_at for slot in self._slots.values()))
        times = [at for at in whens if at is not None]
        self._parts.alarm.set("supervisor", min(times, default=None), self._on_alarm)

    def _on_alarm(self) -> None:
        with contextlib.suppress(pykka.ActorDeadError):  # stopped by the host, maybe in this moment
            self.actor_ref.tell(Wake())

    # ------------------------------------------------------------ the rest
    def _stand_down(self, _message: StandDown) -> None:
        self._stopping = True
        for slot in self._slots.values():
            slot.restart_at = None
        self._boot_deadlines.forget()

    def _report(self, message: ReportStatus) -> None:
        status = tuple(
            SlotStatus(slot.number, slot.incarnation, slot.state, slot.restarts, slot.reason)
            for slot in self._slots.values()
        )
        settle_future(message.future, status)


def _in_words(report: CrashReport) -> str:
    """The report's sentence, and what the worker said before it ended."""
    said = report.stderr.strip()
    return f"{report.message}\n{said}" if said and said not in report.message else report.message
