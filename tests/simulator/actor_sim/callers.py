"""Actors outside of the host: callers that submit, holders of handles, and an operator that looks at what runs."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from typing import Any

from msgspec.structs import replace

from actorproc.engine.end_waiters import AskListener, AskResult
from actorproc.engine.messages import Ending, EndListener, EnqueuedDue, Patience, SweepDue, WatchEnds
from actorproc.errors import NoReply, ProcedureParked, StorageUnavailable, UnknownProcedure
from actorproc.model.messages.events import Published, ReloadBegan, Resized, Signalled, Submitted
from actorproc.model.rows.asks import AskKey
from actorproc.model.rows.enqueued import EnqueuedRecord
from actorproc.model.rows.records import NewProcedure, ProcedureRecord
from actorproc.model.states import TERMINAL
from actorproc.store.rows import codec
from actorproc.store.rows.tables import Table
from tests.simulator.actor_sim import rules
from tests.simulator.actor_sim.host import SimulatedHost
from tests.simulator.actor_sim.replacing import SimulatedReload
from tests.simulator.core_sim.loose_ends import LooseEnds
from tests.simulator.core_sim.world import World
from tests.simulator.generators.enqueued import enqueued_row
from tests.simulator.generators.requests import RESUBMITS, Call, Operator, Resubmits, anew, call_of, described
from tests.simulator.generators.schedules import call_of_schedule
from tests.simulator.generators.scripts import ClientAction, program_of

__all__ = ["ANEW_FROM", "KILLS_FROM", "RESTARTS_FROM", "Callers"]

_MOST_WORKERS = 4
RESTARTS_FROM = 60_000_000
"""The first seed of a history whose operator submits ids that exist, with policies."""
KILLS_FROM = 80_000_000
"""The first seed of a history whose operator also ends attempts."""
ANEW_FROM = 140_000_000
"""The first seed of a history whose operator restarts roots by their ids, and forks them."""
_AT_ODDS = 0.2
"""Chance that the operator acts while a worker puts off a step."""
_HARD = ("force", "force", "force", "abort", "bypass", "pause")
"""Verbs of the operator for those whose steps are with workers: mostly those that may end in a kill."""
_HARDEST = (*_HARD, "kill", "kill", "kill", "kill")


class Callers:
    """Asks, and hears the answers. Outlives the hosts: who had no answer to a submit asks the next one again."""

    def __init__(self, seed: int, world: World) -> None:
        self._world = world
        self._operator = Operator(seed, world.scenario, restarts=seed >= RESTARTS_FROM, anew=seed >= ANEW_FROM)
        self._hard = _HARDEST if seed >= KILLS_FROM else _HARD
        self._resubmits = Resubmits()
        self._verbs_left = self._operator.below(20)
        self._last_call = 0
        self._loose_ends = LooseEnds(world, resume=self._resume, register=self._register, publish=self._publish)
        self.host: SimulatedHost
        self.reload = SimulatedReload(self._end_reload)
        self.pending: dict[int, Call] = {}
        """Calls without an answer."""
        self._promised: dict[int, dict[int, str]] = {}
        """Handles of procedures by the call that submits them, and is not answered yet."""
        self.handles: dict[int, str] = {}
        """Procedures whose ends are waited for."""
        self.asks: dict[int, tuple[str, AskKey]] = {}
        """Asks that are kept, whose replies are waited for."""
        self.workers = world.scenario.scheduling.workers
        """As many as the last granted resize said."""

    # ------------------------------------------------------------ a new host
    def meet(self, host: SimulatedHost) -> None:
        """The host before is gone with all that it was asked; submits without an answer are made again."""
        unanswered = [call for call in self.pending.values() if isinstance(call, Submitted)]
        waiting = [*dict.fromkeys(self.handles.values())]
        asking = [*dict.fromkeys(self.asks.values())]
        self.host = host
        self.reload.give_up()
        self.pending, self.handles, self._promised, self.asks = {}, {}, {}, {}
        self.workers = self._world.scenario.scheduling.workers
        for call in unanswered:
            self.submit(call.procedures)
        for id in waiting:
            self._watch(id)
        for target, ask in asking:  # as a client does: the same ask once more
            number = self._next_call()
            self._ask(number, Signalled(target, b"signal ask %s" % ask.id.encode(), number, ask=ask))

    # ------------------------------------------------------------ calls
    def submit(self, procedures: tuple[NewProcedure, ...]) -> None:
        """Submit these under one call."""
        call = self._next_call()
        self._world.journal += Resubmits.entries(call, procedures)
        self._tell(call, Submitted(procedures, call))

    def act(self, action: ClientAction) -> None:
        """Do what an action of the scenario, or the operator, says. A nap is the history's to take."""
        scenario, now = self._world.scenario, self._world.now
        new = [program_of(name, scenario.roots[name], now=now) for name in action.targets if name in scenario.roots]
        if action.kind == "submit":
            self.submit(tuple(new))
        elif action.kind in RESUBMITS:
            if again := self._resubmits.of(action, new, self._last_call + 1):
                self.submit(again)
        elif action.kind in {"restart", "fork"}:
            request = anew(action, new, list(self._world.store.scan()), self._last_call + 1)
            if request is not None:
                call = self._next_call()
                self._world.journal += Resubmits.entries(call, (request.new,))
                self._tell(call, request)
        elif action.kind == "conflict":
            self.submit((replace(new[0], digest=b"another"),))
        elif action.kind == "schedule":
            call = self._next_call()
            self._ask(call, call_of_schedule(scenario, action, call, now))
        elif action.kind == "enqueue":
            self._enqueue(enqueued_row(scenario, action, now))
        elif action.kind == "sweep":
            self.host.tell(SweepDue())
        elif action.kind == "open":
            self.host.open_gate()
        elif action.kind == "anew":
            self.host.change(*action.targets)
        else:
            call = self._next_call()
            self._ask(call, call_of(action, call))

    def _enqueue(self, record: EnqueuedRecord) -> None:
        """A transaction of an application commits. Its notification may be missed."""
        world = self._world
        world.store._rows.put(Table.ENQUEUED, record.key, codec.encode(Table.ENQUEUED, record.key, record))
        world.journal.append(("enqueued", record))
        if world.random() < 0.5:
            self.host.tell(EnqueuedDue())

    def remove_schedules(self) -> None:
        """A firing whose key stays poisoned would be tried again for ever."""
        for row in self._world.store.schedules()[1]:
            self.act(ClientAction("schedule", (row.id, "remove")))

    def _end_reload(self) -> None:
        call = self._next_call()
        self._ask(call, ReloadBegan(call, is_over=True))

    def _ask(self, call: int, event: Call) -> None:
        words = described(event)
        if words is not None:
            self._world.journal.append(("call", call, *words))
        self._tell(call, event)

    def _tell(self, call: int, event: Call) -> None:
        """Calls have numbers of their own: those of a host's replies begin anew with it."""
        number, future = self.host.replies.open()
        is_debounced = isinstance(event, Submitted) and event.procedures[0].debounce is not None
        if (
            isinstance(event, Submitted) and not call % 2 and not is_debounced
        ):  # as `run`: the submit itself asks for the ends
            asked = self._promised[call] = {self._next_call(): new.id for new in event.procedures}
            self.host.replies.promise(number, [_Handle(self, name) for name in asked], Patience.CALL)
        self.pending[call] = event
        future.add_done_callback(lambda answered: self._answered(call, event, answered))
        self.host.tell(replace(event, reply=number))

    def _answered(self, call: int, event: Call, future: Future[Any]) -> None:
        if self.pending.get(call) is not event:
            return  # it had asked a host that is gone
        del self.pending[call]
        promised = self._promised.pop(call, None)
        error = future.exception()
        value = None if error is not None else future.result()
        journal = self._world.journal
        journal.append(("reply", call, value, error))
        if isinstance(error, StorageUnavailable):
            journal.append(("refused", type(event).__name__))
            if not self.host.manager._outage.refuses:
                self._world.violate(rules.ENDS, f"{event} was refused for a trouble that there is not: {error}")
        if isinstance(event, Submitted) and error is None:
            if promised is not None:
                self.handles.update(promised)
            else:
                for name in value or ():
                    # The run of a debounced submit that comes once more may have been removed.
                    if event.procedures[0].debounce is None or self._world.store.procedure(name) is not None:
                        self._watch(name)
        elif isinstance(event, Signalled):
            self._hear_reply(event, error)
        elif isinstance(event, ReloadBegan) and value and not event.is_over:
            self.reload.begin(self.host)
        elif isinstance(event, Resized) and value:
            journal.append(("resized", self.workers, event.workers))
            self.workers = event.workers
            vacated = self.host.pipeline.core.vacated
            if vacated:
                journal.append(("vacated", vacated))

    def _watch(self, id: str, patience: Patience = Patience.CALL) -> None:
        number = self._next_call()
        self.handles[number] = id
        handle = _Handle(self, number)
        self.host.replies.wait([(id, handle)], patience)
        self.host.tell(WatchEnds(((id, handle),), patience))

    def _hear_reply(self, event: Signalled, error: BaseException | None) -> None:
        if event.ask is not None and error is None:
            self._watch_ask(event.id, event.ask)

    def _watch_ask(self, id: str, ask: AskKey, patience: Patience = Patience.CALL) -> None:
        number = self._next_call()
        self.asks[number] = id, ask
        asker = _Asker(self, number, ask)
        self.host.replies.wait([(id, asker)], patience)
        self.host.tell(WatchEnds(((id, asker),), patience))

    def told(self, number: int, found: Ending | AskResult | BaseException | None) -> None:
        """One who asked was told the reply, or why none comes."""
        id, ask = self.asks.pop(number)
        journal = self._world.journal
        if isinstance(found, AskResult):
            journal.append(("resolve-ask", id, ask, found.reply))
        elif isinstance(found, Ending):
            journal.append(("ask-ended", id, ask))
        elif isinstance(found, NoReply):
            journal.append(("resolve-ask", id, ask, None if "withdrawn" in str(found) else b""))
        elif isinstance(found, ProcedureParked):
            self._watch_ask(id, ask, Patience.ALWAYS)
        elif not isinstance(found, UnknownProcedure):
            self._world.violate(rules.ENDS, f"who waits for a reply of {id} was told {found!r}")

    def heard(self, number: int, ending: Ending | None, error: BaseException | None) -> None:
        """A handle was told the end of its procedure. Each of these procedures comes to one, and stays for good."""
        name = self.handles.pop(number)
        if isinstance(error, ProcedureParked):
            self._world.journal.append(("told-parked", name, error.member))
            if (wrong := rules.told_in_vain(self.host.pipeline, self._world.store, name, error.member)) is not None:
                self._world.violate(rules.ENDS, wrong)
            self._watch(name, Patience.ALWAYS)  # the caller comes back, and waits however long it takes
        elif isinstance(error, UnknownProcedure) and self._world.went_back:
            self._world.journal.append(("told-lost", name))
        elif ending is None:
            self._world.violate(rules.ENDS, f"who waits for the end of {name} was told {error!r}")
        else:
            self._world.journal.append(("resolve", ending.record.id, ending.record.state, ending.output))

    def _next_call(self) -> int:
        self._last_call += 1
        return self._last_call

    # ------------------------------------------------------------ the operator
    def wants(self, probability: float) -> bool:
        """True if the operator acts now, with this probability, or at a moment that is worth it."""
        if not self._verbs_left:
            return False
        if self.host.pool.at_odds():
            probability = max(probability, _AT_ODDS)
        return self._operator.random() < probability

    def operate(self) -> None:
        """The operator asks for something: another number of workers, or something of those that are there."""
        self._verbs_left -= 1
        operator = self._operator
        heads = [head for head in self._world.store.scan() if head.root != self._world.scenario.bystander]
        draw = operator.random() + (0.2 if self.host.pool.at_odds() else 0.0)
        if draw < 0.2:
            self.act(ClientAction("resize", (str(1 + operator.below(_MOST_WORKERS)),)))
            return
        live = [head for head in heads if head.state not in TERMINAL]
        if live and draw < 0.65:
            self.act(self._hard_on(live))
            return
        action = operator.action(heads)
        if action is not None:
            self.act(action)

    def _hard_on(self, live: list[ProcedureRecord]) -> ClientAction:
        """Those are chosen first whose steps share a worker with others, where a kill may go astray."""
        in_hand = self.host.pipeline.core._state.workers.table.in_hand
        shared = {name for name, worker in in_hand.items() if len(worker.queue) > 1}
        chosen = next(
            found
            for names in (self.host.pool.at_odds(), shared, in_hand, {head.id for head in live})
            if (found := _among(live, names))
        )
        head = chosen[self._operator.below(len(chosen))]
        kind = self._hard[self._operator.below(len(self._hard))]
        return ClientAction(kind, (head.id, "force") if kind == "bypass" else (head.id,))

    # ------------------------------------------------------------ the end
    def tie_up(self) -> bool:
        """Nothing goes wrong any more, and nothing moves: do what a procedure still waits for. False when none does."""
        host = self.host
        if host.pipeline.gated:
            host.open_gate()
            return True
        return (
            host.register_late()
            or self._loose_ends.lift_pauses(of_manager=host.pipeline.core.paused is not None)
            or self._loose_ends.end_open_waits()
        )

    def _resume(self, name: str) -> None:
        self.act(ClientAction("resume", (name,)))

    def _register(self, type_name: str) -> None:
        self.host.register(type_name)

    def _publish(self, event: str) -> None:
        call = self._next_call()
        self._ask(call, Published(event, b"at last %d" % call, call))


def _among(heads: list[ProcedureRecord], names: Collection[str]) -> list[ProcedureRecord]:
    return [head for head in heads if head.id in names]


class _Asker(AskListener):
    """A caller that waits for the reply to an ask."""

    __slots__ = ("_callers", "_number")

    def __init__(self, callers: Callers, number: int, ask: AskKey) -> None:
        super().__init__(ask)
        self._callers = callers
        self._number = number

    def set_result(self, found: Ending | AskResult) -> None:
        if self._leave():
            self._callers.told(self._number, found)

    def heard(self, ending: Ending | None, error: BaseException | None) -> None:
        del ending
        self._callers.told(self._number, error)


class _Handle(EndListener):
    """A caller that waits for the end of a procedure."""

    __slots__ = ("_callers", "_number")

    def __init__(self, callers: Callers, number: int) -> None:
        self._callers = callers
        self._number = number

    def heard(self, ending: Ending | None, error: BaseException | None) -> None:
        self._callers.heard(self._number, ending, error)
