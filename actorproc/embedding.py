"""The engine as one actor of a Pykka application.

A host that is built of Pykka actors starts, watches and replaces the whole engine as it does its other actors::

    engine = EngineActor.start("state", procedures=[Order], workers=2, supervisor=self.actor_ref)
    handle = engine.proxy().submit(Order("book")).get()

When the engine is beyond help (no worker can be started any more, or a bug stopped it), the actor fails: its
`on_failure` runs, it is dead, and its supervisor is told with an `EngineFailed`. Starting another `EngineActor` on the
same directory then recovers everything that was acknowledged.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, NamedTuple

import pykka

from actorproc.durations import seconds_or_none
from actorproc.errors import ActorprocError
from actorproc.handle import ProcedureHandle
from actorproc.info import Health, ProcedureInfo
from actorproc.manager import ProcedureManager
from actorproc.procedure.procedure import Procedure

__all__ = ["EngineActor", "EngineFailed"]

logger = logging.getLogger("actorproc")


class EngineFailed(NamedTuple):
    """Told to the supervisor of an `EngineActor` that has failed; its directory is free again."""

    engine: pykka.ActorRef[EngineActor]
    error: BaseException


class _Fatal(NamedTuple):
    """Told by the engine to its actor."""

    error: ActorprocError


class EngineActor(pykka.ThreadingActor):
    """Owns a `ProcedureManager`: starts it in `on_start`, stops it in `on_stop`.

    ``manager`` is a manager that is not started yet, or a path; ``options`` are then those of `ProcedureManager`.
    ``supervisor`` is told `EngineFailed` when the engine cannot start or fails later. ``stop_timeout`` bounds the stop
    in seconds or as a timedelta (default: `Config.stop_timeout`); running steps are waited for that long.

    The methods are few and return soon, so that a proxy's caller never waits for a procedure: what is not here is
    asked of ``manager``, whose methods may be called from any thread. When the host calls
    `pykka.ActorRegistry.stop_all`, Pykka stops the engine's inner actors first: running steps are then not waited
    for, but run again at the next start.
    """

    use_daemon_thread = True

    def __init__(
        self,
        manager: ProcedureManager | str | os.PathLike[str],
        *,
        supervisor: pykka.ActorRef[Any] | None = None,
        stop_timeout: float | timedelta | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if isinstance(manager, ProcedureManager):
            if options:
                msg = f"a ready manager takes no options; give {', '.join(options)} to its constructor"
                raise TypeError(msg)
            self.manager = manager
        else:
            self.manager = ProcedureManager(manager, **options)
        self._supervisor = supervisor
        given = seconds_or_none(stop_timeout, "stop_timeout", endless=True)
        self._stop_timeout = given if given is not None else self.manager._config.stop_timeout
        self.manager._at_failure(self._on_fatal)

    # ------------------------------------------------------------ what a proxy offers
    def submit(self, procedure: Procedure, *args: Any, **options: Any) -> ProcedureHandle:
        """As `ProcedureManager.submit`: returns once it is durable."""
        return self.manager.submit(procedure, *args, **options)

    def submit_many(self, procedures: Iterable[Procedure | tuple[str, Procedure]], **options: Any) -> Any:
        """As `ProcedureManager.submit_many`."""
        return self.manager.submit_many(procedures, **options)

    def get(self, id: str) -> ProcedureHandle:
        """A handle of an existing procedure."""
        return self.manager.get(id)

    def info(self, id: str) -> ProcedureInfo:
        """One procedure as it is now."""
        return self.manager.info(id)

    def abort(self, id: str, force: bool = False) -> bool:
        """Ask a procedure to abort and roll back."""
        return self.manager.abort(id, force)

    def signal(self, id: str, payload: Any = None, dedup: str | None = None) -> bool:
        """Send a signal to a procedure."""
        return self.manager.signal(id, payload, dedup)

    def publish(self, name: str, payload: Any = None, dedup: str | None = None) -> None:
        """Send an event to the procedure that has waited for it longest, or to the next one that does."""
        self.manager.publish(name, payload, dedup)

    def health(self) -> Health:
        """Health of the engine."""
        return self.manager.health()

    # ------------------------------------------------------------ life
    def on_start(self) -> None:
        """Start the engine; an actor whose engine cannot start is dead, and its supervisor knows why."""
        if self.manager._shut is not None and self.manager._shut.holds():
            return  # made by a module that a worker imports: the actor answers every call with what it says
        try:
            self.manager.start()
        except BaseException as error:
            self._tell_supervisor(error)
            raise

    def on_stop(self) -> None:
        """Stop the engine within the time limit; what still runs then runs again at the next start."""
        self.manager.stop(drain=True, timeout=self._stop_timeout)

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the directory back, then tell the supervisor. A subclass that overrides this calls it."""
        del exception_type, traceback
        self.manager.stop(drain=False, timeout=self._stop_timeout)
        if exception_value is not None:
            self._tell_supervisor(exception_value)

    def on_receive(self, message: Any) -> Any:
        """The engine's own word that it failed; everything else is for a subclass."""
        if isinstance(message, _Fatal):
            raise message.error
        return super().on_receive(message)

    # ------------------------------------------------------------ trouble
    def _on_fatal(self, error: ActorprocError) -> None:
        with contextlib.suppress(pykka.ActorDeadError):
            self.actor_ref.tell(_Fatal(error))

    def _tell_supervisor(self, error: BaseException) -> None:
        supervisor = self._supervisor
        if supervisor is None:
            return
        try:
            supervisor.tell(EngineFailed(self.actor_ref, error))
        except pykka.ActorDeadError:
            logger.warning("the supervisor of the engine is dead and does not hear that it failed: %s", error)
