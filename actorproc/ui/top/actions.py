"""Verbs that the screen offers: the ones of the command line, done to the manager or to the stopped store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from actorproc.api.client import ProcedureClient
from actorproc.api.reader import StoreReader
from actorproc.api.stopped import StoppedStore
from actorproc.errors import ActorprocError
from actorproc.ui.command_words import in_command_words, path_option
from actorproc.ui.text import plain_line

if TYPE_CHECKING:
    Steering: TypeAlias = ProcedureClient | StoppedStore

__all__ = ["ACTIONS", "Action", "carry_out"]

_PATIENCE = 5.0


class Action(NamedTuple):
    """Something that is done to procedures, or to the whole manager."""

    key: str
    """Pressed in the menu."""
    name: str
    """As the command line has it."""
    says: str
    act: Callable[[Steering, str, str | None], object]
    """Done to one procedure ("": the manager), with the reason."""
    done: str
    refused: str
    """Result when the answer is False."""
    is_for_all: bool = False


ACTIONS = (
    Action(
        "k",
        "kill",
        "end the running attempt; the step runs again",
        lambda engine, id, reason: engine.kill(id, reason=reason),
        "its attempt ends",
        "no worker has a step of it",
    ),
    Action(
        "a",
        "abort",
        "ask it to end, and undo what it did",
        lambda engine, id, reason: engine.abort(id, reason=reason),
        "asked to abort",
        "has ended already",
    ),
    Action(
        "f",
        "abort --force",
        "kill its step, and undo what it did",
        lambda engine, id, reason: engine.abort(id, force=True, reason=reason),
        "is undone",
        "has ended already",
    ),
    Action(
        "r",
        "retry",
        "run a failed root again",
        lambda engine, id, reason: engine.retry(id, reason=reason),
        "runs again",
        "runs again",
    ),
    Action(
        "R",
        "restart",
        "begin an ended root again from its first state",
        lambda engine, id, reason: engine.restart(id, reason=reason),
        "begins again",
        "begins again",
    ),
    Action(
        "u",
        "rollback",
        "undo an unfinished root, as if it had failed",
        lambda engine, id, reason: engine.rollback(id, reason=reason),
        "is rolled back",
        "was undone already",
    ),
    Action(
        "p",
        "pause",
        "hand out no more steps of it",
        lambda engine, id, reason: engine.pause(id, reason=reason),
        "paused",
        "has ended already",
    ),
    Action(
        "o",
        "resume",
        "lift its pause",
        lambda engine, id, reason: engine.resume(id, reason=reason),
        "goes on",
        "was not paused itself",
    ),
    Action(
        "b",
        "bypass",
        "end it as if it had succeeded: the last resort",
        lambda engine, id, reason: engine.bypass(id, reason=reason),
        "bypassed",
        "has ended already",
    ),
    Action(
        "c",
        "ack",
        "say that the result of a finished root was taken",
        lambda engine, id, reason: engine.acknowledge(id, reason),
        "acknowledged",
        "is not kept any more",
    ),
    Action(
        "d",
        "delete",
        "remove a finished root and all below it",
        lambda engine, id, reason: engine.delete(id, reason),
        "deleted",
        "is not kept any more",
    ),
    Action(
        "P",
        "pause --manager",
        "hand out no more steps of any procedure",
        lambda engine, _, reason: engine.pause(reason=reason),
        "paused",
        "was paused already",
        is_for_all=True,
    ),
    Action(
        "O",
        "resume --manager",
        "lift the pause of the manager",
        lambda engine, _, reason: engine.resume(reason=reason),
        "goes on",
        "was not paused",
        is_for_all=True,
    ),
)
"""In the order of the menu, the gentlest first where it matters."""


def carry_out(path: str, action: Action, ids: Sequence[str], reason: str | None) -> list[str]:
    """Do it to each; a line about each result, refusals included.

    Args:
        path: of the store.
        action: what is done.
        ids: of the procedures; for the whole manager they are not looked at.
        reason: is recorded; None: there is none.

    Returns:
        Lines that are safe to show.
    """
    try:
        with StoreReader(path) as reader:
            is_owned, shown = reader.owner() is not None, path_option(path, reader.path)
        with ProcedureClient(path, patience=_PATIENCE) if is_owned else StoppedStore(path) as engine:
            lines = [_done(engine, action, id, reason, shown) for id in ("",) if action.is_for_all] or [
                _done(engine, action, id, reason, shown) for id in ids
            ]
    except (ActorprocError, OSError) as error:
        return [plain_line(f"{action.name}: {error}")]
    return lines if is_owned else [f"{line} (in the stopped store)" for line in lines]


def _done(engine: Steering, action: Action, id: str, reason: str | None, path: str | None) -> str:
    try:
        done = action.act(engine, id, reason)
    except (ActorprocError, ValueError, TypeError) as error:
        says = in_command_words(str(error), path)
        return plain_line(f"{action.name} {id or 'manager'}: refused: {says}")
    return plain_line(f"{action.name} {id or 'manager'}: {action.refused if done is False else action.done}")
