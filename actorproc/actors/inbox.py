"""Pykka's threading actor with an inbox made in C.

`queue.Queue` wakes its reader through a condition in Python, which costs some 20 microseconds per message and
is paid several times per durable step; `queue.SimpleQueue` has the same three methods Pykka uses. The hook is
Pykka's own ("internal method for implementors of new actor types"), and the dependency is pinned below the
next major version.
"""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any

import pykka

if TYPE_CHECKING:
    from pykka._actor import ActorInbox

__all__ = ["QuickActor"]


class QuickActor(pykka.ThreadingActor):
    """A daemon-threaded actor whose inbox is a `queue.SimpleQueue`."""

    use_daemon_thread = True

    @staticmethod
    def _create_actor_inbox() -> ActorInbox:
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        return inbox

    def _start_actor_loop(self) -> None:
        try:
            super()._start_actor_loop()
        except BaseException:  # Ctrl-C while its thread starts: nobody gets a reference to stop it with
            self.actor_ref.stop(block=False)
            raise
