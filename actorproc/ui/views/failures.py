"""Failures in groups: by type, step and class of the error, the largest group first."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from actorproc.report.info import ProcedureInfo
from actorproc.ui.text import plain_line

__all__ = ["FailureGroup", "failure_groups"]

_NAMED = 3


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Procedures that failed, or fail again and again, in the same way."""

    type_name: str
    step: str
    """Name of the step, or its number."""
    error: str
    """Class of the error, without its module; of a crash its kind."""
    count: int
    ids: tuple[str, ...]
    """The newest ones."""
    newest_at: float
    message: str
    """Of the newest one, in one line."""


def failure_groups(infos: Iterable[ProcedureInfo]) -> list[FailureGroup]:
    """Groups of those that have an error; others are left out."""
    found: dict[tuple[str, str, str], list[ProcedureInfo]] = {}
    for info in infos:
        if info.error is not None:
            found.setdefault(_kind_of(info), []).append(info)
    groups = [_group(kind, members) for kind, members in found.items()]
    return sorted(groups, key=lambda group: (-group.count, -group.newest_at, group.type_name, group.step))


def _kind_of(info: ProcedureInfo) -> tuple[str, str, str]:
    error = info.error
    assert error is not None
    step = error.step_name or info.step_name or str(error.step or info.step)
    crash = error.crash
    name = error.type_name.rpartition(".")[2] if crash is None else crash.signal or crash.kind
    return info.type_name.rpartition(".")[2], plain_line(step), plain_line(name)


def _group(kind: tuple[str, str, str], members: list[ProcedureInfo]) -> FailureGroup:
    members.sort(key=lambda info: -(info.finished_at or info.updated_at))
    newest = members[0]
    assert newest.error is not None
    return FailureGroup(
        type_name=kind[0],
        step=kind[1],
        error=kind[2],
        count=len(members),
        ids=tuple(info.id for info in members[:_NAMED]),
        newest_at=newest.finished_at or newest.updated_at,
        message=plain_line(newest.error.message),
    )
