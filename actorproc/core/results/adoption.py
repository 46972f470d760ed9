"""Adoption of running steps by a new leader: hosts outlive leaders, and so do the steps on them.

A leader that starts finds in the heads which steps were handed to hosts. It takes them for steps in the hands of one
*absent worker* of each host. When the host joins and names what it has, its steps go on under their attempts, and the
others go back to the queue. A host that does not come is given up by the engine: its absent worker is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from actorproc.core.queues.worker_table import InHand, Worker
from actorproc.core.results.worker_loss import on_lost
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.step_limits import known_limits_of
from actorproc.model.crash_report import HOST_LOST, CrashReport
from actorproc.model.ids import HeldSteps, Mode, StepToken, WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.events import HostClaimed, WorkerLost, WorkerReady
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.slots import absent_slot, first_slot, host_of, is_dedicated
from actorproc.model.states import ProcedureState

__all__ = ["absent_worker", "absent_workers", "claimable", "handed_out", "on_claimed"]


def absent_worker(host: int) -> WorkerId:
    """The worker that stands for those of a host that has not joined this leader yet."""
    return WorkerId(absent_slot(host), 0)


def absent_workers(heads: Iterable[ProcedureRecord]) -> list[tuple[WorkerReady, tuple[StepToken, ...]]]:
    """Steps that the leader before had handed to hosts, as the heads say, in the hands of absent workers."""
    found: dict[int, list[StepToken]] = {}
    for record in heads:
        if record.past is not None and record.past.host and _is_handed_out(record):
            found.setdefault(record.past.host, []).append(_token_of(record))
    return [(WorkerReady(absent_worker(host), leaving=True), tuple(tokens)) for host, tokens in sorted(found.items())]


def handed_out(record: ProcedureRecord) -> StepToken | None:
    """The attempt that a head says was handed out and not answered; None: there is none."""
    return _token_of(record) if _is_handed_out(record) else None


def _is_handed_out(record: ProcedureRecord) -> bool:
    # Children may be pending: it may go on with the first of them, and an undo does not wait for them.
    if record.attempt <= 0 or record.due_at is not None or record.parked is not None:
        return False
    return record.undoing > 0 or (record.state is ProcedureState.RUNNABLE and not record.rolling and record.locked)


def _token_of(record: ProcedureRecord) -> StepToken:
    worker = absent_worker(record.past.host if record.past is not None else 0)
    if record.undoing:
        return StepToken(0, worker, record.id, record.undo_step or record.records + 1, record.attempt, Mode.ROLLBACK)
    mode = Mode.EXECUTE if record.event is None else Mode.ON_TIMEOUT
    return StepToken(0, worker, record.id, record.step, record.attempt, mode)


def claimable(
    state: EngineState, host: int, slots: int, held: Sequence[HeldSteps]
) -> list[tuple[WorkerReady, tuple[RunStep, ...]]]:
    """The workers of a host that live on, each with those of its steps that count."""
    found = []
    for worker, pid, running, answered in held:
        if host_of(worker.slot) != host:
            continue
        counting = [token for token in running if _counts(state, host, token)]
        # An answer of an earlier generation may bear the same numbers.
        counting += [token for token in answered if _counts(state, host, token) and _is_first(state, token)]
        has_own_procedure = is_dedicated(worker.slot)
        if has_own_procedure and not counting:
            continue
        if not has_own_procedure and worker.slot - first_slot(host) >= slots:
            continue
        reserved = counting[0].procedure if has_own_procedure else None
        found.append(
            (WorkerReady(worker, reserved=reserved, pid=pid), tuple(_command(state, token) for token in counting))
        )
    return found


def _counts(state: EngineState, host: int, token: StepToken) -> bool:
    owner = state.workers.table.in_hand.get(token.procedure)
    if owner is None or owner.id not in (absent_worker(host), token.worker):
        return False
    record = state.residents.procs.get(token.procedure)
    if record is None or record.type_name not in state.types.metas:
        return False  # by what policy it is to be tried again, or undone, is not known
    own = owner.queue[token.procedure].token
    return (own.step, own.attempt, own.mode) == (token.step, token.attempt, token.mode)


def _is_first(state: EngineState, token: StepToken) -> bool:
    record = state.residents.procs.get(token.procedure)
    return record is not None and record.generation == 1


def on_claimed(state: EngineState, event: HostClaimed) -> None:
    """A host has joined that an earlier leader had: its steps go on, and those that it has not got run anew."""
    table = state.workers.table
    absent = table.find(absent_worker(event.host))
    for ready, tokens in event.workers:
        worker = table.find(ready.worker) or table.add(
            ready.worker, state.decision.now, ready.pid, reserved=ready.reserved, host=ready.host
        )
        if ready.reserved is not None:
            state.workers.hired[ready.reserved] = ready.worker
        for token in tokens:
            _adopt(state, worker, token)
    if absent is not None:
        # They may have begun, and been killed when no leader was heard: so they are attempts, charged to none.
        report = CrashReport(kind=HOST_LOST, message="its host has not got it any more")
        on_lost(state, WorkerLost(absent.id, report, crashed=False))


def _adopt(state: EngineState, worker: Worker, token: StepToken) -> None:
    table = state.workers.table
    record = state.residents.procs.get(token.procedure)
    owner = table.in_hand.get(token.procedure)
    if record is None or owner is None or owner is worker:
        return
    before = table.take(token.procedure, state.decision.now)
    item = InHand(token, before.type_name, forced=before.forced, told=before.told, kill_at=before.kill_at)
    known = known_limits_of(state.types, record)
    item.threads, item.is_task = known.limits.beside, bool(known.limits.tasks)
    if token.mode is not Mode.ASK_ABORT:
        item.demand = known.demand
    table.give(worker, item, state.decision.now)


def _command(state: EngineState, token: StepToken) -> RunStep:
    """The command by which a step would have been handed out, for the table of the steps in flight."""
    record = state.residents.procs[token.procedure]
    known = known_limits_of(state.types, record)
    limits = known.limits
    return RunStep(
        token,
        record.type_name,
        True,
        record.root,
        record.parent,
        token.attempt > 1,
        False,
        record.deadline,
        record.awaiting,
        wall_time=limits.wall_time,
        grace=limits.grace,
        heartbeat=limits.heartbeat,
        limits=None if known.is_plain else limits,
        generation=record.generation,
        begun=record.begun,
        step_name=record.current_name,
    )
