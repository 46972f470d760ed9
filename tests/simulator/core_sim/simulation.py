"""Deterministic simulation: the real core and a real store, everything else played by one seeded loop.

A crash is a place in this loop, so every place can be tried: between decide and commit, between commit and
act, half-way through acting, in a worker. One `random.Random` makes every choice; the same seed gives the
same trace, byte for byte (the method of FoundationDB and TigerBeetle, on the shell rules of this project).

Run ``python -m tests.simulator.core_sim.simulation --seconds 60`` for a campaign, ``--replay SEED`` for one history.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from msgspec.structs import replace

from actorproc.model.messages.events import Published, ScheduleSteered, Submitted, Tick
from actorproc.testing.histories.image import Image
from actorproc.testing.histories.recovering import recovery_problems
from tests.simulator.core_sim.campaigns import campaign_command, run_histories
from tests.simulator.core_sim.fake_shell import FakeShell
from tests.simulator.core_sim.fake_workers import FakeWorker
from tests.simulator.core_sim.faults import FaultKind
from tests.simulator.core_sim.histories import Campaign, History
from tests.simulator.core_sim.loose_ends import LooseEnds
from tests.simulator.core_sim.player import Player
from tests.simulator.core_sim.world import EPOCH_START, Drawn, World
from tests.simulator.generators.requests import (
    FIRST_ANEW,
    FIRST_RESTARTS,
    LAST_ANEW,
    RESUBMITS,
    Operator,
    Resubmits,
    anew,
    call_of,
)
from tests.simulator.generators.schedules import LONGEST, call_of_schedule
from tests.simulator.generators.scripts import ClientAction, program_of
from tests.simulator.rules.invariants import StoreDump, check

__all__ = ["Campaign", "History", "Simulation", "main", "run_campaign", "simulate"]

_GIVES_UP = 0.1
"""Chance that a reload is given up before the next worker is replaced."""
_DEPARTS = 0.05
"""Chance that a host may leave or drain next."""
_HUNTS = 0.4
"""The same where hosts are lost with one procedure."""
_UPGRADES = 0.02
"""Chance that a host with other code may get the manager's next."""
_encode = msgspec.msgpack.Encoder().encode


class Simulation(Player):
    """One history. `check_every`: compare memory with a restored core at every n-th commit (1: each).

    Without a `world` everything in it is drawn from the seed, or only what `drawn` says.
    """

    MAX_TURNS = 6000

    def __init__(self, seed: int, *, check_every: int = 1, world: World | None = None, drawn: Drawn = "all") -> None:
        self.operator: Operator | None = None
        """Source of requests that the scenario does not say."""
        if world is None:
            world = World(seed, drawn=drawn)
            if drawn == "all":
                anew = FIRST_ANEW <= seed <= LAST_ANEW
                self.operator = Operator(seed, world.scenario, restarts=seed >= FIRST_RESTARTS, anew=anew)
        super().__init__(seed, world)
        self.check_every = check_every
        self.actions = list(reversed(self.world.scenario.actions))
        self.last_reply = 0
        self.resubmits = Resubmits()
        self.loose_ends = LooseEnds(world, resume=self._resume, register=self._register, publish=self._publish)
        self.recovered: set[bytes] = set()
        """Remains of hosts that have been recovered already, encoded, with the time."""
        self.shell = FakeShell(self.world, first=True, check_every=check_every)
        self.world.plan.is_work_in_flight = lambda: self.shell.is_busy

    # ------------------------------------------------------------ the loop
    def _turn(self) -> bool:
        """Make one of the possible moves, drawn by chance; False when the history is over."""
        moves, world = self._moves(), self.world
        if not moves:
            return self._idle()
        move = moves[int(world.random() * len(moves))]
        if type(move) is FakeWorker:
            self.shell.workers.move(move)
            if len(move.queue) > 1 and world.random() < 0.3:
                # A silent worker with steps behind its running one: what makes the core take steps back.
                world.now += 0.01
                world.inbox.append(Tick())
        else:
            move()
        if world.random() < 0.05:
            self._disturb_time()
        return True

    def _moves(self) -> list[Any]:
        shell, world = self.shell, self.world
        if self.operator is not None and self.operator.wants():
            return [self._operate]
        # Twice, so that batches hold more than one event on the average.
        moves: list[Any] = [shell.deliver, shell.deliver] if world.inbox else []
        if shell.in_flight is not None:
            moves.append(shell.commit)
        elif shell.batch.is_open:
            moves.append(shell.close)
        moves += [worker for worker in shell.workers.live.values() if worker.can_move]
        if shell.workers.can_boot:
            moves.append(shell.workers.boot)
        if world.scenario.hosts:
            moves += self._moves_of_hosts()
        if self.actions:
            moves.append(self._act_as_client)
        if world.late:
            moves.append(self._bring_late)
        if shell.reload.can_go_on:
            moves.append(self._go_on_with_reload)
        return moves

    def _moves_of_hosts(self) -> list[Any]:
        hosts = self.shell.workers.hosts
        moves: list[Any] = []
        if hosts.absent:
            moves.append(hosts.join)
        if hosts.drained() is not None:
            moves.append(hosts.end_drain)
        if hosts.outdated and self.world.random() < _UPGRADES:
            moves.append(hosts.upgrade)
        if hosts.can_depart and self.world.random() < (_HUNTS if self.world.scenario.hunted else _DEPARTS):
            moves.append(hosts.depart)
        return moves

    def _idle(self) -> bool:
        """Nothing can move: let time pass to what comes next, or tie up loose ends. False when all is over."""
        if self._pass_time():
            return True
        shell = self.shell
        if shell.workers.hosts.outdated:
            shell.workers.hosts.upgrade()
            return True
        if shell.unregistered:
            shell.register(shell.unregistered.pop())
            return True
        if shell.is_gated:
            shell.open_gate()
            return True
        return self._tie_up() or shell.sweep()

    def _pass_time(self) -> bool:
        """It becomes what is due next: the end of a wall time, or a timer. False when nothing ever is."""
        world, shell = self.world, self.shell
        if not self.actions and world.now > EPOCH_START + LONGEST:
            # A firing whose key stays poisoned is tried again for ever.
            for row in world.store.schedules()[1]:
                shell.tell(ScheduleSteered(row.id, "remove", self._reply(), "in a test"))
        hanging = shell.workers.hanging_until()
        deadline = shell.core.next_deadline()
        if hanging is not None and (deadline is None or hanging[0] <= deadline):
            until, worker = hanging
            world.now = max(world.now, until)
            shell.workers.end_hanging(worker)
        elif deadline is not None:
            world.now = max(world.now, deadline)
            world.inbox.append(Tick())
        else:
            return False
        return True

    def _tie_up(self) -> bool:
        ends = self.loose_ends
        return ends.lift_pauses(of_manager=self.shell.core.paused is not None) or ends.end_open_waits()

    def _resume(self, name: str) -> None:
        self.shell.tell(call_of(ClientAction("resume", (name,)), self._reply()))

    def _register(self, type_name: str) -> None:
        self.shell.register(type_name)

    def _publish(self, event: str) -> None:
        reply = self._reply()
        self.shell.tell(Published(event, b"at last %d" % reply, reply))

    def _disturb_time(self) -> None:
        world = self.world
        if world.plan.fires(FaultKind.CLOCK_FORWARD):
            world.now += 30 * world.random()
        elif world.plan.fires(FaultKind.CLOCK_BACK):
            world.now -= 30 * world.random()
            world.journal.append(("clock-back",))
        elif world.plan.fires(FaultKind.EARLY_TICK):
            world.inbox.append(Tick())
        else:
            world.now += world.random() * 0.2
            deadline = self.shell.core.next_deadline()
            if deadline is not None and deadline <= world.now:
                world.inbox.append(Tick())

    def _host_died(self) -> None:
        """Everything but the store is gone; a new host starts, and may die while it recovers."""
        world = self.world
        while True:
            world.journal.append(("host-died",))
            world.read()
            self._check_recovery()
            self.shell.workers.host_died()
            unanswered = [call for call in self.shell.callers.values() if isinstance(call, Submitted)]
            if world.random() < 0.3:
                world.now += 10 * world.random()
            self.shell = FakeShell(world, first=False, check_every=self.check_every)
            world.read()
            for call in unanswered:  # a caller without an answer asks again, with the same ids
                self._submit(call.procedures)
            if not world.plan.fires(FaultKind.HOST_IN_RECOVERY):
                return

    # ------------------------------------------------------------ the outside
    def _reply(self) -> int:
        self.last_reply += 1
        return self.last_reply

    def _submit(self, procedures: tuple[Any, ...]) -> None:
        reply = self._reply()
        self.world.journal += Resubmits.entries(reply, procedures)
        self.shell.tell(Submitted(procedures, reply))

    def _act_as_client(self) -> None:
        self._act(self.actions.pop())

    def _act(self, action: ClientAction) -> None:
        scenario, now = self.world.scenario, self.world.now
        new = [program_of(name, scenario.roots[name], now=now) for name in action.targets if name in scenario.roots]
        if action.kind == "submit":
            self._submit(tuple(new))
        elif action.kind in RESUBMITS:
            if again := self.resubmits.of(action, new, self.last_reply + 1):
                self._submit(again)
        elif action.kind in {"restart", "fork"}:
            request = anew(action, new, list(self.world.store.scan()), self.last_reply + 1)
            if request is not None:
                self.world.journal += Resubmits.entries(self._reply(), (request.new,))
                self.shell.tell(request)
        elif action.kind == "conflict":
            self._submit((msgspec.structs.replace(new[0], digest=b"another"),))
        elif action.kind == "nap":
            self._pass_time()
        elif action.kind == "sweep":
            self.shell.sweep()
        elif action.kind == "open":
            self.shell.open_gate()
        elif action.kind == "schedule":
            self.shell.tell(call_of_schedule(scenario, action, self._reply(), now))
        elif action.kind == "anew":
            self.shell.change(*action.targets)
        else:
            self.shell.tell(call_of(action, self._reply()))

    def _operate(self) -> None:
        """The operator asks for something, looks after finished trees, opens the gate, or replaces a worker."""
        operator, shell = self.operator, self.shell
        assert operator is not None
        draw = operator.random()
        if shell.is_gated and draw < 0.5:
            shell.open_gate()
        elif draw < 0.15:
            shell.sweep()
        elif draw < 0.2 and shell.workers.live:
            workers = list(shell.workers.live.values())
            shell.workers.want_to_leave(workers[operator.below(len(workers))])
        else:
            action = operator.action(list(self.world.store.scan()))
            if action is not None:
                self._act(action)

    def _go_on_with_reload(self) -> None:
        self.shell.reload.go_on(self._reply(), gives_up=self.world.random() < _GIVES_UP)

    def _bring_late(self) -> None:
        event = self.world.late.pop(self.world.pick(len(self.world.late)))
        self.world.journal.append(("late", event))
        self.world.inbox.append(event)

    # ------------------------------------------------------------ judging
    def _check_recovery(self) -> None:
        """Recover the remains of the host, and recover them again from each place of that recovery."""
        world, scenario = self.world, self.world.scenario
        left = world.store.load()
        # The epoch says nothing: a host that died at once left what it found.
        place = _encode((replace(left, epoch=0, batch=0), world.now))
        if not left.procedures or self.check_every != 1 or place in self.recovered:
            return
        self.recovered.add(place)
        types = [program.meta for program in scenario.programs.values()]
        quotas, scheduling = scenario.quotas, scenario.scheduling
        for text in recovery_problems(left, types, quotas=quotas, scheduling=scheduling, now=world.now):
            world.violate(16, text)

    def _judge(self) -> None:
        world, shell = self.world, self.shell
        world.read()
        is_quiet = shell.in_flight is None and not shell.batch.is_open
        if is_quiet and Image(world.store.load()).content() != shell.image.content():
            world.violate(0, "the store does not hold what the decisions wrote")
        if is_quiet and shell.workers.staying < shell.scheduling.workers:
            world.violate(15, f"{shell.workers.staying} workers are left of {shell.scheduling.workers}")
        if shell.callers:
            world.violate(15, f"callers never answered: {sorted(shell.callers)}")
        dump, scenario = StoreDump.of(world.store), world.scenario
        world.violations += check(
            world.journal,
            dump,
            bystander=scenario.bystander,
            scheduling=scenario.scheduling,
            is_forgetful=scenario.retention.signals_seconds is not None,
        )


# ---------------------------------------------------------------- campaigns
def simulate(seed: int, *, check_every: int = 1, drawn: Drawn = "all") -> History:
    """Play and judge the history of this seed. An exception of the core is a violation too (number 0).

    `drawn`: without what came later, as seeds were played when they were kept.
    """
    return Simulation(seed, check_every=check_every, drawn=drawn).outcome()


def run_campaign(first_seed: int, *, seconds: float, histories: int | None = None, keep: int = 20) -> Campaign:
    """Histories of consecutive seeds until the CPU `seconds` or the number is used up, or `keep` have failed."""
    return run_histories(simulate, first_seed, seconds=seconds, histories=histories, keep=keep)


def main(arguments: list[str] | None = None) -> int:
    """The command line; exit code 1 when a history violated an invariant."""
    description = "Play seeded histories with faults against the core."
    return campaign_command("tests.simulator.core_sim.simulation", description, simulate, arguments)


if __name__ == "__main__":
    sys.exit(main())
