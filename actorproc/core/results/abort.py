"""Aborts: a request is recorded, the class may be asked, and then the procedure fails and is undone."""

from __future__ import annotations

from actorproc.core.rollback.failure_scope import aborted_error, fail
from actorproc.core.scheduler.cancellation import cancel_step, kill_cancelled, stop_forced
from actorproc.core.scheduler.schedule import note_unbegun, park, wake
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.residents import ResidentSet
from actorproc.core.state.quarantine import error_of
from actorproc.errors import UnknownProcedure
from actorproc.model.ids import Mode
from actorproc.model.messages.commands import AskAbort, Reply
from actorproc.model.messages.events import AbortRequested
from actorproc.model.messages.outcomes import Refused
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL

__all__ = ["ask_again", "begin_abort", "may_abort", "need_not_ask", "on_refused", "press_abort", "request_abort"]


def request_abort(state: EngineState, event: AbortRequested) -> None:
    """Ask a procedure to abort; the request is durable and False means it has ended already."""
    record = state.residents.procs.get(event.id)
    if record is None:
        unknown = UnknownProcedure(f"no procedure has the id {event.id!r}")
        state.decision.command(Reply(event.reply, error=error_of(state.damage, event.id) or unknown))
        return
    if record.state in TERMINAL or record.bypassing:
        state.decision.command(Reply(event.reply, value=False))
        return
    record.aborting = True
    record.forced = record.forced or event.force
    state.audit(record, "abort", event, "by force" if event.force else "")
    press_abort(state, record)
    state.decision.command(Reply(event.reply, value=True))


def press_abort(state: EngineState, record: ProcedureRecord) -> None:
    """Have a procedure answer for the abort it was asked for; by force its steps and those below it are killed.

    Past the point of no return the wish is recorded and has no effect. During a rollback force alone has one: it kills
    forward steps that the rollback waits for.
    """
    if may_abort(state.residents, record):
        _decide_or_ask(state, record)
    if record.forced and record.rolling and not record.bypassing:
        kill_cancelled(state, record)


def _decide_or_ask(state: EngineState, record: ProcedureRecord) -> None:
    worker = state.workers.table.in_hand.get(record.id)
    if worker is None:
        begin_abort(state, record)
        return
    item = worker.queue[record.id]
    meta = state.types.of(record)
    if item.token.mode is Mode.ASK_ABORT:
        if record.forced:
            item.forced = "aborted"
            stop_forced(state, worker, item)
    elif not record.forced and (meta is None or meta.asks_abort):
        # It decides when its step has ended and it was asked; until then its descendants know nothing.
        state.decision.command(AskAbort(item.token))
    elif _has_open_children(state.residents, record):
        fail(state, record, aborted_error(record))
    else:
        # Alone, a last step that ends well after all has ended the procedure: there is nothing to undo it for.
        cancel_step(state, record)
        if record.forced:
            item.forced = "aborted"
            stop_forced(state, worker, item)


def _has_open_children(residents: ResidentSet, record: ProcedureRecord) -> bool:
    if not record.children:
        return False
    tree = residents.tree_of(record)
    return any(tree.members[name].state not in TERMINAL for name in tree.children.get(record.id, ()))


def may_abort(residents: ResidentSet, record: ProcedureRecord) -> bool:
    """True if an abort it was asked for could have an effect now: it goes forward, and may turn back."""
    if record.rolling or record.bypassing or record.state in TERMINAL:
        return False
    return not residents.has_no_return(record)


def begin_abort(state: EngineState, record: ProcedureRecord) -> None:
    """Ask one that `may_abort` and is in no worker's hands; not a class without `abort`, nor an unknown one."""
    meta = state.types.of(record)
    was_executed = record.step > 1 or record.attempt > 0
    may_refuse = state.switches.unattended if meta is None else meta.asks_abort
    if record.forced or not was_executed or not may_refuse:
        fail(state, record, aborted_error(record))
    else:
        state.follow_ups.asking[record.id] = None


def need_not_ask(state: EngineState, type_name: str) -> None:
    """This class, registered anew, has no `abort` any more: who waits for a worker to be asked is aborted at once."""
    for name in list(state.follow_ups.asking):
        record = state.residents.procs.get(name)
        if record is None or record.type_name != type_name or name in state.workers.table.in_hand:
            continue
        if may_abort(state.residents, record) and not state.residents.tree_of(record).is_still(name):
            begin_abort(state, record)


def on_refused(state: EngineState, record: ProcedureRecord, outcome: Refused) -> None:
    """No worker can run its step as it is: it is set aside, unless it must not go on anyway, or has ended."""
    if record.state in TERMINAL and not record.undoing:
        return  # while it was to be asked about its abort
    if outcome.is_unbegun:
        note_unbegun(state, record)
    record.parked = outcome.reason
    state.decision.touch(record)
    park(state, record, outcome.needs)
    state.types.count_parking()  # also where another one of the same id was parked before
    if record.forced and may_abort(state.residents, record):  # its answer came before the kill did
        fail(state, record, aborted_error(record))


def ask_again(state: EngineState, record: ProcedureRecord) -> None:
    """The question about its abort came back unanswered; force asks no procedure."""
    if not record.aborting:
        wake(state, record)  # it was asked of another run, or of another procedure under this id
    elif record.forced and may_abort(state.residents, record):
        fail(state, record, aborted_error(record))
    else:
        state.follow_ups.asking[record.id] = None
