"""Names of procedures, workers and handed-out steps."""

from __future__ import annotations

import functools
import os
import re
import time
from enum import IntEnum

import msgspec

from actorproc.errors import InvalidId
from actorproc.model.exact import exact_text

__all__ = [
    "HeldSteps",
    "Mode",
    "StepToken",
    "WorkerId",
    "check_id",
    "child_id",
    "debounce_name",
    "debounced_key",
    "event_target",
    "fence_of",
    "firing_id",
    "name_of_event",
    "new_id",
    "root_id",
]

_EVENT = "event "
"""First characters of the target of a published event; no id has a space."""
_DEBOUNCE = "debounce "
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")


_COMMITS = 40
"""Bits for the number of a commit in a fence."""


class WorkerId(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """One life of one worker slot; a respawn in the same slot has the next incarnation."""

    slot: int
    incarnation: int


class Mode(IntEnum):
    """Method of the procedure that a handed-out step calls."""

    EXECUTE = 0
    ROLLBACK = 1
    ASK_ABORT = 2
    """Ask the procedure's `abort` whether it may be aborted now."""
    ON_TIMEOUT = 3
    """Call `on_timeout` after an event did not come in time."""


class StepToken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The fence of one handed-out step: a result whose token is not current is dropped and counted."""

    epoch: int
    worker: WorkerId
    procedure: str
    step: int
    attempt: int
    mode: Mode = Mode.EXECUTE


HeldSteps = tuple[WorkerId, int, tuple[StepToken, ...], tuple[StepToken, ...]]
"""A worker that a host has, its pid, its unanswered steps, and those whose answers the host still has."""


def check_id(id: object) -> str:
    """Return ``id`` as plain text when it is a valid procedure id, else raise `InvalidId`."""
    if isinstance(id, str) and _ID.fullmatch(id):
        return exact_text(id)
    shown = repr(id)
    msg = (
        f"procedure id {shown if len(shown) <= 60 else shown[:60] + '…'} is not valid: use 1 to 128 letters, "
        "digits or any of . _ : @ -, starting with a letter or digit"
    )
    raise InvalidId(msg)


def event_target(name: str) -> str:
    """The target under which events of this name are kept; signals to a procedure are kept under its id."""
    return _EVENT + name


def debounce_name(key: str) -> str:
    """The name under which the runs of a debounce are looked up: one that is the id of no procedure."""
    return _DEBOUNCE + key


def debounced_key(name: str) -> str | None:
    """The key of the debounce of this name; None when the name is the id of a procedure."""
    return name[len(_DEBOUNCE) :] if name.startswith(_DEBOUNCE) else None


def name_of_event(target: str) -> str | None:
    """The name of the event that is kept under this target; None when the target is the id of a procedure."""
    return target[len(_EVENT) :] if target.startswith(_EVENT) else None


def new_id() -> str:
    """A new UUIDv7 (RFC 9562): ids made later sort after ids made earlier, to the millisecond."""
    global _head  # noqa: PLW0603 - replaced as one
    milliseconds = time.time_ns() // 1_000_000
    known, head, process = _head
    if known != milliseconds:
        digits = f"{milliseconds:012x}"
        head = f"{digits[:8]}-{digits[8:]}"
        if process != (process := os.getpid()):
            _drawn.clear()  # a fork that Python's hooks were not told of, by native code
        _head = (milliseconds, head, process)
    while True:
        try:
            return head + _drawn.pop()
        except IndexError:
            _drawn.extend(_tails())


def _tails() -> list[str]:
    """Random parts of 256 ids, which follow the time: version, variant, and random bits of the system.

    Many at once: to ask the system gives the interpreter lock away, and among busy threads it is long in coming back.
    """
    digits = os.urandom(_MANY * _DRAWN // 2).hex().encode()
    made = bytearray(_BLANK * _MANY)
    # A digit of all of them at a time: in a third of the time that one id after the other takes.
    for drawn, place in enumerate(_PLACES):
        made[place :: len(_BLANK)] = digits[drawn::_DRAWN]
    made[_VARIANT :: len(_BLANK)] = made[_VARIANT :: len(_BLANK)].translate(_VARIANTS)
    text = made.decode()
    return [text[at : at + len(_BLANK)] for at in range(0, len(text), len(_BLANK))]


_MANY = 256
_BLANK = b"-7xxx-vxxx-xxxxxxxxxxxx"
_PLACES = [place for place, character in enumerate(_BLANK) if character in b"vx"]
_DRAWN = len(_PLACES) + len(_PLACES) % 2
"""Digits that are drawn for each id, of which a byte gives two."""
_VARIANT = _BLANK.index(b"v")
_VARIANTS = bytes.maketrans(b"0123456789abcdef", b"89ab" * 4)
_drawn: list[str] = []
_head = (0, "", 0)
os.register_at_fork(after_in_child=_drawn.clear)  # or both processes would give the same ones


def fence_of(epoch: int, commit: int) -> int:
    """The fence of what a commit hands out: greater for each later commit of an owner, and for each later owner."""
    return epoch << _COMMITS | commit


def child_id(parent: str, step: int, index: int, generation: int = 1) -> str:
    """The default id of a child, 32 characters: a replayed step names the same children.

    A hash of parent, generation and step, and then the index in clear. So the children of a step stand side by side in
    the store, in the order in which they run. A commit of some hundred of them writes a few pages.
    """
    family = parent if generation == 1 else f"{parent}\0g{generation}"
    return f"{_family(family, step)}{index:08x}"


def root_id(procedure: str, step: int, index: int, generation: int, mode: Mode) -> str:
    """The default id of a root that a step submits: made as a child's, and never one of a child."""
    family = f"{procedure}\0root of {mode.name}"
    return child_id(family, step, index, generation)


@functools.lru_cache(maxsize=16)
def _family(parent: str, step: int) -> str:
    import hashlib  # noqa: PLC0415 - it brings OpenSSL: 3.5 MB that most workers never use, and take longer to die for

    return hashlib.blake2b(f"{parent}\0{step}".encode(), digest_size=12).hexdigest()


def firing_id(schedule: str, at: float) -> str:
    """The id of the procedure that a schedule starts for an instant, which stands behind it in UTC."""
    day, second = divmod(int(at), 86_400)
    # Years begin in March here, so that a leap day is the last of its year; 400 of them have 146,097 days.
    era, day = divmod(day + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    month += 3 if month < 10 else -9
    year += 400 * era + (month <= 2)
    minute, second = divmod(second, 60)
    return f"{schedule}@{year:04}-{month:02}-{day + 1:02}T{minute // 60:02}:{minute % 60:02}:{second:02}Z"
