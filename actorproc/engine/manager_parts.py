"""Dependencies of a manager actor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from actorproc.config import Config
from actorproc.engine.messages import AddSlot, Gone, RetireSlot
from actorproc.engine.pipeline.commit_cache import CommitCache
from actorproc.engine.pipeline.store_port import StorePort
from actorproc.engine.reply_router import ReplyRouter
from actorproc.engine.runtime.callback_thread import CallbackThread
from actorproc.engine.runtime.clock import Alarm
from actorproc.errors import (
    EngineError,
    InternalError,
)
from actorproc.model.messages.definitions import Definition
from actorproc.model.messages.events import HostAdded
from actorproc.model.policies import Scheduling
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.report.changes import LifecycleEvent
from actorproc.store.base import ProcedureStore
from actorproc.support.clock import Clock
from actorproc.workers.base import WorkerPool

if TYPE_CHECKING:
    from actorproc.telemetry.recorder import Recorder

__all__ = ["ManagerParts"]


class ManagerParts(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of a manager."""

    config: Config
    clock: Clock
    alarm: Alarm
    store: ProcedureStore
    store_port: StorePort
    pool: WorkerPool
    replies: ReplyRouter
    newest: CommitCache
    callback_thread: CallbackThread
    snapshot: RecoverySnapshot
    definitions: Sequence[Definition]
    """The types that are registered now. Each is told of again: what was parked for lack of it can go on then."""
    scheduling: Scheduling
    """Order, limits and shares of work, and how many workers there are."""
    on_gone: Callable[[Gone], None]
    """Tells the supervisor that a worker is dead."""
    to_supervisor: Callable[[AddSlot | RetireSlot], None]
    """Tells the supervisor that a worker is to be added, or to be retired."""
    on_broken: Callable[[InternalError], None]
    """Called once, on the thread that has the manager's turn, when a bug stopped it. Must return at once."""
    on_store_lost: Callable[[EngineError], None]
    """As `on_broken`, when another owner has the store, or it is none of ours any more."""
    on_stopped: Callable[[], None]
    """Called when the host stopped this actor (`ActorRegistry.stop_all`)."""
    on_event: Callable[[LifecycleEvent], object] | None = None
    """The host's hook for lifecycle events; called on the callback thread."""
    offer: HostAdded | None = HostAdded("")
    """Labels and resources that this machine offers; None: it runs no steps."""
    recorder: Recorder | None = None
    """Records spans of what is committed; None: it is not traced."""
    gated: bool = False
    """Nothing is handed out until `OpenGate`."""
