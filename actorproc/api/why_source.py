"""Facts that `actorproc.report.why` needs, read from a store or from a running engine."""

from __future__ import annotations

from actorproc.api.queries import Queries, StoredQueries
from actorproc.model.slots import host_of
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.report.health import Health
from actorproc.report.hosts import HostInfo
from actorproc.report.info import LockInfo, PoisonInfo, ProcedureInfo
from actorproc.report.listing import ListFilter
from actorproc.report.why import EngineFacts, RunningStep

__all__ = ["QuerySource", "facts_of"]

_LIVE = tuple(state for state in ProcedureState if state not in TERMINAL)


class QuerySource:
    """The `WhySource` of a store or an engine at one moment."""

    def __init__(self, queries: StoredQueries, facts: EngineFacts, now: float) -> None:
        self._queries = queries
        self._facts = facts
        self._now = now

    def info(self, id: str) -> ProcedureInfo:
        """One procedure; raises `UnknownProcedure`."""
        return self._queries.info(id)

    def unfinished(self, *, parent: str | None = None, root: str | None = None, limit: int) -> list[ProcedureInfo]:
        """Procedures that have not ended."""
        return self._queries.listed(ListFilter.of(state=_LIVE, parent=parent, root=root, limit=limit))

    def locks(self) -> list[LockInfo]:
        """The lock table."""
        return self._queries.locks(self._now)

    def poisons(self) -> list[PoisonInfo]:
        """The poisoned keys."""
        return self._queries.poisons()

    def facts(self) -> EngineFacts:
        """Facts about the manager."""
        return self._facts


def facts_of(queries: Queries) -> EngineFacts:
    """Facts that a running engine tells about itself."""
    health = queries.health(None)
    hosts = {host.number: _host_in_words(host) for host in health.hosts}
    steps = {
        worker.procedure: RunningStep(
            slot=worker.slot,
            pid=worker.pid,
            age=worker.step_age,
            message=worker.message,
            progress=worker.progress,
            host=hosts.get(host_of(worker.slot), ""),
        )
        for worker in queries.workers()
        if worker.procedure is not None
    }
    return EngineFacts(running=True, paused=health.paused, trouble=_trouble(health), steps=steps)


def _host_in_words(host: HostInfo) -> str:
    silence = f", which has been silent for {host.silent_for:.0f} s" if host.state == "silent" else ""
    return f"host {host.in_words()}{silence}"


def _trouble(health: Health) -> str | None:
    if health.status == "gated":
        return "was started with its gate closed: open() it"
    if health.status == "stopping":
        return "is being stopped and hands out no more steps"
    if health.status in ("storage-trouble", "failed", "broken"):
        return f"is in trouble ({health.status}): {'; '.join(health.problems)}"
    alive = [slot for slot in health.slots if slot.state != "parked"]
    if health.slots and not alive:
        return f"has no worker that starts: {health.slots[0].reason}"
    return None
