"""Dialogs: the menu of verbs, the question before a verb is done, and the help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from actorproc.ui.text import plain_line
from actorproc.ui.top.actions import ACTIONS, Action

__all__ = ["ActionMenu", "Help", "Question"]

_NAMED = 5


class ActionMenu(ModalScreen[Action | None]):
    """Verbs to choose from, by their keys.

    Args:
        ids: the procedures that the verb will be for.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "leave", show=False)]

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__()
        self._ids = ids

    def compose(self) -> ComposeResult:
        """The list of verbs."""
        offered = [action for action in ACTIONS if self._ids or action.is_for_all]
        lines = [f"{action.key}  {action.name:<16} {action.says}" for action in offered]
        yield Vertical(
            Static(_named(self._ids) or "the manager", markup=False), *_statics(["", *lines, "", "Esc leaves"])
        )

    def on_key(self, event: Key) -> None:
        """Choose by a key."""
        for action in ACTIONS:
            if event.character == action.key and (self._ids or action.is_for_all):
                event.stop()
                self.dismiss(action)

    def action_leave(self) -> None:
        """Choose nothing."""
        self.dismiss(None)


class Question(ModalScreen[str | None]):
    """The question before a verb is done, with a line for the reason: its text, or None for no.

    Args:
        action: what would be done.
        ids: to these procedures.
        where: to whom it is said: the manager, or the stopped store.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    def __init__(self, action: Action, ids: Sequence[str], where: str) -> None:
        super().__init__()
        self._action, self._ids, self._where = action, ids, where

    def compose(self) -> ComposeResult:
        """The question and the line."""
        about = "the manager" if self._action.is_for_all else _named(self._ids)
        yield Vertical(
            *_statics([f"{self._action.name} {about}?", f"{self._action.says} ({self._where})", ""]),
            Input(placeholder="reason, for the audit log (may be empty)", compact=True, max_length=500),
            *_statics(["", "Enter does it, Esc leaves"]),
        )

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The answer is yes."""
        event.stop()
        self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        """The answer is no."""
        self.dismiss(None)


_HELP = """\
1 or g n   Now: workers, what stands still, failures in groups
2 or g p   Procedures, with the filter
3 or g l   Locks: holders and waiters, circles first
4 or g a   Activity: what operators asked for
5 or g h   Hosts: the machines that run steps for the leader
j k        down, up (also arrows, PgUp, PgDn, Home, End)
Tab        next table; in a procedure the next side of it
Enter      open a procedure
w t s      its why, tree, stack
o e y      its logs, steps, state
[ ]        its state at an older or newer record
x          mark a row: verbs are for all marked ones
a          verbs: kill, abort, retry, pause …; each asks first
/          filter, in the words of `actorproc list`:
           --state FAILED --type Order --troubled
           other words are looked for in ids, types and reasons
z          next order: trouble, newest, oldest, changed, attempts …
p          hold the screen, and let it go on
Esc        back;   q  leave"""


class Help(ModalScreen[None]):
    """The keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "leave", show=False)]

    def compose(self) -> ComposeResult:
        """All of them."""
        yield VerticalScroll(*_statics([*_HELP.split("\n"), "", "Esc leaves"]))

    def action_leave(self) -> None:
        """Back to the screen."""
        self.dismiss(None)


def _named(ids: Sequence[str]) -> str:
    """Ids for a question; the number as well when they are many."""
    if len(ids) == 1:
        return plain_line(ids[0])
    shown = ", ".join(plain_line(name) for name in ids[:_NAMED]) + (", …" if len(ids) > _NAMED else "")
    return f"{len(ids)} procedures ({shown})" if ids else ""


def _statics(lines: Sequence[str]) -> list[Static]:
    return [Static(line, markup=False) for line in lines]
