"""Promises that only a real shell can break, and those that are judged by looking into it.

To the numbers of `tests.simulator.rules.invariants` come 23 and 27, and 22 is judged at the worker as well. Each rule
is a function: what it sees wrong in words, or None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.engine.supervisor_actor import SupervisorActor
from actorproc.model.ids import StepToken
from actorproc.model.messages.commands import RunStep
from actorproc.model.slots import host_of
from actorproc.model.states import TERMINAL
from actorproc.store.base import ProcedureStore
from actorproc.testing.histories.image import Image
from actorproc.workers.protocol.frames import Ended, FromWorker, NeedState, Returned, Run
from tests.simulator.actor_sim.workers import SimulatedWorker, is_threaded
from tests.simulator.core_sim.restored import compare_with_restored

__all__ = [
    "AIMED",
    "CANCELLED",
    "ENDS",
    "FENCED",
    "GATED",
    "MEMORY",
    "SLOTS",
    "kills_too_soon",
    "memory_differs",
    "misses",
    "slots_differ",
    "stands_still",
    "strikes_another",
    "told_in_vain",
]

_INSTANT = 1e-6
"""Seconds that count as none."""
NO_HOSTS: Mapping[int, int] = MappingProxyType({})

MEMORY = 0
"""Memory equals the store."""
ENDS = 15
"""Everything ends, and every caller is answered."""
GATED = 21
"""Rule: a procedure that an operator stopped stands still."""
AIMED = 22
"""A worker is killed for a step that it has, and no other step dies for it."""
SLOTS = 23
"""There are as many worker slots as were asked for."""
FENCED = 27
"""Fences grow."""
CANCELLED = 36
"""An async step is told to end, and its worker is killed only if it does not."""


# ---------------------------------------------------------------- when a worker is to be killed for a step
def strikes_another(worker: SimulatedWorker, blamed: StepToken, unheard: Iterable[FromWorker]) -> str | None:
    """The step has not begun, and a kill would end one that has, or put one before it back.

    Not judged of steps that run beside each other: who kills one of them ends all, which is known and told.
    """
    if _is_beside_others(worker, blamed) or blamed in worker.running or _has_spoken(blamed, unheard):
        return None
    waiting = _waiting(worker)
    if blamed not in waiting:
        return None
    others = [*worker.running, *waiting[: waiting.index(blamed)]]
    return f"a kill meant for {blamed} strikes {others}" if others else None


def misses(worker: SimulatedWorker, blamed: StepToken, unheard: Iterable[FromWorker]) -> str | None:
    """The worker does not have the step that it is killed for, and has not said so either."""
    if _is_beside_others(worker, blamed) or blamed in worker.running or _has_spoken(blamed, unheard):
        return None
    waiting = _waiting(worker)
    if blamed in waiting:
        return None
    return f"a kill is meant for {blamed}, which is not there: {[*worker.running]} run, {waiting} wait"


def kills_too_soon(command: RunStep, told_at: float | None, now: float) -> str | None:
    """An async step was not told to end for as long as its grace lasts, and its worker is killed for it."""
    if told_at is not None and now >= told_at + command.grace - _INSTANT:
        return None
    told = "was not told to end" if told_at is None else f"was told to end {now - told_at:g} s ago"
    return f"a worker is killed for the async step {command.token}, which {told}; its grace is {command.grace:g} s"


def _is_beside_others(worker: SimulatedWorker, blamed: StepToken) -> bool:
    command = worker.given.get(blamed)
    is_one_of_many = command is not None and command.limits is not None and command.limits.beside > 1
    return is_one_of_many or any(is_threaded(step.run) for step in worker.running.values())


def _waiting(worker: SimulatedWorker) -> list[StepToken]:
    """Steps that have not begun, in their order."""
    on_the_way = [message for message in worker.wire if type(message) is Run]
    return [run.token for run in (*worker.queue, *on_the_way)]


def _has_spoken(blamed: StepToken, unheard: Iterable[FromWorker]) -> bool:
    """True if what makes the kill needless was said already: the manager could not know."""
    return any(isinstance(one, Ended | Returned | NeedState) and one.token == blamed for one in unheard)


# ---------------------------------------------------------------- when nothing is under way
def memory_differs(pipeline: CommitPipeline, store: ProcedureStore) -> str | None:
    """Memory is a cache of the store. To be asked when nothing is open and nothing is being committed."""
    state = pipeline.core._state
    image = Image(store.load())
    # Numbers that were given to what came and went in one batch are in no row; a restart may give them once more.
    image.next_seq, image.next_ticket = state.counters.next_seq, state.counters.next_ticket
    return compare_with_restored(pipeline.core, image)


def told_in_vain(pipeline: CommitPipeline, store: ProcedureStore, name: str, member: str) -> str | None:
    """A caller was told that a procedure cannot end because of a member of its tree that is not parked."""
    head, waited = store.procedure(member), store.procedure(name)
    is_relative = head is not None and waited is not None and head.root == waited.root
    if (
        is_relative
        and head is not None
        and (head.parked is not None or head.type_name not in pipeline.core._state.types.metas)
    ):
        return None
    return f"a caller of {name} was told that {member} is parked, and it is not: {head}"


# ---------------------------------------------------------------- when all is over
def slots_differ(
    supervisor: SupervisorActor, wanted: int, vacated: Collection[int], hosts: Mapping[int, int] = NO_HOSTS
) -> str | None:
    """The supervisor keeps as many slots as the last resize said; those that retire are as good as gone.

    Of each worker host that is there it keeps as many as that offers, and of others none.
    """
    states = {number: slot.state for number, slot in supervisor._slots.items()}
    staying = Counter(host_of(number) for number, state in states.items() if state != "retiring")
    if staying == Counter({0: wanted, **hosts}):
        return None
    of_hosts = f", and {dict(hosts)} on hosts" if hosts else ""
    return f"{wanted} worker slots are wanted{of_hosts}, and there are {states}; vacated are {sorted(vacated)}"


def stands_still(pipeline: CommitPipeline, store: ProcedureStore) -> list[str]:
    """Procedures that have not ended although nothing keeps them any more."""
    return [
        f"{head.id} stands still: {head.state}, {pipeline.core.phase(head)}, rolling={head.rolling}, forced={head.forced}"
        for head in store.scan()
        if head.state not in TERMINAL
    ]
