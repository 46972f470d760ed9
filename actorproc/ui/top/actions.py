"""Verbs that the screen offers: the ones of the command line, done to the manager or to the stopped store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from actorproc.api.client import ProcedureClient
from actorproc.api.reader import StoreReader
from actorproc.api.stopped import StoppedStore
from actorproc.errors import ActorprocError
from actorproc.ui.command_words import in_command_words, path_option
from actorproc.ui.text import plain_line
from actorproc.ui.verbs import MANAGER_VERBS, VERBS, SteeringVerb, result_of

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
    verb: SteeringVerb
    flags: Mapping[str, bool]
    is_for_all: bool

    @property
    def says(self) -> str:
        """Its effect."""
        return "; ".join(self.verb.flags[flag] for flag in self.flags) or self.verb.says

    @property
    def done(self) -> str:
        """Result in words."""
        return self.verb.forced if "force" in self.flags else self.verb.done


def _action(key: str, name: str) -> Action:
    verb, *options = name.split(" --")
    is_for_all = options == ["manager"]
    table = MANAGER_VERBS if is_for_all else VERBS
    return Action(key, name, table[verb], {} if is_for_all else dict.fromkeys(options, True), is_for_all)


ACTIONS = tuple(
    _action(key, name)
    for key, name in (
        ("k", "kill"),
        ("a", "abort"),
        ("f", "abort --force"),
        ("r", "retry"),
        ("R", "restart"),
        ("u", "rollback"),
        ("p", "pause"),
        ("o", "resume"),
        ("b", "bypass"),
        ("c", "ack"),
        ("d", "delete"),
        ("P", "pause --manager"),
        ("O", "resume --manager"),
    )
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
        _, done = result_of(action.verb, engine, id, action.flags, reason=reason)
    except (ActorprocError, ValueError, TypeError) as error:
        says = in_command_words(str(error), path)
        return plain_line(f"{action.name} {id or 'manager'}: refused: {says}")
    return plain_line(f"{action.name} {id or 'manager'}: {done}")
