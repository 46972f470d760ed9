"""Engine of a manager on a store that several machines share: it leads, or it passes requests on to the leader.

A manager begins as a candidate. The one that gets the store runs the engine; the others *follow*. A follower has the
engine's face through the leader's door, as a `ProcedureClient` has, and waits for the lead on a thread of its own.
Callers do not notice a change of leaders: who waits for an end waits on, and what may be asked twice is asked again.

::

    following ──lock free, or leader silent──▶ leading ──another one owns the store──▶ following
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from actorproc.api.home.leader_door import made_in_advance, open_door
from actorproc.api.home.seen_epoch import note_epoch, seen_epoch
from actorproc.api.home.shared_requests import SharedRequests
from actorproc.api.queries import Queries
from actorproc.config import Config
from actorproc.control.engine import RemoteEngine
from actorproc.control.link_door import LinkEntrance
from actorproc.engine.end_waiters import OpenWait
from actorproc.engine.messages import LeaderCounters
from actorproc.errors import (
    ActorprocError,
    Deposed,
    EngineError,
    ManagerStopped,
    StoreInUse,
)
from actorproc.model.messages.definitions import Definition
from actorproc.model.messages.events import PauseRequested
from actorproc.report.changes import LeaderEventKind
from actorproc.report.health import Health
from actorproc.report.hosts import HostInfo
from actorproc.store.home import Home
from actorproc.store.shared import Leader, SharedStore

if TYPE_CHECKING:
    from actorproc.api.home.host_side import HostSide
    from actorproc.engine.engine import EngineTree

__all__ = ["SharedEngine"]

logger = logging.getLogger("actorproc")

_PATIENCE = 30.0
"""Seconds that a call of a follower waits for a leader."""
_LOOK = 0.1
"""Seconds between two looks at the leader's row."""
_CERTIFICATE_DAYS = 14.0
"""Days of validity of a certificate below which health asks for another one."""
_GLANCE = 2.0
"""Seconds that a look at the health of the leader takes at most."""
_LONGEST_REST = 5.0
"""Seconds that a candidate rests at most after it could not begin to lead."""


class SharedEngine(SharedRequests):
    """The engine of this manager, wherever it runs. Made for one `start`, ended by `stop`.

    Args:
        home: The home of the store.
        config: The settings of the manager.
        make_store: Makes a store that is not owned yet.
        lead: Starts an engine on a store, with an entrance for others; calls the last argument with it before.
        make_host: Makes a host of so many workers of this machine, of all where the number is None. It serves the
            leader while this manager follows.
        runs_steps: This machine runs steps for the leader while it follows.
        may_lead: False: follow only.
        definitions: The types that are registered.
        on_change: Called with the kind of a `LeaderEvent` and the epoch after each change.
    """

    def __init__(
        self,
        home: Home,
        config: Config,
        *,
        make_store: Callable[[], SharedStore],
        lead: Callable[[SharedStore, LinkEntrance | None, Callable[[EngineTree], None]], EngineTree],
        make_host: Callable[[int | None], HostSide],
        runs_steps: bool,
        may_lead: bool,
        definitions: Callable[[], Sequence[Definition]],
        on_change: Callable[[LeaderEventKind, int], object],
    ) -> None:
        super().__init__(RemoteEngine(home, patience=_PATIENCE, max_frame=config.max_frame), config)
        self._home = home
        self._make_store = make_store
        self._lead_with = lead
        self._make_host = make_host
        self._may_lead = may_lead
        self.own_number = 0
        """Number that the machine of this manager had as a host of the last leader; 0: none."""
        self._workers: int | None = None if runs_steps else 0
        """Number of workers by the last `resize` while another manager led; 0: it runs no steps."""
        self._host: HostSide | None = None
        """The workers of this machine, while this manager follows."""
        self._definitions = definitions
        self._on_change = on_change
        self._highest = 0
        """Highest epoch that was heard of."""
        self._entrance: LinkEntrance | None = None
        """The door of the last term of this manager."""
        self._changing = threading.Lock()
        self._candidate: threading.Thread | None = None
        self._store: SharedStore | None = None
        """The store of a term that is being begun."""
        self._stepped_down = False
        """It gave the lead away: others go first."""
        self.takeovers = 0
        """Number of times that this manager became the leader."""
        self.deposed = 0
        """Number of times that another one took over from it."""
        self._late_before = self._regained_before = 0
        """Numbers of the terms that are over."""

    # ------------------------------------------------------------ life
    def start(self, until: float) -> None:
        """Lead, or find the leader.

        Args:
            until: Monotonic seconds until which a leader may take to answer.

        Raises:
            EngineError: Neither is possible; the message names the leader's address, and why it does not answer.
        """
        try:
            if not self._may_lead:
                self._stand_by()
                self._find_leader("this manager does not lead (lead=False)", until)
                return
            credentials = made_in_advance(self._config)
            try:
                self._begin(self._make_store(), credentials)
            except StoreInUse as in_use:
                self._stand_by()
                self._find_leader(str(in_use), until)
        except BaseException:
            self.stop(drain=False, timeout=0.0)
            raise

    def _find_leader(self, in_use: str, until: float) -> None:
        """Wait until the leader answers, or this manager leads. Raises why neither comes."""
        until = max(until, time.monotonic() + max(self._config.lease, self._config.boot_timeout))
        look = RemoteEngine(self._home, patience=_GLANCE, max_frame=self._config.max_frame)
        try:
            while not self.leads:
                try:
                    look.reach()
                except ManagerStopped as error:  # it may be about to start
                    if time.monotonic() < until and not self._ending.is_set():
                        continue
                    raise _unable(in_use, error) from error
                except ActorprocError as error:
                    raise _unable(in_use, error) from error
                else:
                    break
        finally:
            look.close()
        self._definitions()  # the keys of the store are known from here on

    def _begin(self, store: SharedStore, credentials: Any) -> None:
        """Become the leader with a store. Raises what stands in the way; the store is closed then."""
        entrance: LinkEntrance | None = None
        tree: EngineTree | None = None
        self._end_host()  # its workers are the engine's own from here on
        try:
            store.see_epoch(max(self._highest, seen_epoch(self._home)))
            entrance = open_door(self._config, store, self._home.words, credentials, self._see)
            tree = self._lead_with(store, entrance, self._prepare)
            for definition in self._definitions():  # registered while it started
                tree.register(definition)
            if (held := self.held) is not None:
                tree.request(lambda reply: PauseRequested(None, reply, held or None))
                self.held = None
        except BaseException:
            if tree is not None:  # it runs steps, and hosts have joined it
                tree.stop(drain=False, timeout=self._config.stop_timeout)
            if entrance is not None:
                entrance.close()
            store.close()
            raise
        with self._changing:
            self._highest = max(self._highest, tree.epoch)
            ended = self._ending.is_set()
            if not ended:
                self._local, self._entrance = tree, entrance
        if ended:  # by `stop`, in the middle of the above
            tree.stop(drain=False, timeout=self._config.stop_timeout)
            raise ManagerStopped("the manager was stopped while it became the leader")
        tree.on_deposed = partial(self._was_deposed, tree)
        if tree.closed and isinstance(tree.failure, Deposed):  # in the moment before
            self._was_deposed(tree, tree.failure)
            return
        store.watch_manager(tree.watchdog(self._config.lease))
        note_epoch(self._home, store.store_id, tree.epoch)
        self.takeovers += 1
        logger.info("this manager leads the store %s, with epoch %d", self._home.words, tree.epoch)
        self._on_change("leader-changed", tree.epoch)

    def _prepare(self, tree: EngineTree) -> None:
        """Before its door opens: the first client may ask it to step down."""
        tree.on_step_down = partial(self._give_lead_up, tree)
        tree.leader_counters = self.leader_counters

    def _stand_by(self) -> None:
        """Wait for the lead, on a thread of its own."""
        with self._changing:
            if self._ending.is_set():
                return
            if self._may_lead:
                self._candidate = threading.Thread(target=self._campaign, name="actorproc-candidate", daemon=True)
                self._candidate.start()
        self._begin_host()

    def _resized_here(self, workers: int) -> None:
        had_none, self._workers = self._workers == 0, workers
        with self._changing:
            host, self._host = self._host, None
        if host is not None:
            host.agent.drain("the number of its workers changes")  # its steps end while the new one begins
        if host is not None or had_none:
            self._begin_host()

    def _begin_host(self) -> None:
        """Have the workers of this machine serve the leader, until this manager leads."""
        with self._changing:
            if self._host is None and self._workers != 0 and not self._ending.is_set() and self._local is None:
                self._host = self._make_host(self._workers)
                self._host.start()

    def wait_until_left(self, timeout: float | None) -> str | None:
        """Wait until the workers of this machine serve no leader any more. For a manager that only follows.

        Args:
            timeout: Seconds to wait at most; None: as long as it takes.

        Returns:
            The reason, in words; None: they still serve.
        """
        host = self._host
        return "it was stopped" if host is None else host.wait_until_left(timeout)

    def _end_host(self, *, drain: bool = False) -> None:
        with self._changing:
            host, self._host = self._host, None
        if host is not None:
            host.stop(drain=drain)
            self.own_number = host.agent.number

    def _let_others_go_first(self) -> None:
        """After a step down: wait until another manager leads, for a lease at most."""
        until = time.monotonic() + self._config.lease
        while time.monotonic() < until and not self._ending.wait(_LOOK):
            with contextlib.suppress(ActorprocError):
                leader = self.leader()
                if leader is not None and leader.leads:
                    return

    def _campaign(self) -> None:
        """Wait for the lead until this manager has it. No error ends that but the manager's own end."""
        failures = 0
        if self._stepped_down:
            self._stepped_down = False
            self._let_others_go_first()
        while not self._ending.is_set():
            store: SharedStore | None = None
            self._begin_host()
            try:
                credentials = made_in_advance(self._config)  # before, as a takeover is a matter of milliseconds
                store = self._make_store()
                if not store.campaign(self._ending):
                    store.close()
                    return
                self._begin(store, credentials)
            except StoreInUse:
                continue
            except Exception as error:
                if self._ending.is_set():
                    return
                failures += 1
                logger.exception("this manager could not take the lead, and tries again: %s", error)  # noqa: TRY401
                # Full jitter: others may try at the same moments.
                self._ending.wait(random.uniform(0.1, min(_LONGEST_REST, 0.2 * 2 ** min(failures, 6))))  # noqa: S311
            else:
                return

    def _see(self, epoch: int) -> None:
        """A client has seen this epoch; one above ours says that another led since, or that the database lost it."""
        local = self._local
        if local is not None and epoch > local.epoch:
            self._highest = max(self._highest, epoch)
            note_epoch(self._home, local.store.store_id, epoch)
            msg = f"a client has seen epoch {epoch}, and this manager leads with {local.epoch}"
            local.depose(Deposed(f"{msg}: another manager has led since, or the database lost that epoch"))

    def _was_deposed(self, tree: EngineTree, error: Deposed) -> None:
        """Another process owns the store: go on as a follower. On a thread of the engine that has ended."""
        with self._changing:
            if self._local is tree:
                self._local = None
        self.deposed += 1
        store = cast("SharedStore", tree.store)
        self._late_before += store.late_renewals
        self._regained_before += store.regained_locks
        logger.warning("this manager leads no more, and follows: %s", error)
        self._remote.go_on_waiting(tree.left_waiting())
        if not self._ending.is_set():
            self._on_change("deposed", tree.epoch)
            self._stand_by()

    def hosts(self) -> tuple[HostInfo, ...]:
        """The worker hosts that have joined the leader."""
        local = self._leading()
        return self._remote.hosts() if local is None else local.hosts()

    def drain_host(self, name: str) -> bool:
        """Have a host leave in order; False when there is none of this name."""
        local = self._leading()
        return self._remote.drain_host(name) if local is None else local.drain_host(name)

    def step_down(self) -> None:
        """Give the lead to another manager, if one waits for it; this one follows."""
        local = self._leading()
        if local is None:
            self._remote.step_down()
        else:
            self._give_lead_up(local)

    def _give_lead_up(self, tree: EngineTree) -> None:
        self._stepped_down = True
        # In a moment: first the caller is answered, which may be at the other end of a link that this closes.
        error = Deposed("this manager was asked to step down")
        timer = threading.Timer(_LOOK, tree.depose, args=(error,))
        timer.daemon = True
        timer.start()

    def stop(self, *, drain: bool, timeout: float | None) -> None:
        """Stop to lead or to follow. Idempotent."""
        with self._changing:
            self._ending.set()
            candidate, self._candidate = self._candidate, None
            local = self._local
        if local is not None:
            local.stop(drain=drain, timeout=timeout)
        self._end_host(drain=drain)
        if candidate is not None and candidate is not threading.current_thread():
            candidate.join(timeout=5.0)
        self._remote.close()

    @property
    def closed(self) -> bool:
        """It has been stopped, or its engine ended by a failure that no other manager mends."""
        local = self._local
        return self._ending.is_set() or (local is not None and local.closed and not self._is_passing(local))

    @staticmethod
    def _is_passing(local: EngineTree) -> bool:
        """The engine here has ended because another manager leads: this one follows in a moment."""
        return isinstance(local.failure, Deposed)

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

    @property
    def failure(self) -> ActorprocError | None:
        """Error of the engine here that no other manager mends."""
        local = self._local
        return None if local is None or self._is_passing(local) else local.failure

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

    # ------------------------------------------------------------ who leads
    def leader_counters(self) -> LeaderCounters:
        """Figures of this manager about the lead; of all its terms."""
        local = self._leading()
        store = None if local is None else cast("SharedStore", local.store)
        return LeaderCounters(
            leads=store is not None,
            takeovers=self.takeovers,
            deposed=self.deposed,
            late_renewals=self._late_before + (0 if store is None else store.late_renewals),
            regained_locks=self._regained_before + (0 if store is None else store.regained_locks),
            store_round_trip=None if store is None else store.round_trip,
        )

    def leader(self) -> Leader | None:
        """The leader, as its row names it. Raises `EngineError` when the database is away."""
        return self._home.leader()

    def health_here(self) -> Health:
        """Health of this manager: of its engine while it leads, else of the way to the leader. Never raises."""
        local = self._leading()
        if local is None:
            return self._health_of_follower()
        health = Queries(local).health(local.failure)
        here = f"process {os.getpid()} on {socket.gethostname()} (epoch {local.epoch})"
        store = cast("SharedStore", local.store)
        problems = []
        if waited := store.waits_for:
            problems.append(f"a commit has waited {waited:.1f} s for the database; nothing is acknowledged meanwhile")
        if store.has_lapsed:
            problems.append("the lease could not be renewed in time: another manager may take the lead")
        if problems:
            status = "degraded" if health.status == "running" else health.status
            health = msgspec.structs.replace(health, status=status, problems=(*health.problems, *problems))
        told = [held] if (held := store.held_back) else []
        days = None if self._entrance is None else self._entrance.certificate_days
        if days is not None and days < _CERTIFICATE_DAYS:
            told.append(f"the certificate of Config.tls is valid for {max(days, 0):.0f} more days; replace its files")
        if told:
            health = msgspec.structs.replace(health, problems=(*health.problems, *told))
        return msgspec.structs.replace(health, role="leading", leader=here, certificate_days=days)

    def _health_of_follower(self) -> Health:
        look = RemoteEngine(self._home, patience=_GLANCE, max_frame=self._config.max_frame)
        leader: Leader | None = None
        problems: tuple[str, ...] = ()
        found: Health | None = None
        try:
            leader = self.leader()
            look.reach()
            found = Queries(look).health(None)
        except ActorprocError as error:
            problems = (f"the leader does not answer: {error}",)
        finally:
            look.close()
        if found is None:
            found = msgspec.structs.replace(Health.stopped(*problems), status="degraded")
        named = f"{leader.owner} (epoch {leader.epoch})" if leader is not None and leader.leads else None
        return msgspec.structs.replace(found, role="following", leader=named)


def _unable(in_use: str, error: ActorprocError) -> EngineError:
    return EngineError(f"this manager can neither lead nor follow: {in_use}. The leader does not answer: {error}")
