"""Random procedure programs as data, and the pure interpreter that plays a step of one.

A program is a list of operations; the state of its procedure is ``position:counter:undo-phase`` in ASCII.
The interpreter is a function of (program, state, mode, unit, attempt), so a replayed step gives the same
answer: what differs between two runs of a history can only come from the engine.

Undo labels follow the two kinds of real procedures: a *saga* labels each step ("u0", "u1", ...; some steps
have nothing to undo), a *plain* procedure uses "" for all of it, and one without rollback uses None.
"""

from __future__ import annotations

from zlib import crc32

import msgspec

from actorproc.model.ids import Mode, StepToken
from actorproc.model.messages.outcomes import (
    Advanced,
    Answered,
    Failed,
    Finished,
    Outcome,
    Poisoned,
    Renewed,
    Slept,
    StepRequests,
    Suspended,
    Waited,
)
from actorproc.model.policies import LockKey, Quotas, Retention, Scheduling, TypeMeta
from actorproc.model.rows.records import ErrorInfo, NewProcedure, Trace, Wait

__all__ = [
    "WALL_TIME",
    "ClientAction",
    "HostOffer",
    "Operation",
    "Program",
    "Scenario",
    "listens",
    "placed_elsewhere",
    "play",
    "program_of",
]

INITIAL_STATE = b"0:0:0"
_GENERATION = 1000
"""Added to the counter of a state when a new generation begins: the operation "again" does so once."""
_FAILING_UNDOS = {"flaky": 1, "late": 5}
"""Attempts to undo that fail at first."""
WALL_TIME = 3.0
"""Seconds after which a hanging step is killed."""


class Operation(msgspec.Struct, frozen=True, gc=False):
    """Work of one step. `kind` is one of go, again, sleep, wait, spawn, fatal, poison, done."""

    kind: str
    unit: str | None = None
    """Undo label of this step."""
    seconds: float = 0.0
    """go: `after`; sleep: how long; wait: time limit (0: none)."""
    persist: bool = True
    event: str = ""
    children: tuple[Program, ...] = ()
    wait: Wait = "all"
    roots: bool = False
    """go, done: the children are roots of their own, submitted with the success of the step."""
    replies: bool = False
    """go: the step replies to the ask that woke it, if one did."""
    leave: bool = False
    """spawn: outstanding children outlive their parent."""
    max_parallel: int | None = None
    acquire: tuple[LockKey, ...] = ()
    poisons: tuple[str, ...] | None = None
    """go, sleep, wait: poison keys after this step; None: as before."""
    flaky: int = 0
    """The first attempts that fail with a retryable error."""
    hangs: int = 0
    """The first attempts that never answer: they need a wall-time kill."""
    yields: bool = False
    """go: those that wait go first."""
    note: bool = False
    """The step makes a write-ahead note before it goes on."""
    no_return: bool = False
    undo: str = "ok"
    """Course of the unit's undo: ok, twice (two rollback steps), flaky (one retry), late (works from the sixth
    attempt on), broken (never works)."""


class Program(msgspec.Struct, frozen=True, gc=False):
    """A procedure type with its only program."""

    meta: TypeMeta
    operations: tuple[Operation, ...]
    locks: tuple[LockKey, ...] = ()
    poisons: tuple[str, ...] = ()
    """Poison keys around the first step."""
    allows_abort: bool = True
    timeout_goes_on: bool = False
    """Answer of `on_timeout`: go on, or None (which fails the wait)."""
    deadline: float | None = None
    """Seconds from the submit."""
    priority: int = 0
    limit_keys: tuple[str, ...] = ()
    delay: float = 0.0
    """Seconds from the submit to the first step, of a root."""


class ClientAction(msgspec.Struct, frozen=True, gc=False):
    """Act of the outside, done once.

    `kind` is submit, conflict (a submit that must be refused), resubmit (of an id that may exist, with a policy as the
    option), repeat (the newest of these submits arrives once more), debounce (of a root, with key, wait and longest wait),
    debounce-again (one of these arrives once more), nap (time passes to whatever is due next), sweep
    (finished trees are removed as `Scenario.retention` says), open (the gate), or what `requests` makes a call of:
    abort, force (an abort that kills), signal, ask, publish, withdraw, clear (of a poison key), retry, bypass, rollback,
    pause, resume, schedule, delete, acknowledge, taken (the result of a call), reload (of all workers), resize (of the pool of
    workers). The first of `targets` is whom it is about, or
    how many workers; the rest are options of that call. With "anew" a class is registered again, as
    `features.changed_meta` says.
    """

    kind: str
    targets: tuple[str, ...]


class HostOffer(msgspec.Struct, frozen=True, gc=False):
    """A host and what it offers to steps."""

    name: str
    labels: tuple[str, ...] = ()
    resources: dict[str, float] = {}


class Scenario(msgspec.Struct, frozen=True, gc=False):
    """Everything of a history that is chosen before it begins."""

    roots: dict[str, Program]
    programs: dict[str, Program]
    """By type name."""
    actions: tuple[ClientAction, ...]
    bystander: str | None
    """A root that shares nothing with the others and must succeed whatever happens to them."""
    steps: int
    slots: int
    is_prefetching: bool
    """The core expects short steps from the beginning, so it hands out several at a time."""
    quotas: Quotas = Quotas()
    scheduling: Scheduling = Scheduling()
    retention: Retention = Retention()
    hosts: tuple[HostOffer, ...] = ()
    """Hosts, over which the workers are spread; none: there is the manager's own machine alone."""
    departures: int = 0
    """Number of times that a host leaves or drains."""
    divided: tuple[str, ...] = ()
    """Types of which a host that joins may have other code."""
    hunted: bool = False
    """Hosts are lost with the steps of one procedure, one after the other."""
    is_gated: bool = False
    """Each host starts gated: nothing runs until the gate is opened."""
    is_patient: bool = False
    """The outside acts when nothing else can happen before time passes; for fixed orders of moves."""


def listens(token: StepToken) -> bool:
    """True if a hanging step looks at `Context.aborting`: those of half of all procedures do."""
    return crc32(token.procedure.encode()) % 2 == 0


def program_of(id: str, program: Program, *, now: float, fresh: bool = False) -> NewProcedure:
    """The submit of `program` under `id`."""
    return NewProcedure(
        id=id,
        fresh=fresh,
        type_name=program.meta.type_name,
        state=INITIAL_STATE,
        digest=program.meta.type_name.encode(),
        locks=program.locks,
        poisons=program.poisons,
        unit=program.operations[0].unit,
        due_at=now + program.delay if program.delay else None,
        deadline=None if program.deadline is None else now + program.deadline,
        priority=program.priority,
        limit_keys=program.limit_keys,
        trace=_trace_of(id, now),
        searchable=_searchable(program, id, INITIAL_STATE),
    )


def _trace_of(id: str, now: float) -> Trace | None:
    """Half of all roots are traced and recorded, a quarter is traced and not recorded; each submit has its own trace."""
    kind = crc32(id[::-1].encode()) % 4
    trace = crc32(f"{id} at {now}".encode()) or 1
    return Trace(trace.to_bytes(16) + bytes(8) + bytes((kind > 1,))) if kind else None


# ---------------------------------------------------------------- playing one step
def play(program: Program, id: str, state: bytes, mode: Mode, unit: str | None, attempt: int) -> Outcome:
    """The answer of one handed-out step; a pure function."""
    if mode is Mode.ASK_ABORT:
        return Answered(allowed=program.allows_abort, state=state)
    return _tagged(program, id, _played(program, id, state, mode, unit, attempt))


def _tagged(program: Program, id: str, outcome: Outcome) -> Outcome:
    """The answer with changes of tags, of a quarter of all procedures: another value in most states, none in some."""
    if not _is_indexed(program, id) or isinstance(outcome, Failed):
        return outcome
    searchable = _searchable(program, id, outcome.state)
    if isinstance(outcome, Poisoned):
        return msgspec.structs.replace(outcome, requests=_of_state(program, id, outcome.state))
    number = crc32(outcome.state)
    changes = ("at", None if number % 5 == 0 else str(number % 7)), ("odd", "yes" if number % 2 else None)
    texts = _searchable(program, id, outcome.fresh) if isinstance(outcome, Renewed) else searchable
    asked = outcome.requests or StepRequests()
    requests = msgspec.structs.replace(asked, tags=changes, searchable=texts)
    if not isinstance(outcome, Renewed):
        return msgspec.structs.replace(outcome, requests=requests)
    return msgspec.structs.replace(outcome, requests=requests, searchable=searchable)


def _is_indexed(program: Program, id: str) -> bool:
    return crc32(f"{id} of {len(program.operations)}, {program.timeout_goes_on}".encode()) % 4 == 0


def _of_state(program: Program, id: str, state: bytes) -> StepRequests | None:
    """Requests that say what the state is found by, and nothing else."""
    return StepRequests(searchable=_searchable(program, id, state)) if _is_indexed(program, id) else None


def _searchable(program: Program, id: str, state: bytes) -> tuple[str, ...]:
    """Texts of the searchable fields that a state has, of the procedures that change their tags too."""
    if not _is_indexed(program, id):
        return ()
    number = crc32(b"field" + state)
    return (f"place={number % 5}", *(("none",) if number % 3 else ()))


def _played(program: Program, id: str, state: bytes, mode: Mode, unit: str | None, attempt: int) -> Outcome:
    position, counter, phase = (int(part) for part in state.split(b":"))
    if mode is Mode.ROLLBACK:
        return _undo(program, id, position, counter, phase, unit, attempt)
    if mode is Mode.ON_TIMEOUT:
        if program.timeout_goes_on:
            return Advanced(state=_state(position, counter + 1), unit=_unit_at(program, position))
        return Failed(state=state, error=ErrorInfo("wait-timeout", "WaitTimeout", "not in time"))
    first = position
    while True:
        operation = program.operations[position]
        if attempt <= operation.flaky:
            return Failed(state=state, error=ErrorInfo("error", "ConnectionError", "flaky"), retryable=True)
        steps = position - first + 1
        if not _goes_on_unsaved(program, position):
            return _forward(program, id, operation, position, counter, steps)
        position, counter = position + 1, counter + 1


def placed_elsewhere(program: Program, id: str, state: bytes, *, leaves_out: bool) -> Advanced | None:
    """The answer of new code that places a saga before another step than the old code; None: it does not.

    `leaves_out`: the next step is left out for good (``on_change="skip"``); else a new step stands in its place.
    """
    position, counter, _ = (int(part) for part in state.split(b":"))
    operation = program.operations[position]
    if not (operation.unit or "").startswith("u") or operation.kind not in {"go", "sleep", "wait", "spawn"}:
        return None
    around = program.operations[max(0, position - 1) : position + 2]
    if sum(other.unit == operation.unit for other in around) > 1:
        return None  # one of several repeats: no code may place another step between them
    if not leaves_out:
        return Advanced(state=state, unit=f"new{position}", placed=True, requests=_of_state(program, id, state))
    following = program.operations[position + 1]
    after = _state(position + 1, counter)
    return Advanced(
        state=after,
        unit=following.unit,
        no_return=following.no_return,
        placed=True,
        requests=_of_state(program, id, after),
    )


def _goes_on_unsaved(program: Program, position: int) -> bool:
    """True if the step said `persist=False` and the next one may run under the same token."""
    operation = program.operations[position]
    if operation.kind != "go" or operation.persist or operation.seconds or operation.acquire:
        return False
    if operation.poisons is not None or operation.yields:
        return False
    # A step with an undo unit of its own, or past the point of no return, must be announced before it runs.
    following = program.operations[position + 1]
    return following.unit in {None, operation.unit} and not following.no_return


def _forward(
    program: Program,
    id: str,
    operation: Operation,
    position: int,
    counter: int,
    steps: int,
) -> Outcome:
    kind = operation.kind
    requests = None
    if operation.roots or operation.replies:
        roots = _children(id, operation, position, counter) if operation.roots else ()
        reply = b"%s at %d" % (id.encode(), counter) if operation.replies else None
        requests = StepRequests(roots, reply=reply)
    if kind == "done":
        output = b"%s=%d" % (id.encode(), counter)
        return Finished(state=_state(position, counter + 1), steps=steps, output=output, requests=requests)
    if kind == "fatal":
        return Failed(state=_state(position, counter), error=ErrorInfo("error", "ValueError", "fatal"))
    if kind == "poison":
        error = ErrorInfo("poisoned", "Poisoned", "told so")
        return Poisoned(state=_state(position, counter), steps=steps, keys=(f"own/{id}",), error=error)
    after = _state(position + 1, counter + 1)
    following = program.operations[position + 1]
    unit, no_return = following.unit, following.no_return
    if kind == "again" and counter < _GENERATION:
        first = program.operations[0]
        return Renewed(
            state=after,
            fresh=_state(0, counter + 1 + _GENERATION),
            unit=first.unit,
            no_return=first.no_return,
            steps=steps,
            locks=program.locks[:1],
            poisons=program.poisons or None,
        )
    if kind in {"go", "again"}:
        return Advanced(
            state=after,
            unit=unit,
            no_return=no_return,
            steps=steps,
            persist=operation.persist,
            after=operation.seconds,
            acquire=operation.acquire,
            poisons=operation.poisons,
            yield_=operation.yields,
            requests=requests,
        )
    if kind == "sleep":
        seconds, keys = operation.seconds, operation.poisons
        return Slept(state=after, unit=unit, no_return=no_return, steps=steps, seconds=seconds, poisons=keys)
    if kind == "wait":
        return Waited(
            state=after,
            unit=unit,
            no_return=no_return,
            steps=steps,
            event=operation.event,
            timeout=operation.seconds or None,
            poisons=operation.poisons,
        )
    return Suspended(
        state=after,
        unit=unit,
        no_return=no_return,
        steps=steps,
        children=_children(id, operation, position, counter),
        wait=operation.wait,
        on_parent_end="leave" if operation.leave else "abort",
        max_parallel=operation.max_parallel,
    )


def _child_id(id: str, position: int, index: int, counter: int) -> str:
    return f"{id}.{position}{index}" if counter < _GENERATION else f"{id}.{position}{index}.g2"


def _children(id: str, operation: Operation, position: int, counter: int) -> tuple[NewProcedure, ...]:
    return tuple(
        NewProcedure(
            id=_child_id(id, position, index, counter),
            type_name=child.meta.type_name,
            state=INITIAL_STATE,
            digest=child.meta.type_name.encode(),
            locks=child.locks,
            poisons=child.poisons,
            unit=child.operations[0].unit,
            priority=child.priority,
            limit_keys=child.limit_keys,
            searchable=_searchable(child, _child_id(id, position, index, counter), INITIAL_STATE),
        )
        for index, child in enumerate(operation.children)
    )


def _undo(
    program: Program,
    id: str,
    position: int,
    counter: int,
    phase: int,
    unit: str | None,
    attempt: int,
) -> Outcome:
    how = next((item.undo for item in program.operations if item.unit == unit and item.undo != "ok"), "ok")
    if how == "broken" or attempt <= _FAILING_UNDOS.get(how, 0):
        error = ErrorInfo("error", "OSError", f"undo of {unit!r} in {id}")
        return Failed(state=_state(position, counter, phase), error=error, retryable=True)
    if how == "twice" and phase == 0:
        return Advanced(state=_state(position, counter + 1, 1))
    return Finished(state=_state(position, counter + 1, 0))


def _state(position: int, counter: int, phase: int = 0) -> bytes:
    return b"%d:%d:%d" % (position, counter, phase)


def _unit_at(program: Program, position: int) -> str | None:
    return program.operations[position].unit
