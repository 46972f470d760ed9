"""Engine of a connection to a directory: it leads while the place is free, and is a client of the leader otherwise.

All connections of one program's processes want the place. One has the owner's lock and runs the engine; the others ask
it through its socket, and look several times a second whether the lock is free. `SharedEngine` does the same for a
store in a database, where a lease takes the place of the lock.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from actorproc.api.home.shared_requests import SharedRequests
from actorproc.api.queries import Queries
from actorproc.config import Config
from actorproc.control.engine import RemoteEngine
from actorproc.engine.end_waiters import OpenWait
from actorproc.engine.messages import LeaderCounters
from actorproc.errors import ActorprocError, ManagerStopped, NotAllowed, StoreInUse
from actorproc.report.changes import LeaderEventKind
from actorproc.report.health import Health
from actorproc.report.hosts import HostInfo
from actorproc.store.home import Home
from actorproc.support.engine_log import engine_logger

if TYPE_CHECKING:
    from actorproc.engine.engine import EngineTree

__all__ = ["DirectoryEngine"]

logger = engine_logger("actorproc")

_LOOK = 0.2
"""Seconds between two looks at the owner's lock."""
_LONGEST_REST = 5.0
"""Seconds that a candidate rests at most after it could not begin to lead."""
_OTHERS_FIRST = 2.0
"""Seconds that one which gave the lead away leaves the place to others."""
_GLANCE = 2.0
"""Seconds that a look at the health of the leader takes at most."""


class DirectoryEngine(SharedRequests):
    """The engine of this connection, wherever it runs. Made for one `start`, ended by `stop`.

    Args:
        home: The home of the store, a directory.
        config: The settings of the connection.
        lead: Starts an engine here; raises `StoreInUse` while another process has the directory.
        may_lead: False: a client only.
        patience: Seconds that a call waits for a leader.
        on_change: Called with the kind of a `LeaderEvent` and the epoch after each change.
    """

    own_number = 0
    """The number of the machine as a host; in a directory there are no hosts."""

    def __init__(
        self,
        home: Home,
        config: Config,
        *,
        lead: Callable[[], EngineTree],
        may_lead: bool,
        patience: float,
        on_change: Callable[[LeaderEventKind, int], object],
    ) -> None:
        remote = RemoteEngine(
            home, patience=patience, max_frame=config.max_frame, allow_any_filesystem=config.allow_any_filesystem
        )
        super().__init__(remote, config)
        self.sends_modules = True
        self._home = home
        self._lead_with = lead
        self._may_lead = may_lead
        self._on_change = on_change
        self._changing = threading.Lock()
        self._candidate: threading.Thread | None = None
        self._rests_until = 0.0
        self.takeovers = 0
        """Number of times that it became the leader."""
        self.deposed = 0
        """Number of times that it gave the lead away."""

    # ------------------------------------------------------------ life
    def start(self) -> None:
        """Lead if the place is free; else be a client, and look out for the place.

        Raises:
            EngineError: The store cannot be used, or no worker can start.
        """
        try:
            if not self._may_lead or not self._takes_the_lead():
                self._stand_by()
        except BaseException:
            self.stop(drain=False, timeout=0.0)
            raise

    def _takes_the_lead(self) -> bool:
        """True when it leads; False while another process does."""
        try:
            tree = self._lead_with()
        except StoreInUse:
            return False
        with self._changing:
            ended = self._ending.is_set()
            if not ended:
                self._local = tree
        if ended:  # by `stop`, in the middle of the above
            tree.stop(drain=False, timeout=self._config.stop_timeout)
            raise ManagerStopped("the connection was closed while it became the leader")
        tree.on_step_down = partial(self._give_lead_up, tree)
        tree.leader_counters = self.leader_counters
        self.takeovers += 1
        logger.info("process %d leads the store %s, with epoch %d", os.getpid(), self._home.words, tree.epoch)
        self._on_change("leader-changed", tree.epoch)
        return True

    def _stand_by(self) -> None:
        with self._changing:
            if self._may_lead and not self._ending.is_set():
                self._candidate = threading.Thread(target=self._campaign, name="actorproc-candidate", daemon=True)
                self._candidate.start()

    def _campaign(self) -> None:
        """Look for the lead until this process has it. No error ends that but the connection's own end."""
        failures = 0
        while not self._ending.wait(_LOOK * random.uniform(0.5, 1.5)):  # noqa: S311
            if time.monotonic() < self._rests_until or self._home.owner() is not None:
                continue
            try:
                if self._takes_the_lead():
                    return
            except Exception as error:  # noqa: BLE001 - of whichever kind: another try may do
                if self._ending.is_set():
                    return
                failures += 1
                logger.error("process %d could not take the lead, and tries again: %s", os.getpid(), error)  # noqa: TRY400
                self._ending.wait(random.uniform(0.1, min(_LONGEST_REST, 0.2 * 2 ** min(failures, 6))))  # noqa: S311

    def step_down(self) -> None:
        """Give the lead to another process that wants it; this one is a client then."""
        local = self._leading()
        if local is None:
            self._remote.step_down()
        else:
            self._give_lead_up(local)

    def _give_lead_up(self, tree: EngineTree) -> None:
        def give() -> None:
            self._rests_until = time.monotonic() + _OTHERS_FIRST
            tree.leave_ends()
            tree.stop(drain=True, timeout=self._config.stop_timeout)
            tree.wait_until_closed()
            with self._changing:
                self._local = None
            self._remote.go_on_waiting(tree.left_waiting())
            self.deposed += 1
            self._on_change("deposed", tree.epoch)
            self._stand_by()

        # On a thread of its own: first the caller is answered, through the socket that this closes.
        threading.Thread(target=give, name="actorproc-step-down", daemon=True).start()

    def stop(self, *, drain: bool, timeout: float | None) -> None:
        """Lead no more. Idempotent."""
        with self._changing:
            self._ending.set()
            candidate, self._candidate = self._candidate, None
            local = self._local
        if candidate is not None and candidate is not threading.current_thread():
            candidate.join(timeout=5.0)
            local = self._local
        if local is not None:
            local.stop(drain=drain, timeout=timeout)
        self._remote.close()

    @property
    def closed(self) -> bool:
        """It has been stopped, or its engine ended by a failure."""
        local = self._local
        return self._ending.is_set() or (local is not None and local.closed and local.failure is not None)

    @property
    def failure(self) -> ActorprocError | None:
        """Error of the engine here."""
        local = self._local
        return None if local is None else local.failure

    @property
    def is_closing_here(self) -> bool:
        """The calling thread is the one that closes the engine here."""
        local = self._local
        return local is not None and local.is_closing_here

    def wait_until_closed(self, timeout: float | None = None) -> None:
        """Wait for the end of a closing that has begun."""
        local = self._local
        if local is not None:
            local.wait_until_closed(timeout)

    def leave_ends(self) -> None:
        """Let those who wait for ends wait on when it stops, for the next engine of this process."""
        local = self._leading()
        if local is not None:
            local.leave_ends()

    def left_waiting(self) -> list[OpenWait]:
        """The waits for ends that were open when it stopped."""
        local = self._local
        return local.left_waiting() if local is not None else []

    def adopt(self, left: list[OpenWait]) -> None:
        """Tell those who waited for ends when another engine of this process stopped."""
        self._remote.go_on_waiting(left)

    # ------------------------------------------------------------ what only a database has
    def hosts(self) -> tuple[HostInfo, ...]:
        """The worker hosts: a directory has none."""
        return ()

    def drain_host(self, name: str) -> bool:
        """Have a host leave: there is none of this name."""
        del name
        return False

    def leader(self) -> None:
        """The leader by its row. Raises `NotAllowed`: a directory has none."""
        raise NotAllowed("a directory has no row of a leader; health() names the process that leads")

    def _resized_here(self, workers: int) -> None:
        """Nothing: a client runs no steps."""

    # ------------------------------------------------------------ figures
    def leader_counters(self) -> LeaderCounters:
        """Figures of this connection about the lead."""
        return LeaderCounters(leads=self.leads, takeovers=self.takeovers, deposed=self.deposed)

    def health_here(self) -> Health:
        """Health of the engine here while it leads, else of the leader. Never raises."""
        local = self._leading()
        if local is not None:
            return msgspec.structs.replace(
                Queries(local).health(local.failure), role="leading", leader=f"process {os.getpid()}"
            )
        owner = self._home.owner()
        named = None if owner is None else f"process {owner.pid}"
        look = RemoteEngine(self._home, patience=_GLANCE, max_frame=self._config.max_frame)
        found = Health.stopped("no process leads")
        with contextlib.suppress(ActorprocError):
            look.reach()
            found = Queries(look).health(None)
        look.close()
        return msgspec.structs.replace(found, role="following", leader=named)
