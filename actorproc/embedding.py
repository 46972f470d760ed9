"""The engine as one actor of a Pykka application.

A host that is built of Pykka actors starts, watches and replaces the whole engine as it does its other actors::

    engine = EngineActor.start("state", procedures=[Order], workers=2, supervisor=self.actor_ref)
    handle = engine.proxy().submit(Order("book")).get()

If no worker can be started any more, or a bug stopped the engine, the actor fails. Its `on_failure` runs, it is dead,
and its supervisor gets an `EngineFailed`. Starting another `EngineActor` on the directory then recovers everything that
was acknowledged.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import pykka

from actorproc.api.handle import ProcedureHandle
from actorproc.api.manager import ProcedureManager
from actorproc.errors import ActorprocError
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.report.health import Health
from actorproc.report.info import ProcedureInfo
from actorproc.support.durations import seconds_or_none

__all__ = ["EngineActor", "EngineFailed"]

R = TypeVar("R")

logger = logging.getLogger("actorproc")


class EngineFailed(NamedTuple):
    """Message to the supervisor of an `EngineActor` that has failed; its directory is free again."""

    engine: pykka.ActorRef[EngineActor]
    error: BaseException


class _Fatal(NamedTuple):
    """Message of the engine to its actor."""

    error: ActorprocError


class EngineActor(pykka.ThreadingActor):
    """Owns a `ProcedureManager`: starts it in `on_start`, stops it in `on_stop`.

    The methods are few and return soon, so that a proxy's caller never waits for a procedure. Everything else is asked
    of ``manager``, whose methods may be called from any thread. When the host calls `pykka.ActorRegistry.stop_all`,
    Pykka stops the engine's inner actors first: running steps are then not waited for, but run again at the next start.

    Args:
        manager: A manager that is not started yet, or a path.
        supervisor: Actor that gets an `EngineFailed` when the engine cannot start or fails later. Default: None.
        stop_timeout: Seconds, or a timedelta, for which running steps are waited for at the stop. Default:
            `Config.stop_timeout`.
        **options: Those of `ProcedureManager`, with a path.

    Raises:
        TypeError: Options are given with a ready manager, or one is of the wrong kind.
        ValueError: An option makes no sense.
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
    def submit(self, procedure: Procedure[R], *args: Any, **options: Any) -> ProcedureHandle[R]:
        """Submit a procedure, as `ProcedureManager.submit`; returns once it is durable.

        Args:
            procedure: The procedure.
            *args: Those of `ProcedureManager.submit`.
            **options: Those of `ProcedureManager.submit`.

        Returns:
            A `ProcedureHandle`.

        Raises:
            ActorprocError: As of `ProcedureManager.submit`.
        """
        return self.manager.submit(procedure, *args, **options)

    def submit_many(
        self, procedures: Iterable[Procedure | tuple[str, Procedure]], **options: Any
    ) -> list[ProcedureHandle]:
        """Submit procedures in one commit, as `ProcedureManager.submit_many`.

        Args:
            procedures: Procedures, or ``(id, procedure)`` pairs.
            **options: Those of `ProcedureManager.submit_many`.

        Returns:
            Handles in the order of the procedures.

        Raises:
            ActorprocError: As of `ProcedureManager.submit_many`.
        """
        return self.manager.submit_many(procedures, **options)

    def get(self, id: str) -> ProcedureHandle:
        """A handle of an existing procedure.

        Args:
            id: The procedure.

        Returns:
            A `ProcedureHandle`.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
        """
        return self.manager.get(id)

    def info(self, id: str) -> ProcedureInfo:
        """One procedure as it is now.

        Args:
            id: The procedure.

        Returns:
            A `ProcedureInfo`.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
        """
        return self.manager.info(id)

    def abort(self, id: str, force: bool = False) -> bool:
        """Ask a procedure to abort and roll back, as `ProcedureManager.abort`.

        Args:
            id: The procedure.
            force: Kill its running forward steps. Default: False.

        Returns:
            False when the procedure has ended already.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
        """
        return self.manager.abort(id, force)

    def signal(self, id: str, payload: Any = None, dedup: str | None = None) -> bool:
        """Send a signal to a procedure, as `ProcedureManager.signal`.

        Args:
            id: The procedure.
            payload: The step finds it in ``ctx.event``. Default: None.
            dedup: Signals with one text count once. Default: None.

        Returns:
            False when the procedure has ended, and nothing was sent.

        Raises:
            ActorprocError: As of `ProcedureManager.signal`.
        """
        return self.manager.signal(id, payload, dedup)

    def publish(self, name: str, payload: Any = None, dedup: str | None = None) -> None:
        """Send an event to the procedure that has waited for it longest, as `ProcedureManager.publish`.

        Args:
            name: Name of the event.
            payload: The step finds it in ``ctx.event``. Default: None.
            dedup: Events of this name with one text count once. Default: None.

        Raises:
            ActorprocError: As of `ProcedureManager.publish`.
        """
        self.manager.publish(name, payload, dedup)

    def health(self) -> Health:
        """Health of the engine."""
        return self.manager.health()

    # ------------------------------------------------------------ life
    def on_start(self) -> None:
        """Start the engine, as Pykka calls it. If that fails, the actor dies and its supervisor gets the error.

        Raises:
            ActorprocError: As of `ProcedureManager.start`.
        """
        if self.manager._shut is not None and self.manager._shut.holds():
            return  # made by a module that a worker imports: the actor answers every call with what it says
        try:
            self.manager.start()
        except BaseException as error:
            self._tell_supervisor(error)
            raise

    def on_stop(self) -> None:
        """Stop the engine within the time limit; steps that still run then run again at the next start."""
        self.manager.stop(drain=True, timeout=self._stop_timeout)

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the directory back, then tell the supervisor. A subclass that overrides this calls it.

        Args:
            exception_type: Class of the error that Pykka caught.
            exception_value: The error, for the supervisor.
            traceback: Its traceback.
        """
        del exception_type, traceback
        self.manager.stop(drain=False, timeout=self._stop_timeout)
        if exception_value is not None:
            self._tell_supervisor(exception_value)

    def on_receive(self, message: Any) -> Any:
        """Take a message: the engine's notice of its failure, or any other, which is for a subclass.

        Args:
            message: The message.

        Returns:
            As of `pykka.Actor.on_receive`.

        Raises:
            ActorprocError: The engine has failed with it.
        """
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
