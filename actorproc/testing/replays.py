"""Stored steps as tests: does the code of today end them as they ended?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest

from actorproc.api.replay.exported import store_of_export
from actorproc.api.replay.replayer import Replayer, StoredStep, registry_of
from actorproc.api.replay.time_limit import DEFAULT
from actorproc.errors import UsageError

if TYPE_CHECKING:
    from actorproc.api.replay.result import ReplayResult

__all__ = ["ReplayedStep", "replay_steps"]


class ReplayedStep:
    """One step of an export, which `run` runs again in this process."""

    def __init__(self, replayer: Replayer, step: StoredStep) -> None:
        self._replayer = replayer
        self.procedure = step.procedure
        self.number = step.number

    def run(self) -> ReplayResult:
        """Run it again.

        Returns:
            How it ended, and how that compares with what is stored.
        """
        return self._replayer.replay(self.procedure, self.number)

    def check(self) -> None:
        """Run it again.

        Raises:
            AssertionError: It ends in another way than is stored, or cannot be replayed.
        """
        result = self.run()
        if not result.same:
            said = f"step {self.number} of {self.procedure}: {result.verdict}: {result.reason}"
            raise AssertionError(f"{said}\n{result.traceback}".rstrip())


def replay_steps(
    export: str | os.PathLike[str],
    procedures: Iterable[Any],
    *,
    env: Any = None,
    allow_requests: bool = False,
    timeout: float | None = DEFAULT,
) -> Callable[[Any], Any]:
    """Parametrize a test by the steps of an export whose ends are stored: its argument ``step`` is one of them.

    Args:
        export: A file that ``actorproc export --reveal`` wrote.
        procedures: The classes and functions of today.
        env: The value of ``ctx.env``. Default: None.
        allow_requests: Let steps use the network and processes. Default: False.
        timeout: Seconds that a step may take; a test fails whose step takes longer. Default: 60; None: no limit.

    Returns:
        A decorator of tests.

    Raises:
        UsageError: The file cannot be read, is no export, or holds no step whose end is stored.
    """
    name = os.fspath(export)
    store = store_of_export(name)
    registry = registry_of(procedures, None)
    replayer = Replayer(store, registry, env=env, allow_requests=allow_requests, quiet=True, timeout=timeout)
    steps = [step for head in store.scan() for step in replayer.steps(head.id)]
    if not steps:
        msg = f"{name} holds no step whose end is stored"
        raise UsageError(msg)
    found = [pytest.param(ReplayedStep(replayer, step), id=f"{step.procedure}-{step.number}") for step in steps]
    return pytest.mark.parametrize("step", found)
