"""Pools of workers as a manager's settings want them: for an engine here, and for a manager that leads elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from actorproc.config import Config
from actorproc.procedure.runtime.class_shipping import pickled_by_value
from actorproc.store.home import Home
from actorproc.workers.base import PoolSettings, WorkerPool
from actorproc.workers.output.log_buffer import LogBuffer
from actorproc.workers.pool.local_pool import LocalPool

__all__ = ["WorkerPools"]


class WorkerPools:
    """Makes pools, none of them open.

    Args:
        config: The settings of the manager.
        home: The home of the store; None: it was given to the manager as an object.
        preload: Names of modules that each worker imports.
        environment: The factory of `ctx.env`; None: there is none.
        around_step: The function that makes a context manager for each attempt; None: there is none.
        around_step_fails: Errors of it fail the step.
    """

    def __init__(
        self,
        config: Config,
        home: Home | None,
        preload: Sequence[str],
        environment: Callable[[], Any] | None,
        *,
        around_step: str | None,
        around_step_fails: bool,
    ) -> None:
        self._config = config
        self._home = home
        self._preload = tuple(preload)
        self._environment = environment
        self._around_step, self._around_step_fails = around_step, around_step_fails

    def for_engine(self, epoch: int, own_number: int) -> WorkerPool:
        """The pool of an engine here: the workers of this machine, with a shared store also those of hosts.

        Args:
            epoch: Epoch of the manager.
            own_number: Number that this machine had as a host of the last leader; 0: none.

        Returns:
            The pool.
        """
        config, home = self._config, self._home
        settings = PoolSettings(
            max_frame=config._longest_frame,
            max_state=config.max_state,
            max_call=config.max_call if home is None or home.largest_value is None else config.max_state,
            warm_limit=config.warm_limit,
            recycle_steps=config.recycle_steps,
            recycle_age=config.recycle_age,
            recycle_memory=config.recycle_memory,
        )
        local = self._local(settings, epoch, directory=home.spool if home is not None else None)
        if home is None or home.is_near:
            return local
        from actorproc.workers.hosts.pool import HostedPool  # noqa: PLC0415 - for stores of several machines

        return HostedPool(
            local,
            epoch=epoch,
            settings=settings,
            patience=config.host_patience,
            own_number=own_number,
        )

    def for_host(self, settings: PoolSettings, epoch: int) -> WorkerPool:
        """The workers of this machine for a manager that leads elsewhere. Their output is kept in memory.

        Args:
            settings: The settings of that manager.
            epoch: Its epoch.

        Returns:
            The pool.
        """
        return self._local(settings, epoch, directory=None)

    def _local(self, settings: PoolSettings, epoch: int, *, directory: Path | None) -> LocalPool:
        config, home, environment = self._config, self._home, self._environment
        return LocalPool(
            epoch=epoch,
            spares=config.spares,
            preload=self._preload,
            environment=pickled_by_value(environment) if environment is not None else None,
            executable=config.executable,
            max_frame=settings.max_frame,
            max_state=settings.max_state,
            max_call=settings.max_call,
            withheld=home.secrets if home is not None else (),
            staging=home.staging if home is not None else "",
            warm_limit=settings.warm_limit,
            log_level=settings.log_level,
            recycle_steps=settings.recycle_steps,
            recycle_age=settings.recycle_age,
            recycle_memory=settings.recycle_memory,
            log_buffer=LogBuffer(
                config.log_bytes, config.log_bytes_total, directory=directory, spool=config.log_file_bytes
            ),
            around_step=self._around_step,
            around_step_fails=self._around_step_fails,
        )
