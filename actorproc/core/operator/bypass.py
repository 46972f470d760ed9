"""The operator's last resort: a procedure ends as if it had succeeded, without running and without being undone.

As in HBase: children that have not ended must be bypassed with it, ancestors may be, and a running step is killed
only by force. Unlike HBase the wish is durable and needs no restart. A bypassed procedure ends as soon as no worker
has its step and nothing below it is open. An answer of the step meanwhile does not count. Its undo units are dropped,
because a later rollback of its tree must not touch what an operator put right by hand. For the same reason
a bypassed root gives everything back: its locks, and the keys its tree poisoned.
"""

from __future__ import annotations

from collections.abc import Sequence

from actorproc.core.lifecycle.finish import close_bypassed, forget_listening, is_open, settle_bypass
from actorproc.core.lock_manager import acquire
from actorproc.core.lock_manager.poison import free_tree
from actorproc.core.queues.worker_table import InHand
from actorproc.core.scheduler.cancellation import stop_forced
from actorproc.core.state import head
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.residents import ResidentSet
from actorproc.core.state.quarantine import error_of
from actorproc.core.state.tree import Tree
from actorproc.errors import ActorprocError, NotAllowed, UnknownProcedure
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import BypassRequested
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.model.trace_context import opened_again

__all__ = ["request_bypass", "take_up_bypasses"]

_FORCED = "bypassed"
_NAMED = 3


def request_bypass(state: EngineState, event: BypassRequested) -> None:
    """End a procedure as if it had succeeded; False when it has ended already, other than `FAILED`."""
    record = state.residents.procs.get(event.id)
    if record is None:
        unknown = UnknownProcedure(f"no procedure has the id {event.id!r}")
        state.decision.command(Reply(event.reply, error=error_of(state.damage, event.id) or unknown))
        return
    error = _refusal(state, record, event)
    if error is not None:
        state.decision.command(Reply(event.reply, error=error))
    elif record.state is ProcedureState.FAILED:
        _bypass_failed_root(state, record, event)
        state.decision.command(Reply(event.reply, value=True))
    elif not is_open(record):
        state.decision.command(Reply(event.reply, value=False))
    else:
        _bypass(state, record, event)
        state.decision.command(Reply(event.reply, value=True))


def take_up_bypasses(state: EngineState, busy: Sequence[Tree]) -> None:
    """Go on with what was to be bypassed, after a start or a failed commit."""
    for tree in busy:
        wanted = [record for record in tree.members.values() if record.bypassing]
        for record in reversed(wanted):
            if record.forced and record.id in state.workers.table.in_hand:
                _stop_step(state, record)
            settle_bypass(state, record)


def _refusal(state: EngineState, record: ProcedureRecord, event: BypassRequested) -> ActorprocError | None:
    if record.state is ProcedureState.FAILED:
        if record.parent is None:
            return None
        return NotAllowed(
            f"{record.id} has failed and its parent has taken that already; bypass {record.parent}, or the root "
            f"{record.root}"
        )
    if not is_open(record):
        return None
    below = _open_below(state.residents, record)
    if below and not event.children:
        return NotAllowed(
            f"{record.id} has {len(below)} descendants that have not ended ({_names(below)}); bypass those first, or "
            f"all of them with bypass({record.id!r}, children=True)"
        )
    running = [member for member in (record, *below) if member.id in state.workers.table.in_hand]
    if running and not event.force:
        return NotAllowed(
            f"a worker has a step of {_names(running)} in hand; wait for its end, or kill it with "
            f"bypass({record.id!r}, force=True)"
        )
    return None


def _open_below(residents: ResidentSet, record: ProcedureRecord) -> list[ProcedureRecord]:
    return [member for member in residents.tree_of(record).below(record.id) if member is not record and is_open(member)]


def _names(members: list[ProcedureRecord]) -> str:
    more = f" and {len(members) - _NAMED} more" if len(members) > _NAMED else ""
    return ", ".join(member.id for member in members[:_NAMED]) + more


def _bypass(state: EngineState, record: ProcedureRecord, event: BypassRequested) -> None:
    tree = state.residents.tree_of(record)
    targets = [record, *_open_below(state.residents, record)]
    ancestors = [tree.members[name] for name in tree.lineage(record.id)[1:]] if event.ancestors else []
    ancestors = [member for member in ancestors if is_open(member)]
    for member in (*targets, *ancestors):
        member.bypassing = True
        member.forced = member.forced or event.force
        _take_out(state, member)
        state.audit(member, "bypass", event, "" if member is record else f"with {record.id}")
    for member in (*targets, *(ancestors if event.force else ())):
        if member.id in state.workers.table.in_hand:
            _stop_step(state, member)
    # Descendants before their parents: a parent ends with the last of them.
    for member in (*reversed(targets), *ancestors):
        settle_bypass(state, member)


def _take_out(state: EngineState, member: ProcedureRecord) -> None:
    """It is not handed out, woken or asked any more."""
    state.queues.run_queue.discard(member.id)
    state.follow_ups.asking.pop(member.id, None)
    if not member.retaking:  # else those below it that go on need what their root takes again
        acquire.withdraw(state, member)
    if not member.locked and member.lock_scope == "procedure":
        acquire.keep_granted(state, member)
    forget_listening(state.signals, member)
    head.wait_no_longer(member)
    state.decision.touch(member)


def _stop_step(state: EngineState, member: ProcedureRecord) -> None:
    worker = state.workers.table.in_hand[member.id]
    item: InHand = worker.queue[member.id]
    item.forced = _FORCED
    stop_forced(state, worker, item)


def _bypass_failed_root(state: EngineState, root: ProcedureRecord, event: BypassRequested) -> None:
    """Bypass a failed root with all that its tree left half done: its keys are not poisoned any more."""
    root.past = opened_again(root, state.decision.now)
    root.run += 1
    root.ended_in = 0
    state.forget_acknowledgement(root.id)
    state.audit(root, "bypass", event, "it had failed")
    close_bypassed(state, root)
    free_tree(state, state.residents.tree_of(root))
    assert root.state in TERMINAL
