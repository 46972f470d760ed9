"""Locks of a client, and who must not wait for one."""

from __future__ import annotations

from typing import Protocol, cast

from actorproc.errors import NotAllowed

__all__ = ["refuse_whom_it_interrupts"]


class _Reentrant(Protocol):
    def _is_owned(self) -> bool: ...


def refuse_whom_it_interrupts(*locks: object) -> None:
    """Raise `NotAllowed` in a signal handler, or a `__del__`, that came in the middle of its thread's turn with a lock.

    Half a frame may be out, and the thread that reads the answers may want the lock: who waited there, waited for ever.
    The locks are reentrant ones, which know their owner.
    """
    if any(cast("_Reentrant", lock)._is_owned() for lock in locks):
        msg = (
            "this was asked in a signal handler, or in __del__, that interrupted its own thread in the middle of "
            "asking here; set a flag there, and ask from the program, or have a thread ask"
        )
        raise NotAllowed(msg)
