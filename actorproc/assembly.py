"""A running engine, put together: store, actors, pool of workers, control socket.

The first `ProcedureManager.start` loads it. Who only imports the manager's module needs none of this; and that is every
worker which imports a module in which procedures and their manager stand side by side: 9 MB, and 40 ms of its boot.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from actorproc.actors.clock import Clock
from actorproc.actors.tree import EngineTree
from actorproc.changes import LifecycleEvent
from actorproc.config import Config
from actorproc.control.server import ControlServer
from actorproc.errors import ActorprocError
from actorproc.procedure.shipping import pickled_by_value
from actorproc.store.base import ProcedureStore
from actorproc.store.lmdb import Durability, LmdbStore
from actorproc.workers.base import WorkerPool
from actorproc.workers.local_pool import LocalPool
from actorproc.workers.logbook import LogBook

__all__ = ["make_engine", "make_pool", "open_control"]


def make_engine(
    *,
    path: str,
    store: ProcedureStore | None,
    durability: Durability,
    make_pool: Callable[[int], WorkerPool],
    slots: int,
    max_slots: int,
    config: Config,
    clock: Clock,
    on_fatal: Callable[[ActorprocError], None],
    on_event: Callable[[LifecycleEvent], object] | None,
    gated: bool,
) -> EngineTree:
    """An engine that has not been started. Without `store` it keeps its procedures in the directory `path`."""
    return EngineTree(
        store=store if store is not None else LmdbStore(path, durability=durability),
        make_pool=make_pool,
        slots=slots,
        max_slots=max_slots,
        config=config,
        clock=clock,
        on_fatal=on_fatal,
        on_event=on_event,
        gated=gated,
    )


def make_pool(
    epoch: int,
    config: Config,
    *,
    directory: Path | None,
    preload: tuple[str, ...],
    environment: Callable[[], Any] | None,
) -> WorkerPool:
    """Worker processes on this machine; what they print is spooled in `directory`, if there is one."""
    return LocalPool(
        epoch=epoch,
        spares=config.spares,
        preload=preload,
        environment=pickled_by_value(environment) if environment is not None else None,
        max_frame=config.max_frame,
        max_state=config.max_state,
        warm_limit=config.warm_limit,
        recycle_steps=config.recycle_steps,
        recycle_age=config.recycle_age,
        recycle_memory=config.recycle_memory,
        book=LogBook(config.log_bytes, config.log_bytes_total, directory=directory, spool=config.log_file_bytes),
    )


def open_control(engine: EngineTree, path: str, config: Config) -> None:
    """Let other processes of this user ask a started engine, until it closes."""
    server = ControlServer(engine, path, config)
    server.start()
    engine.at_close.append(server.close)
    engine.at_end.append(server.join)
