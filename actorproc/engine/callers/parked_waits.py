"""Callers that wait for what cannot end, and warnings of what is parked, both once a grace has passed.

A look at the trees concerned is due in two cases only. Something is parked, or a caller waits for a procedure that an
earlier life of the manager left behind, whose class may not be registered yet.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

from actorproc.core.state.standstill import Parked
from actorproc.engine.end_waiters import EndWaiters
from actorproc.engine.messages import Patience
from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.errors import EngineError, ProcedureParked, ProcedureQuarantined, StoreDamaged
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.store.base import RecordStore
from actorproc.support.clock import Clock
from actorproc.support.engine_log import engine_logger

__all__ = ["ParkedWaits", "quarantined"]

logger = engine_logger("actorproc")

_PAUSE = 0.5
"""Seconds between two looks at trees with a parked member that go on all the same, at least."""
_NAMED = 5
"""Procedures named in a warning."""


def quarantined(id: str, damage: StoreDamaged) -> ProcedureQuarantined:
    """The error for those that wait for a procedure that damage keeps from ending."""
    repair = "stop the manager and see `actorproc doctor`"
    return ProcedureQuarantined(
        f"{damage}; {repair}",
        id=id,
        member=damage.key or id,
        reason=damage.reason,
        repair=repair,
        table=damage.table,
        key=damage.key,
    )


class ParkedWaits:
    """Looks after what is parked. Used while holding the manager's turn only.

    `warn` is called for each procedure that has been parked for the grace, with the reason.
    """

    def __init__(
        self,
        *,
        pipeline: CommitPipeline,
        store: RecordStore,
        waiters: EndWaiters,
        clock: Clock,
        grace: float,
        warn: Callable[[ProcedureRecord, str], None],
    ) -> None:
        self._pipeline = pipeline
        self._store = store
        self._waiters = waiters
        self._clock = clock
        self._grace = grace
        self._warn = warn
        self._begun = clock.monotonic()
        self._core: object = None
        self._parkings = 0
        self._since: dict[str, tuple[float, str, float]] = {}
        """Parked procedures: since when (monotonic), why, and the time of the head that says so."""
        self._warned: set[str] = set()
        self._roots: set[str] = set()
        """Of the trees in memory with a parked member."""
        self._left_behind: set[str] = set()
        """Procedures of an earlier life that are waited for and were not looked at yet."""
        self._logged: set[str] = set()
        """Procedures whose patient callers were told of in the log."""
        self._moving: dict[str, int] = {}
        """Roots of trees that are waited for and can go on although a member is parked, with their last batch."""
        self._hostless: set[str] = set()
        """Demands of which was told that no host offers them."""
        self._hosts_by: float | None = None
        """Monotonic time from which on hosts that an earlier life of the manager had should have joined again."""
        self._looked = -math.inf
        self.due_at: float | None = None
        """Monotonic time of the next look; None: there is nothing to look at."""

    # ------------------------------------------------------------ what happens
    def stored(self) -> None:
        """Plan a look after a stored batch, which may have parked a procedure."""
        core = self._pipeline.core
        if core.parkings != self._parkings or core is not self._core:
            self._core, self._parkings = core, core.parkings
            now = self._clock.monotonic()
            self._note(now)
            self._warn_of_hosts(now)
            self._look_by(self._plan(now))
        if self._moving and any(core.batch_of(root) != batch for root, batch in self._moving.items()):
            self._moving.clear()
            self._look_by(self._looked + _PAUSE)

    def _note(self, now: float) -> None:
        """Parked procedures, and since when they are."""
        core = self._pipeline.core
        before, self._since = self._since, {}
        roots = set()
        for record, reason, _ in core.parked():
            known = before.get(record.id)
            if known is None or known[1:] != (reason, record.updated_at):
                known = (now, reason, record.updated_at)
                self._warned.discard(record.id)
            self._since[record.id] = known
            roots.add(record.root)
        self._roots = roots
        self._warned &= self._since.keys()

    def watched(self, record: ProcedureRecord) -> None:
        """A caller waits for this one, which has not ended."""
        if record.root in self._roots:
            self._look_by(self._clock.monotonic())
        elif record.epoch != self._pipeline.core.epoch and self._grace < math.inf:
            self._left_behind.add(record.id)
            self._look_by(self._begun + self._grace)

    def log_waiting(self, id: str, why: str) -> None:
        """Say once that callbacks and futures of a procedure wait for what cannot come."""
        if id not in self._logged and self._waiters.has_patient(id):
            self._logged.add(id)
            logger.warning("callbacks, futures or patient callers of %s wait on: %s", id, why)

    # ------------------------------------------------------------ looking
    def look(self, now: float) -> None:
        """Warn of what has been parked for the grace, and tell those that wait for what cannot end."""
        if self.due_at is None or now < self.due_at:
            return
        self.due_at, self._looked = None, now
        self._moving.clear()
        self._note(now)
        self._warn_of(now)
        self._warn_of_hosts(now)
        names = self._waiters.names()
        self._logged &= names
        next_look = math.inf
        if self._roots:
            for name in sorted(names):
                live = self._pipeline.core.view(name)
                if live is not None and live.root in self._roots:
                    next_look = min(next_look, self._look_at(name, self._pipeline.core.obstacle_of(name), now))
        if self._left_behind and now >= self._begun + self._grace:
            left_behind, self._left_behind = self._left_behind & names, set()
            for name in sorted(left_behind):
                self._look_at(name, self._obstacle_of_left(name), now)
        self._look_by(min(next_look, self._plan(now)))

    def _look_at(self, name: str, obstacle: Parked | None, now: float) -> float:
        """Tell those that wait for this one, if it is time; when to look at it again."""
        if obstacle is None:
            live = self._pipeline.core.view(name)
            if live is not None and live.root in self._roots:
                self._moving[live.root] = self._pipeline.core.batch_of(live.root)
            return math.inf
        since = self._since.get(obstacle.record.id)
        due = (since[0] if since is not None else self._begun) + self._grace
        if due > now:
            return due
        if not self._is_stored(name, obstacle.record):
            return now + _PAUSE
        error = parked_error(name, obstacle)
        self._waiters.fail(name, error, Patience.CALL)
        self.log_waiting(name, str(error))
        return math.inf

    def _is_stored(self, name: str, parked: ProcedureRecord) -> bool:
        """True when the store has both as well; memory is ahead of it while a batch is open or under way."""
        try:
            waited, head = self._store.procedure(name), self._store.procedure(parked.id)
        except EngineError:
            return False
        if waited is None or head is None:
            return False
        return waited.root == head.root and head.parked == parked.parked

    def _obstacle_of_left(self, name: str) -> Parked | None:
        """Of one that may not be in memory. Its class may not be registered, or that of a child that it waits for."""
        core = self._pipeline.core
        if core.view(name) is not None:
            return core.obstacle_of(name)
        try:
            record = self._store.procedure(name)
            if record is None or record.state in TERMINAL:
                return None
            members = [record]
            if record.children and record.state is ProcedureState.WAITING:
                members = self._store.tree(record.root)[0]
        except EngineError:
            return None
        return core.obstacle_of(name, members)

    def _plan(self, now: float) -> float:
        """Time at which the next warning is due; infinity: there is none."""
        if self._grace == math.inf:
            return math.inf
        times = (since + self._grace for name, (since, _, _) in self._since.items() if name not in self._warned)
        return max(min(times, default=math.inf), now)

    def _look_by(self, at: float) -> None:
        if at < math.inf and (self.due_at is None or at < self.due_at):
            self.due_at = at

    # ------------------------------------------------------------ warning
    def _warn_of_hosts(self, now: float) -> None:
        """Say once of each demand that no host offers it. After a start hosts have the grace to join again."""
        unoffered = self._pipeline.core.unoffered
        self._hostless &= unoffered.keys()
        if self._hosts_by is None:
            self._hosts_by = now + self._grace if unoffered else now
        if now < self._hosts_by:
            self._look_by(self._hosts_by)
            return
        for key in unoffered.keys() - self._hostless:
            words, procedure, others = unoffered[key]
            self._hostless.add(key)
            if others:
                logger.warning(
                    "%s waits for a host with %s, and all that are connected have other code (%d); it runs when one "
                    "with this manager's code joins, or when a manager with theirs leads",
                    procedure,
                    words,
                    others,
                )
                continue
            logger.warning(
                "%s waits for a host with %s, and none that is connected has that; it runs when such a host joins: "
                "actorproc worker --label … --resource …, or ProcedureManager(…, labels=…, resources=…)",
                procedure,
                words,
            )

    def _warn_of(self, now: float) -> None:
        unknown: dict[tuple[str, str], list[str]] = defaultdict(list)
        for record, reason, is_unknown in self._pipeline.core.parked():
            since = self._since.get(record.id)
            if since is None or record.id in self._warned or since[0] + self._grace > now:
                continue
            self._warned.add(record.id)
            if is_unknown and record.parked is None:
                unknown[record.type_name, reason].append(record.id)
            else:
                self._warn(record, reason)
        for (type_name, reason), names in unknown.items():
            some = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
            logger.warning(
                "%d procedure%s of the type %r %s parked, as no class is registered under that name%s (%s); they "
                "go on when it is: ProcedureManager(…, procedures=[…]), or register()",
                len(names),
                "" if len(names) == 1 else "s",
                type_name,
                "is" if len(names) == 1 else "are",
                "".join(reason.partition(", but ")[1:]),
                some,
            )


def parked_error(id: str, obstacle: Parked) -> ProcedureParked:
    """The error for those that wait for a procedure that a parked one keeps from ending."""
    record, reason, is_unknown = obstacle
    name = f"{record.id} ({record.type_name})"
    says = f"{name} is parked" if record.id == id else f"{id} cannot end, because {name}, of its tree, is parked"
    if is_unknown:
        repair = (
            f"register the class, by procedures=[…] of the manager or register(); {record.id} goes on then. "
            f"`actorproc why {record.id}` tells more"
        )
    else:
        repair = (
            f"mend what the reason says and start the manager again, or register the class again; {record.id} goes on "
            f"then. To give it up: abort({record.root!r}), or bypass({record.id!r}, force=True). "
            f"`actorproc why {record.id}` tells more"
        )
    return ProcedureParked(f"{says}: {reason}. To do: {repair}", id=id, member=record.id, reason=reason, repair=repair)
