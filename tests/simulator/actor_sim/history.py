"""One history of the actor simulation: a loop that draws the next move of all that are possible, and judges what came of it."""

from __future__ import annotations

import logging
import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import msgspec

from actorproc.engine.messages import EnqueuedDue
from actorproc.errors import StorageUnavailable
from tests.simulator.actor_sim import rules
from tests.simulator.actor_sim.callers import Callers
from tests.simulator.actor_sim.clockwork import SimulatedClock
from tests.simulator.actor_sim.crowding import crowded
from tests.simulator.actor_sim.disk import LOSSES_FROM, READS_FROM
from tests.simulator.actor_sim.fleet.machines import Fleet
from tests.simulator.actor_sim.hazards import OF_HOSTS, Hazards
from tests.simulator.actor_sim.host import SimulatedHost
from tests.simulator.core_sim.faults import FaultKind
from tests.simulator.core_sim.histories import History
from tests.simulator.core_sim.player import Player
from tests.simulator.core_sim.world import EPOCH_START, World
from tests.simulator.generators import editions
from tests.simulator.generators.asks import add_asks
from tests.simulator.generators.debounces import add_debounces
from tests.simulator.generators.enqueued import add_enqueued
from tests.simulator.generators.groups import FIRST_SEED
from tests.simulator.generators.hosts import with_hosts
from tests.simulator.generators.schedules import LONGEST, add_schedules
from tests.simulator.rules.invariants import StoreDump, check

__all__ = [
    "ASKS_FROM",
    "DEBOUNCES_FROM",
    "ENQUEUED_FROM",
    "HOSTS_FROM",
    "NEW_CODE_FROM",
    "REPORTS_FROM",
    "SCHEDULES_FROM",
    "ActorSimulation",
    "perform",
]

_IDLE_ROUNDS = 2
"""Number of looks in a row at which nothing may be left to do before the history is over."""
NEW_CODE_FROM = 50_000_000
"""The first seed of a history whose workers are replaced and whose sagas are placed anew."""
REPORTS_FROM = 90_000_000
"""The first seed of a history whose steps show values and send heartbeats, some of which may not be silent for long."""
_SILENCE = 2.0
"""Seconds between two heartbeats of every third program there."""
HOSTS_FROM = 130_000_000
"""The first seed of a history with worker hosts."""
SCHEDULES_FROM = 150_000_000
"""The first seed of a history with schedules."""
DEBOUNCES_FROM = 160_000_000
"""The first seed of a history with debounced submits."""
_VISITS = 500
"""Looks of a leader at what was enqueued, at most: in a history that overlooks a row it would look for ever."""
ENQUEUED_FROM = 170_000_000
"""The first seed of a history in which applications enqueue."""
ASKS_FROM = 145_000_000
"""The first seed of a history whose roots are asked, and reply; the last one is before those with schedules."""
_TROUBLE = 0.03
"""Chance in each turn that a worker host may have trouble."""
_LONELY_SWEEPS = 8
"""Sweeps for which time passes although nothing else is due: finished trees may leave then."""


class ActorSimulation(Player):
    """Everything of one history."""

    MAX_TURNS = 4000

    def __init__(self, seed: int) -> None:
        self.hazards = Hazards(seed)
        # From the first of these seeds on everything was drawn that could be; from the second on all that can be now.
        first = FIRST_SEED if seed < NEW_CODE_FROM else editions.FIRST_SEED
        super().__init__(seed, World(first + seed, plan=self.hazards))
        if seed >= READS_FROM:
            self.hazards.arm(FaultKind.READ_FAILED, 0)
            self.hazards.arm(FaultKind.DEPOSED, 0)
        if LOSSES_FROM <= seed < HOSTS_FROM:
            self.hazards.arm(FaultKind.WENT_BACK, 0)
        self.world.scenario = crowded(self.world.scenario, random.Random(f"crowd of {seed}"))
        if seed >= REPORTS_FROM:
            self.world.reports = True
            unharmed = self.world.scenario.roots[self.world.scenario.bystander or min(self.world.scenario.roots)]
            for program in list(self.world.scenario.programs.values())[1::3]:
                if program is not unharmed:
                    msgspec.structs.force_setattr(program.meta, "heartbeat", _SILENCE)
        if seed >= ENQUEUED_FROM:
            self.world.scenario = add_enqueued(self.world.scenario, random.Random(f"enqueued of {seed}"))
        elif SCHEDULES_FROM <= seed < DEBOUNCES_FROM:
            self.world.scenario = add_schedules(self.world.scenario, random.Random(f"schedules of {seed}"))
        if DEBOUNCES_FROM <= seed < ENQUEUED_FROM:
            self.world.scenario = add_debounces(self.world.scenario, random.Random(f"debounces of {seed}"))
        if ASKS_FROM <= seed < SCHEDULES_FROM:
            self.world.scenario = add_asks(self.world.scenario, random.Random(f"asks of {seed}"))
        self.clock = SimulatedClock(self.world)
        self.fleet = self._fleet(seed) if seed >= HOSTS_FROM else None
        if self.fleet is not None:
            self.MAX_TURNS *= 3  # messages between hosts take turns as well
        self.callers = Callers(seed, self.world)
        self._begin_host(first=True)
        self.callers.meet(self.host)
        self.hazards.is_work_in_flight = lambda: bool(self.callers.pending) or self.host.is_busy
        self._actions = list(reversed(self.world.scenario.actions))
        self._sweeps_left = _LONELY_SWEEPS
        self._found_nothing = 0
        self._looked, self._visits_left = 0.0, _VISITS

    def _fleet(self, seed: int) -> Fleet:
        """Worker hosts, labels and resources that they offer, and classes that ask for them."""
        self.world.scenario = with_hosts(self.world.scenario, random.Random(f"hosts of {seed}"))
        self.world.note_demands()
        for kind in OF_HOSTS:
            self.hazards.arm(kind, 0)
        return Fleet(self.world, self.hazards, self.clock, self._meanwhile)

    def _begin_host(self, *, first: bool) -> None:
        while True:
            try:
                self.host = SimulatedHost(self.world, self.hazards, self.clock, first=first, fleet=self.fleet)
                break
            except StorageUnavailable:  # a read of its recovery failed, which fails its start
                self.world.journal.append(("host-died",))
        if self.fleet is not None:
            self.fleet.meet(self.host)

    def run(self) -> History:
        """Play the history to its end and judge it."""
        with self.fleet.played() if self.fleet is not None else nullcontext():
            return super().run()

    # ------------------------------------------------------------ the loop
    def _turn(self) -> bool:
        return self._move() and self.host.broken is None

    def _move(self) -> bool:
        """Make one of the possible moves, drawn by chance; False when the history is over."""
        world = self.world
        if self.callers.wants(0.01 if self._actions else 0.05):
            self.callers.operate()
            return True
        moves = self._moves()
        if not moves:
            return self._idle()
        if self._actions and world.random() < 0.3:
            moves.append(self._act)
        if self.callers.reload.can_go_on:
            moves.append(self.callers.reload.go_on)
        moves[world.pick(len(moves))]()
        if world.random() < 0.03:
            self._disturb_time()
        if self.fleet is not None and world.random() < _TROUBLE:
            self.fleet.disturb()
        if self.host.is_quiet and world.random() < 0.1:
            self._compare()
        return True

    def _moves(self) -> list[Callable[[], None]]:
        return self.host.moves() + (self.fleet.moves() if self.fleet is not None else [])

    def _meanwhile(self) -> None:
        """Something else happens while a thread waits for the manager."""
        if self.host.broken is not None:
            raise self.host.broken
        moves = self._moves()
        moves[self.world.pick(len(moves))]()

    def _idle(self) -> bool:
        """Nothing can move: whatever is next comes, then loose ends are tied up. False when all is over."""
        if not self._actions and self.world.now > EPOCH_START + LONGEST:
            self.callers.remove_schedules()
        if self._actions:
            self._act()
        elif self._visits_enqueued() or self._pass_time():
            pass
        elif self.callers.wants(1.0):
            self.callers.operate()
        else:
            self.hazards.is_over = True
            if self.callers.tie_up():
                self._found_nothing = 0
                return True
            self._found_nothing += 1
            return self._found_nothing < _IDLE_ROUNDS
        return True

    def _visits_enqueued(self) -> bool:
        """The leader looks by itself, as it does with each renewal of its lease, where rows wait."""
        if (
            not (self.host.has_started and self._visits_left and self.world.store.enqueued(limit=1))
            or self._looked >= self.world.now
        ):
            return False
        self._looked, self._visits_left = self.world.now, self._visits_left - 1
        self.host.tell(EnqueuedDue())
        return True

    def _act(self) -> None:
        action = self._actions.pop()
        if action.kind == "nap":
            self._pass_time()
        else:
            self.callers.act(action)

    def _pass_time(self) -> bool:
        """It becomes what is due next; False when nothing is, or when that is no more than another sweep."""
        alarm = self.host.alarm
        due = alarm.earliest()
        of_hosts = self.fleet.next_due() if self.fleet is not None else None
        if of_hosts is not None and (due is None or of_hosts < due[0] or self._is_enough(due[1])):
            self._go_on(of_hosts - self.clock.monotonic())
            return True
        if due is None or not self.host.has_started:
            return False
        when, name = due
        if self._is_enough(name):
            return False
        self._sweeps_left -= self._is_lonely(name)
        self._go_on(max(0.0, when - self.clock.monotonic()))
        alarm.pipeline(name)
        return True

    def _is_lonely(self, name: str) -> bool:
        """Nothing but another sweep is due, or another look at what waits for room."""
        return name in {"sweep", "enqueued"} and self.host.alarm.next_at("manager", "supervisor") is None

    def _is_enough(self, name: str) -> bool:
        return self._is_lonely(name) and not self._sweeps_left

    def _go_on(self, seconds: float) -> None:
        """So much time passes, and what hosts do by themselves is done in time."""
        if self.fleet is None:
            self.clock.go_on(seconds)
            return
        end = self.clock.monotonic() + seconds
        while (due := self.fleet.next_due()) is not None and due < end:
            self.clock.go_on(due - self.clock.monotonic())
            self.fleet.time_has_passed()
        self.clock.go_on(max(0.0, end - self.clock.monotonic()))
        self.fleet.time_has_passed()

    def _disturb_time(self) -> None:
        world = self.world
        if self.hazards.fires(FaultKind.CLOCK_FORWARD):
            self.clock.jump(30 * world.random())
        elif self.hazards.fires(FaultKind.CLOCK_BACK):
            self.clock.jump(-30 * world.random())
            world.journal.append(("clock-back",))
        else:
            self._go_on(0.01 if world.random() < 0.7 else world.random())
        due = self.host.alarm.earliest()
        if due is not None and due[0] <= self.clock.monotonic():
            self._pass_time()

    def _host_died(self) -> None:
        """Everything but the store is gone; a new host starts, and may die as soon as it owns the store."""
        world = self.world
        while True:
            world.journal.append(("host-died",))
            world.read()
            self._begin_host(first=False)
            world.read()
            self.callers.meet(self.host)
            if not self.hazards.fires(FaultKind.HOST_IN_RECOVERY):
                return

    # ------------------------------------------------------------ judging
    def _compare(self) -> None:
        text = rules.memory_differs(self.host.pipeline, self.world.store)
        if text is not None:
            self.world.violate(rules.MEMORY, text)

    def _tell_broken(self, error: BaseException) -> None:
        """An actor raised: it has said that it is broken, and its host would stop."""
        lines = "".join(traceback.format_exception(error.__cause__ or error))
        self.world.violate(rules.MEMORY, f"an actor broke: {lines}")

    def _judge(self) -> None:
        world, host, callers = self.world, self.host, self.callers
        if host.broken is not None:
            self._tell_broken(host.broken)
            return
        world.read()
        if host.is_quiet:
            self._compare()
        for text in rules.stands_still(host.pipeline, world.store):
            world.violate(rules.ENDS, text)
        if callers.pending or callers.handles or callers.asks:
            unheard = [*callers.pending.values(), *callers.handles.values(), *callers.asks.values()]
            world.violate(rules.ENDS, f"callers never answered: {unheard}")
        hosts = {} if host.hosts is None else {one.number: one.hello.workers for one in host.hosts.hosts}
        slots = rules.slots_differ(host.supervisor, callers.workers, host.pipeline.core.vacated, hosts)
        if slots is not None:
            world.violate(rules.SLOTS, slots)
        if world.went_back:
            return  # promises to what is durable do not hold over a loss of it
        dump, scenario = StoreDump.of(world.store), world.scenario
        world.violations += check(
            world.journal,
            dump,
            bystander=scenario.bystander,
            scheduling=scenario.scheduling,
            is_forgetful=scenario.retention.signals_seconds is not None,
        )


def perform(seed: int) -> History:
    """Play and judge the history of this seed. An exception is a violation too (number 0)."""
    with _seeded(seed), _silent():
        return ActorSimulation(seed).outcome()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The engine draws the length of its pauses from the interpreter's own chance."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)


@contextmanager
def _silent() -> Iterator[None]:
    """Silence logs of trouble that is expected here."""
    logger = logging.getLogger("actorproc")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
