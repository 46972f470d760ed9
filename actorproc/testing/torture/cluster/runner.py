"""Plays one episode of several processes: starts a database, candidates and hosts, and strikes them as planned."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from actorproc.api.client import ProcedureClient
from actorproc.errors import ActorprocError
from actorproc.store.home import home_of
from actorproc.store.tools.moving import move
from actorproc.testing.database_server import DatabaseServer
from actorproc.testing.journal import Journal
from actorproc.testing.torture.cluster.application import APPLICATIONS
from actorproc.testing.torture.cluster.callers import ClusterCaller
from actorproc.testing.torture.cluster.members import Agent, Application, Candidate, Member
from actorproc.testing.torture.cluster.plan import TESTIMONY
from actorproc.testing.torture.cluster.proxy import Proxy
from actorproc.testing.torture.cluster.strikes import Strikes
from actorproc.testing.torture.cluster.witness import SETTINGS, prepare, testimony
from actorproc.testing.torture.faults import Strike
from actorproc.testing.torture.plan import Plan
from actorproc.testing.torture.procedures import CLASSES, made_of
from actorproc.testing.torture.record import EpisodeJournal

__all__ = ["ClusterRunner"]

_STORE = "torture"
_COMING_UP = 60.0
"""Seconds for all processes to come up."""
_LOOK = 0.05
_CLIENT_PATIENCE = 5.0


class ClusterRunner:
    """One episode in one folder. `run` it, then judge what is there.

    Args:
        plan: The plan, with a cluster.
        folder: An empty folder.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        assert plan.cluster is not None
        self.plan = plan
        self.cluster = plan.cluster
        self.folder = folder
        self.journal = EpisodeJournal(folder / "journal")
        self._mark = f"{os.getpid()}-{time.monotonic_ns()}"
        self._over = threading.Event()
        self._enqueues = any(root.enqueue is not None for root in plan.roots)

    def run(self) -> None:
        """Play it. Faults that it finds are in the journal."""
        (self.folder / "plan.json").write_bytes(msgspec.json.encode(self.plan))
        with DatabaseServer(fsync=True, settings=SETTINGS) as server:
            url = server.url(_STORE)
            prepare(url)
            with self._members(server, url) as (candidates, agents, applications):
                if self._come_up(candidates, agents):
                    strikes = Strikes(self.journal, server, url, candidates, agents, self._mark)
                    self._live(url, strikes, applications)
                for agent in agents:
                    self._leave(agent)
                for candidate in candidates:
                    self._leave(candidate)
            self._keep(url)

    @contextlib.contextmanager
    def _members(
        self, server: DatabaseServer, url: str
    ) -> Iterator[tuple[list[Candidate], list[Agent], list[Application]]]:
        candidates: list[Candidate] = []
        agents = [Agent(f"agent-{number}", self.folder, url, self._mark) for number in range(self.cluster.agents)]
        applications = [Application(number, self.folder, url, self._mark) for number in range(APPLICATIONS)]
        try:
            for number in range(self.cluster.candidates):
                base = Proxy("127.0.0.1", server.port)
                through = url.replace(f":{server.port}/", f":{base.port}/")
                candidates.append(Candidate(f"candidate-{number}", self.folder, through, self._mark, base))
            yield candidates, agents, applications
        finally:
            self._over.set()
            for member in (*applications, *agents, *candidates):
                member.kill()
            for candidate in candidates:
                candidate.close()

    def _come_up(self, candidates: list[Candidate], agents: list[Agent]) -> bool:
        for member in (*candidates, *agents):
            member.start()
        until = time.monotonic() + _COMING_UP
        while time.monotonic() < until:
            lines = self.journal.lines()
            if any(line.kind == "leads" for line in lines) and all(_has_joined(agent) for agent in agents):
                return True
            time.sleep(_LOOK)
        self.journal.note("stalled", text="the cluster did not come up")
        return False

    # ------------------------------------------------------------ the life of all
    def _live(self, url: str, strikes: Strikes, applications: list[Application]) -> None:
        with ProcedureClient(url, procedures=CLASSES.values(), patience=_CLIENT_PATIENCE) as client:  # type: ignore[arg-type]
            callers = [
                ClusterCaller(client, self.journal, root, made_of(root.spec, str(self.folder)), self._over)
                for root in self.plan.roots
                if root.enqueue is None
            ]
            threads = [_thread(caller.serve) for caller in callers]
            enqueueing = [_thread(application.run, self._over) for application in applications if self._enqueues]
            began = time.monotonic()
            striking = [_thread(self._strike, strikes, strike, began) for strike in self.cluster.strikes]
            for thread in striking:
                thread.join()
            strikes.heal()
            deadline = time.monotonic() + self.plan.patience
            for thread in (*threads, *enqueueing):
                thread.join(max(0.1, deadline - time.monotonic()))
            left = self._await_ends(client, deadline)
            self._over.set()
            for caller, thread in zip(callers, threads, strict=True):
                thread.join()
                if not caller.is_done and caller.root.id not in left:
                    self.journal.note("stalled", procedure=caller.root.id, text="its caller was not told its end")

    def _strike(self, strikes: Strikes, strike: Strike, began: float) -> None:
        time.sleep(max(0.0, began + strike.after - time.monotonic()))
        try:
            strikes.strike(strike)
        except Exception as error:  # noqa: BLE001 - a fault of the torture itself: it must not look like a quiet episode
            self.journal.note("stalled", text=f"the fault {strike.kind!r} could not strike: {error!r}")

    def _await_ends(self, client: ProcedureClient, deadline: float) -> set[str]:
        """Wait until all has ended: children may outlive their root. Returns what has not."""
        while True:
            reasons: dict[str, str] = {}
            try:
                left = [info for info in client.list() if info.finished_at is None]
                reasons = {info.id: f"{info.phase}: {info.reason}" for info in left}
                reasons |= {row.id: f"enqueued, and {row.reason or 'it waits'}" for row in client.enqueued()}
            except ActorprocError as error:
                reasons = {"": f"what has ended cannot be read: {error}"}
            if not reasons:
                return set()
            if time.monotonic() > deadline:
                for id, reason in reasons.items():
                    self.journal.note("stalled", procedure=id, text=reason)
                return set(reasons)
            time.sleep(_LOOK)

    # ------------------------------------------------------------ the end
    def _leave(self, member: Member) -> None:
        is_there = member.is_alive
        code = member.leave()
        if code != 0 and is_there:
            self.journal.note("stalled", text=f"{member.name} did not leave in order: {code}; {_last_words(member)}")

    def _keep(self, url: str) -> None:
        """Keep the store as a directory, and what the witness saw."""
        witness = Journal(self.folder / TESTIMONY)
        for line in testimony(url):
            witness._write(line)
        try:
            move(home_of(url), home_of(self.folder / "state"))
        except ActorprocError as error:
            self.journal.note("unsound", text=f"the store cannot be copied: {error}")


def _has_joined(agent: Agent) -> bool:
    return "joined the leader" in (agent.folder / f"{agent.name}.log").read_text(errors="replace", encoding="utf-8")


def _last_words(member: Member) -> str:
    return (member.folder / f"{member.name}.log").read_text(errors="replace", encoding="utf-8")[-500:]


def _thread(target: Callable[..., object], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread
