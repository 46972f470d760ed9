"""Guard of our descriptors when the host program forks.

A forked copy of the host must not hold lifelines (workers would outlive the real host) nor channels. The hooks
are installed once, on import; they hold processes weakly and do nothing in a program that never forks.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Protocol

from actorproc.support.fork_hooks import at_fork

__all__ = ["Forgettable", "guarded", "starting"]


class Forgettable(Protocol):
    """Something whose descriptors a forked copy of this program must not keep."""

    def forget(self) -> None:
        """Close the descriptors without any other effect. Called in the forked copy, where it is the only thread."""
        ...


starting = threading.Lock()
"""Held while descriptors exist that are not guarded yet; a fork waits for it."""

_guarded: weakref.WeakSet[Forgettable] = weakref.WeakSet()


def guarded(item: Forgettable) -> None:
    """From now on `item.forget()` is called in every forked copy of this program."""
    _guarded.add(item)


def _in_forked_copy() -> None:
    starting.release()
    for item in list(_guarded):
        with contextlib.suppress(OSError):
            item.forget()


at_fork(before=starting.acquire, in_parent=starting.release, in_child=_in_forked_copy)
