"""The short way from its last step to the end, for the procedure that leaves nothing behind.

Most procedures end well and hold nothing: no locks, limits, poison, children or undo of their own. The long way
(`on_result.on_ended`, `finish.end`) asks for each of these. Here the conditions stand in one place. When one is not
met, the answer takes the long way. When all are met, the decision is the same to the byte (a test plays the same
histories on both ways).
"""

from __future__ import annotations

from actorproc.core.lifecycle.finish import close_tree, tell_parent
from actorproc.core.lifecycle.step_record import close_step
from actorproc.core.results.on_result import look_after
from actorproc.core.state import signal_ids
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.head import is_plain
from actorproc.core.state.transitions import Trigger, move
from actorproc.core.state.tree import Tree
from actorproc.model.ids import Mode
from actorproc.model.messages.commands import Resolve
from actorproc.model.messages.events import StepEnded
from actorproc.model.messages.outcomes import Finished
from actorproc.model.states import ProcedureState

__all__ = ["end_straight"]

# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_EXECUTE, _SUCCESS, _FINISHED = Mode.EXECUTE, ProcedureState.SUCCESS, Trigger.FINISHED


def end_straight(state: EngineState, event: StepEnded, outcome: Finished) -> bool:
    """Take the answer of a last step and end its procedure, when that moves no procedure but its parent; else False."""
    token = event.token
    procedure = token.procedure
    record = state.residents.procs.get(procedure)
    if record is None or token.mode is not _EXECUTE or record.poisons or not is_plain(record):
        return False
    if outcome.requests is not None:
        return False
    if state.schedules.by_firing and procedure in state.schedules.by_firing:
        return False
    tree = state.residents.trees[record.root]
    if not _is_calm(tree, procedure) or (record.parent is None and tree.open != 1):
        return False
    item = state.workers.table.current(token)
    if item is None:
        return False
    worker = state.workers.table.put_down(item, state.decision.now, outcome.elapsed)
    tree.running.discard(procedure)
    if worker.queue or worker.leaving:
        look_after(state, worker)
    _forget(state, procedure)
    record.epoch = state.counters.epoch
    close_step(state, record, item, outcome)
    move(record, _FINISHED)
    record.finished_at = state.decision.now
    record.payload = None
    if state.signals.taken or state.signals.buffered:
        signal_ids.forget(state, procedure)
    state.decision.touch(record)
    tree.open -= 1
    state.decision.commands.append(Resolve(procedure, _SUCCESS))
    if record.parent is not None:
        tell_parent(state, record)
    if not tree.open:
        close_tree(state, tree)
    return True


def _is_calm(tree: Tree, procedure: str) -> bool:
    """Nothing of the tree is paused or undone, and this member holds no locks, nor inherited any."""
    if tree.still or tree.undoing is not None:
        return False
    return tree.is_bare or not (tree.scopes or procedure in tree.holders)


def _forget(state: EngineState, procedure: str) -> None:
    """Drop what is noted of a procedure that goes on."""
    state.workers.warm.pop(procedure, None)
    if state.workers.suspects:
        state.workers.suspects.discard(procedure)
    if state.follow_ups.asking:
        state.follow_ups.asking.pop(procedure, None)
