"""A reload of the fake shell: workers are replaced one by one, as `actorproc.engine.workers.rolling_reload` does it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import ReloadBegan, WorkerReady

if TYPE_CHECKING:
    from tests.simulator.core_sim.fake_shell import FakeShell

__all__ = ["FakeReload"]


class FakeReload:
    """Begins when the manager has answered, and ends with its host, or when it is given up or over."""

    def __init__(self, shell: FakeShell) -> None:
        self._shell = shell
        self._old: deque[WorkerId] = deque()
        """Workers that are still to be replaced, the next one first."""
        self._leaving: WorkerId | None = None
        self._lasts = False

    def decided(self, event: ReloadBegan) -> None:
        """The manager decides on the event: note for the checker which workers it was told of, and so has for old."""
        shell = self._shell
        coming = {later.worker for later in shell.world.inbox if isinstance(later, WorkerReady)}
        old = () if event.is_over else tuple(worker for worker in shell.workers.live if worker not in coming)
        shell.world.journal.append(("reload", old))

    def begin(self) -> None:
        """From now on workers are replaced. A reload that is under way begins anew."""
        self._old = deque(self._shell.workers.live)
        self._leaving = None
        self._lasts = True

    @property
    def can_go_on(self) -> bool:
        """The place of the worker that was to leave last is empty, or it was the first."""
        return self._lasts and self._leaving not in self._shell.workers.live

    def go_on(self, number: int, *, gives_up: bool = False) -> None:
        """The next worker is to leave. Behind the last one, and when it `gives_up`, the reload is over.

        `number`: of the call that says so.
        """
        shell = self._shell
        while self._old and self._old[0] not in shell.workers.live:
            self._old.popleft()
        if self._old and not gives_up:
            self._leaving = self._old.popleft()
            shell.workers.want_to_leave(shell.workers.live[self._leaving])
            return
        self._lasts = False
        shell.tell(ReloadBegan(number, is_over=True))
