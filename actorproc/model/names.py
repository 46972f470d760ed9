"""The words for a type name that no class is registered under, and for what cannot be read; the keys of notes."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from actorproc.model.ids import Mode

__all__ = ["LAST_HEARTBEAT", "READ_LATER", "is_of_no_class", "no_class_registered", "note_key", "step_in_words"]

READ_LATER = "it cannot be read now, and is tried again"
"""Beginning of the reason of a step that is put off for an I/O error, or for files that are being replaced."""
LAST_HEARTBEAT = "heartbeat()\n"
"""Key of the note with the details of a step's last heartbeat; the label of an undo follows."""
_BEFORE_KEY = {
    Mode.ROLLBACK: "rollback()\n",
    Mode.ASK_ABORT: "abort()\n",
    Mode.ON_TIMEOUT: "on_timeout()\n",
}
"""Before the keys of notes of a method that runs under a number which a step may have as well."""


_NO_CLASS = "no class is registered as"


def note_key(mode: Mode, key: str) -> str:
    """The key of a note among those of all methods that run under the same number."""
    return key if mode is Mode.EXECUTE else f"{_BEFORE_KEY[mode]}{key}"


def no_class_registered(type_name: str, known: Iterable[str]) -> str:
    """The reason for which a procedure of this type is parked, with the registered classes that would fit.

    A class has another name in the store when its file is run as a script (``__main__``), and after a move.

    Args:
        type_name: the type as it is stored.
        known: the names that are registered.
    """
    return _in_words(type_name, tuple(known))


def is_of_no_class(reason: str) -> bool:
    """True if a reason is that of `no_class_registered`."""
    return reason.startswith(_NO_CLASS)


def step_in_words(step: int, name: str | None) -> str:
    """A step as people read it: "step 3", or "step 3 (ship)" where steps of its class have names.

    Args:
        step: its number.
        name: its name; None or "": it has none.
    """
    return f"step {step} ({name})" if name else f"step {step}"


@functools.lru_cache(maxsize=256)
def _in_words(type_name: str, known: tuple[str, ...]) -> str:
    reason = f"{_NO_CLASS} {type_name!r}"
    short = type_name.rpartition(".")[2]
    fits = sorted(name for name in known if name != type_name and name.rpartition(".")[2] == short)[:3]
    if not fits:
        return f"{reason}; register it, or have the class that has another name now say type_name = {type_name!r}"
    names = " and ".join(map(repr, fits))
    return (
        f"{reason}, but {names} {'is' if len(fits) == 1 else 'are'}; if that is the same class, have it say "
        f"type_name = {type_name!r}, or read what is stored with manager.register_loader({type_name!r}, {short}.load)"
    )
