"""Reports as a store and a manager would give them, made by hand."""

from __future__ import annotations

import msgspec

from actorproc.model.crash_report import CrashReport
from actorproc.model.rows.records import ErrorInfo, StepKind
from actorproc.model.states import Phase, ProcedureState
from actorproc.report.health import Health
from actorproc.report.hosts import HostInfo
from actorproc.report.info import LockInfo, LockWaiterInfo, ProcedureInfo
from actorproc.report.metrics import Histogram, Metrics, ProcedureCounts, StepCounts
from actorproc.report.step_log import AttemptInfo, StepInfo
from actorproc.workers.base import WorkerInfo

__all__ = ["EVIL", "NOW", "attempt", "error", "health", "host", "info", "lock", "metrics", "step", "worker"]

NOW = 1_800_000_000.0
NOTHING = Histogram(bounds=(1.0,), counts=(0, 0), sum=0.0)
EVIL = "[bold red]evil[/] \x1b[31m\x9b2J\u202e\u2066\u200b\r\nfake  FAILED [link=http://x]y[/link] \U000e0041"
"""Markup of rich and of textual, escapes, bidi controls, invisible letters, a line of its own."""


def error(name="shop.PriceError", message="no price", *, step=1, step_name="", signal=None, kind="error"):
    crash = None
    if signal is not None:
        crash = CrashReport(kind="signal", message=message, signal=signal)
        kind = "crash"
    return ErrorInfo(kind, name, message, step=step, step_name=step_name, crash=crash)


def info(id="job", state="RUNNABLE", phase="running", **fields):
    usual = {
        "type_name": "shop.Order",
        "version": 1,
        "reason": None,
        "parent_id": None,
        "root_id": id,
        "run": 1,
        "step": 1,
        "attempt": 1,
        "errors": 0,
        "crashes": 0,
        "children": {},
        "locks": (),
        "owner": None,
        "tags": (),
        "priority": 0,
        "created_at": NOW - 60,
        "updated_at": NOW - 30,
        "finished_at": NOW - 30 if phase == "done" else None,
        "due_at": None,
        "deadline": None,
        "progress": None,
        "error": None,
    }
    return _of(ProcedureInfo, id=id, state=ProcedureState(state), phase=Phase(phase), **(usual | fields))


def step(number, name=None, start=0.0, end=1.0, **fields):
    usual = {
        "path": "",
        "procedure": "job",
        "generation": 1,
        "kind": StepKind.STEP,
        "at": NOW + end,
        "started_at": NOW + start,
        "finished_at": NOW + end,
        "elapsed": end - start,
        "outcome": "executing",
        "next_name": None,
        "label": None,
        "attempts": 1,
        "slot": 0,
        "incarnation": 1,
        "pid": 1,
        "state_bytes": 1,
        "output_bytes": 0,
        "codec": "",
        "version": 1,
        "error": None,
        "crash": None,
        "state": b"",
        "output": b"",
    }
    return _of(StepInfo, number=number, step_name=name, **(usual | fields))


def attempt(step, number, start, end, error, **fields):
    usual = {
        "procedure": "job",
        "step_name": None,
        "mode": "execute",
        "run": 1,
        "slot": 0,
        "incarnation": 1,
        "pid": 1,
    }
    return _of(
        AttemptInfo,
        step=step,
        attempt=number,
        started_at=NOW + start,
        ended_at=NOW + end,
        error=error,
        **(usual | fields),
    )


def lock(path, holder, *waiters, mode="write"):
    queue = tuple(LockWaiterInfo(name, "write", ticket) for ticket, name in enumerate(waiters))
    return LockInfo(
        path=path, mode=mode, holder=holder, root=holder, kind="procedure", since=NOW, age=1.0, waiters=queue
    )


def worker(slot=0, cpu=None, **fields):
    usual = {"incarnation": 1, "pid": 100 + slot, "state": "idle", "rss": 32 << 20}
    return _of(WorkerInfo, slot=slot, cpu=cpu, **(usual | fields))


def host(number, **fields):
    usual = {
        "name": f"h{number}",
        "number": number,
        "machine": f"box-{number}",
        "address": f"10.0.0.{number}:4711",
        "state": "joined",
        "workers": 8,
        "labels": (),
        "resources": {},
        "round_trip": 0.0012,
    }
    return _of(HostInfo, **(usual | fields))


def health(status="running", **fields):
    usual = {
        "problems": (),
        "slots": (),
        "busy": 1,
        "queued": 0,
        "commits": 5,
        "last_commit": 0.0,
        "slowest_commit": 0.0,
        "stale_results": 0,
    }
    return _of(Health, status=status, **(usual | fields))


def metrics(uptime=10.0, ended=0, steps=0, commits=0, **fields):
    """A snapshot in which all that is not given is nothing."""
    given = {
        "at": NOW,
        "uptime": uptime,
        "commits": commits,
        "procedures": {"shop.Order": ProcedureCounts(submitted=ended, succeeded=ended)},
        "steps": {"shop.Order": _of(StepCounts, run=steps)},
        "queued": 3,
        "lock_waiting": 2,
        "workers": 4,
        "store_used_bytes": 1 << 21,
    }
    return _of(Metrics, **(given | fields))


def _of(kind, /, **given):
    """A struct in which a field that this test says nothing about is empty, also one that comes later."""
    empty = {"int": 0, "float": 0.0, "Histogram": NOTHING, "bool": False, "str": ""}
    usual = {
        field.name: empty.get(getattr(field.type, "__name__", ""), {} if kind is Metrics else None)
        for field in msgspec.structs.fields(kind)
        if field.required
    }
    return kind(**(usual | given))
