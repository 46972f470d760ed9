"""Faults of an episode of several processes: what each does, and how it is healed."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from signal import SIGCONT, SIGINT, SIGKILL, SIGQUIT, SIGSTOP, Signals
from typing import Any, TypeVar

from actorproc.api.client import ProcedureClient
from actorproc.errors import ActorprocError
from actorproc.store.postgres.failures import DatabaseFailure
from actorproc.testing.database_server import DatabaseServer
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.cluster.members import Agent, Candidate, Member
from actorproc.testing.torture.cluster.proxy import Proxy
from actorproc.testing.torture.cluster.witness import end_sessions
from actorproc.testing.torture.faults import ClusterFault, FaultPhase, Strike
from actorproc.testing.torture.record import EpisodeJournal, Tail

__all__ = ["Strikes"]

_T = TypeVar("_T")

_IN_COMMIT_WITHIN = 3.0
"""Seconds to wait for a commit in whose middle the leader is stopped."""
_COMMIT = 700
"""Bytes from which on something sent to the database is taken for a commit of steps."""
_DELAY = 0.03
"""Seconds by which each piece on a slow link comes late."""
_VERB_WITHIN = 3.0
"""Patience of a client that asks for what an operator wants."""


class Strikes:
    """Strikes members and what is between them. Faults may strike at the same time, and are healed by themselves.

    Args:
        journal: The journal of the episode.
        server: The database.
        url: URL of the store.
        candidates: The candidates.
        agents: The agents of hosts; those that join later are added.
        mark: Beginning of the mark of new processes.
    """

    def __init__(
        self,
        journal: EpisodeJournal,
        server: DatabaseServer,
        url: str,
        candidates: list[Candidate],
        agents: list[Agent],
        mark: str,
    ) -> None:
        self._journal = journal
        self._server = server
        self._url = url
        self._candidates = candidates
        self._agents = agents
        self._mark = mark
        self._tail = Tail(journal)
        self._lock = threading.Lock()
        self._base = threading.Lock()
        """Held while the server is down."""
        self._leader = 0
        self._open: dict[int, JournalLine] = {}
        """Step in each worker."""

    def strike(self, strike: Strike) -> None:
        """Strike, wait for as long as it lasts, and heal it."""
        self._actions[strike.kind](self, strike)

    def heal(self) -> None:
        """Release all links, and start what is not there."""
        for candidate in self._candidates:
            candidate.door.release()
            candidate.base.release()
            candidate.door.delay = candidate.base.delay = 0.0
        for member in (*self._candidates, *self._agents):
            with member.lock:
                if not member.is_alive:
                    member.start()

    # ------------------------------------------------------------ victims
    def _look(self) -> None:
        with self._lock:
            for line in self._tail.news():
                if line.kind == "leads":
                    self._leader = line.pid
                elif line.kind == "enter":
                    self._open[line.pid] = line
                elif line.kind in {"exit", "raised"}:
                    self._open.pop(line.pid, None)

    def _phase(self) -> FaultPhase:
        self._look()
        modes = {line.mode for line in self._open.values()}
        if "rollback" in modes:
            return FaultPhase.UNDOING
        return FaultPhase.EXECUTING if modes else FaultPhase.WAITING

    def _struck(self, strike: Strike, pid: int = 0) -> None:
        self._journal.struck(strike.kind, self._phase(), pid=pid, text=f"{strike.seconds:g} s")  # type: ignore[arg-type]

    def _leading(self) -> Candidate | None:
        self._look()
        return next((one for one in self._candidates if one.pid == self._leader and one.is_alive), None)

    def _following(self, draw: float) -> Candidate | None:
        leading = self._leading()
        return _drawn([one for one in self._candidates if one is not leading and one.is_alive], draw)

    def _victim(self, strike: Strike) -> Member | None:
        match strike.kind:
            case ClusterFault.LEADER_KILL | ClusterFault.LEADER_STOP | ClusterFault.LEADER_IN_COMMIT:
                return self._leading()
            case ClusterFault.FOLLOWER_KILL | ClusterFault.FOLLOWER_STOP:
                return self._following(strike.draw)
        return _drawn([agent for agent in self._agents if agent.is_alive], strike.draw)

    # ------------------------------------------------------------ processes
    def _kill(self, strike: Strike) -> None:
        victim = self._victim(strike)
        if victim is None:
            return
        with victim.lock:
            if not victim.is_alive:
                return
            self._struck(strike, victim.pid)
            victim.kill()
            time.sleep(strike.seconds)
            victim.start()

    def _stop(self, strike: Strike) -> None:
        victim = self._victim(strike)
        if victim is None:
            return
        with victim.lock:
            if not victim.is_alive:
                return
            pids = [victim.pid]
            if strike.kind is ClusterFault.MACHINE_STOP:
                pids += victim.workers()
            self._struck(strike, victim.pid)
            with self._frozen(victim.pid), _stopped(pids):
                time.sleep(strike.seconds)

    @contextlib.contextmanager
    def _frozen(self, pid: int) -> Iterator[None]:
        """Write down that a process stands still, or cannot know that others do not."""
        self._journal.note("frozen", pid=pid)
        try:
            yield
        finally:
            self._journal.note("thawed", pid=pid)

    def _stop_in_commit(self, strike: Strike) -> None:
        victim = self._leading()
        if victim is None:
            return
        with victim.lock:
            if not victim.is_alive:
                return
            base, is_cut = victim.base, threading.Event()

            def watch(direction: str, data: bytes) -> bytes:
                if direction == "up" and len(data) > _COMMIT and not is_cut.is_set():
                    base.piece = len(data) // 2
                return data

            def passed(direction: str) -> None:
                if direction == "up" and base.piece < 1 << 16 and not is_cut.is_set():
                    base.hold("up")
                    _send(SIGSTOP, [victim.pid])
                    is_cut.set()

            base.watch, base.passed = watch, passed
            try:
                if not is_cut.wait(_IN_COMMIT_WITHIN):
                    return
                self._struck(strike, victim.pid)
                with self._frozen(victim.pid), _stopped([victim.pid]):
                    time.sleep(strike.seconds)
            finally:
                base.watch, base.passed, base.piece = None, None, 1 << 16
                base.release()

    def _strike_worker(self, strike: Strike) -> None:
        workers = [worker for member in (*self._candidates, *self._agents) for worker in member.workers()]
        self._look()
        busy = [worker for worker in workers if worker in self._open]
        worker = _drawn(busy or workers, strike.draw)
        if worker is None:
            return
        self._struck(strike, worker)
        if strike.kind is ClusterFault.WORKER_KILL:
            self._journal.killing(worker)
            _send(SIGKILL, [worker])
            return
        with _stopped([worker]):
            time.sleep(strike.seconds)

    # ------------------------------------------------------------ links
    def _strike_links(self, strike: Strike) -> None:
        leader = self._leading()
        if leader is None:
            return
        self._struck(strike, leader.pid)
        if strike.kind is ClusterFault.LINK_CUT:
            leader.door.cut()
            return
        half = ("up",) if strike.draw < 0.5 else ("down",)
        directions = {ClusterFault.LINK_BLOCKED: ("up", "down"), ClusterFault.LINK_HALF: half}.get(strike.kind, ())
        with _impeded(leader.door, directions):
            time.sleep(strike.seconds)

    # ------------------------------------------------------------ the database
    def _end_sessions(self, strike: Strike) -> None:
        self._struck(strike)
        with contextlib.suppress(DatabaseFailure):  # it is away already
            end_sessions(self._url)

    def _impede_base(self, strike: Strike) -> None:
        leader = self._leading()
        if leader is None:
            return
        self._struck(strike, leader.pid)
        directions = ("up", "down") if strike.kind is ClusterFault.BASE_BLOCKED else ()
        # To its own workers it is as if it stood still.
        with self._frozen(leader.pid), _impeded(leader.base, directions):
            time.sleep(strike.seconds)

    def _end_base(self, strike: Strike) -> None:
        with self._base:
            self._struck(strike)
            is_away = strike.kind is ClusterFault.BASE_AWAY
            self._server.stop(SIGINT if is_away else SIGQUIT)
            time.sleep(strike.seconds if is_away else 0.0)
            self._server.start()

    # ------------------------------------------------------------ operators
    def _verb(self, strike: Strike, verb: Callable[[ProcedureClient], object]) -> None:
        self._struck(strike)
        with (
            contextlib.suppress(ActorprocError, TimeoutError),
            ProcedureClient(self._url, patience=_VERB_WITHIN) as client,
        ):
            verb(client)

    def _step_down(self, strike: Strike) -> None:
        self._verb(strike, lambda client: client._engine.step_down())

    def _reload(self, strike: Strike) -> None:
        self._verb(strike, lambda client: client.reload(timeout=_VERB_WITHIN))

    def _drain(self, strike: Strike) -> None:
        """A host leaves in order, another one joins."""
        victim = self._victim(strike)
        if victim is None:
            return
        new = Agent(f"agent-{len(self._agents)}-{strike.after:g}", victim.folder, victim.url, self._mark)
        with victim.lock:
            process = victim.process
            if process is None or process.poll() is not None:
                return
            self._verb(strike, lambda client: _drain_host(client, process.pid))
            new.start()
            self._agents.append(new)
            until = time.monotonic() + strike.seconds
            while process.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            victim.leave()  # SIGTERM, as often as a service manager likes, ends one whose drain was not heard
            self._agents.remove(victim)  # type: ignore[arg-type]

    _actions: dict[ClusterFault, Callable[[Any, Strike], None]] = {  # noqa: RUF012 - as constant as the class
        ClusterFault.LEADER_KILL: _kill,
        ClusterFault.LEADER_STOP: _stop,
        ClusterFault.LEADER_IN_COMMIT: _stop_in_commit,
        ClusterFault.FOLLOWER_KILL: _kill,
        ClusterFault.FOLLOWER_STOP: _stop,
        ClusterFault.AGENT_KILL: _kill,
        ClusterFault.AGENT_STOP: _stop,
        ClusterFault.MACHINE_STOP: _stop,
        ClusterFault.WORKER_KILL: _strike_worker,
        ClusterFault.WORKER_STOP: _strike_worker,
        ClusterFault.LINK_CUT: _strike_links,
        ClusterFault.LINK_SLOW: _strike_links,
        ClusterFault.LINK_BLOCKED: _strike_links,
        ClusterFault.LINK_HALF: _strike_links,
        ClusterFault.BASE_CRASH: _end_base,
        ClusterFault.BASE_AWAY: _end_base,
        ClusterFault.BASE_SESSIONS: _end_sessions,
        ClusterFault.BASE_BLOCKED: _impede_base,
        ClusterFault.BASE_SLOW: _impede_base,
        ClusterFault.HOST_DRAIN: _drain,
        ClusterFault.STEP_DOWN: _step_down,
        ClusterFault.RELOAD: _reload,
    }


def _send(number: Signals, pids: Sequence[int]) -> None:
    """Send a signal to processes, of which some may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextlib.contextmanager
def _stopped(pids: Sequence[int]) -> Iterator[None]:
    """Let these processes stand still."""
    _send(SIGSTOP, pids)
    try:
        yield
    finally:
        _send(SIGCONT, pids)


@contextlib.contextmanager
def _impeded(proxy: Proxy, directions: Sequence[str]) -> Iterator[None]:
    """Hold these directions back; none: everything comes late."""
    if directions:
        proxy.hold(*directions)
    else:
        proxy.delay = _DELAY
    try:
        yield
    finally:
        proxy.delay = 0.0
        proxy.release()


def _drain_host(client: ProcedureClient, pid: int) -> None:
    for host in client._engine.hosts():
        if host.pid == pid:
            client._engine.drain_host(host.name)


def _drawn(found: Sequence[_T], draw: float) -> _T | None:
    return found[int(draw * len(found))] if found else None
