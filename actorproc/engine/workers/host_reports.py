"""Worker hosts of a pool, as reports."""

from __future__ import annotations

from typing import Any

from actorproc.engine.messages import ManagerStatus
from actorproc.report.hosts import HostInfo

__all__ = ["host_reports"]


def host_reports(pool: Any, status: ManagerStatus | None) -> tuple[HostInfo, ...]:
    """A report of each host that has joined the pool; `status` says which workers are busy."""
    busy = [one.worker for one in status.workers if one.procedure is not None] if status is not None else []
    return tuple(
        HostInfo(
            name=host.name,
            number=host.number,
            machine=host.hello.name,
            address=host.address,
            state=host.state,
            workers=len(host.workers),
            busy=sum(worker in host.workers for worker in busy),
            labels=tuple(host.hello.labels),
            resources=dict(host.hello.resources),
            code=host.hello.code,
            other_code=status.other_code.get(host.name, ()) if status is not None else (),
            python=host.hello.python,
            pid=host.hello.pid,
            joined_at=host.joined_at,
            silent_for=host.session.silent_for,
            round_trip=host.session.round_trip,
            outstanding=host.session.outstanding,
            resumes=host.session.resumes,
            limits=host.limits,
            process_limits=host.process_limits,
            variables=dict(host.hello.notes),
        )
        for host in getattr(pool, "hosts", ())
        if host.is_open
    )
