"""A manager that runs in another process, used as if it ran in this one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from actorproc.api.queries import Queries
from actorproc.api.registration import Registration
from actorproc.api.verbs.base import RunningEngine
from actorproc.api.verbs.maintenance import MaintenanceVerbs
from actorproc.api.verbs.operator import OperatorVerbs
from actorproc.api.verbs.reload import ReloadVerbs
from actorproc.api.verbs.repair import RepairVerbs
from actorproc.api.verbs.schedule import ScheduleVerbs
from actorproc.api.verbs.signal import SignalVerbs
from actorproc.config import Config
from actorproc.control.engine import RemoteEngine
from actorproc.errors import ManagerStopped
from actorproc.procedure.authoring.function import ProcedureFunction
from actorproc.procedure.values.codec import permit_size
from actorproc.report.health import Health
from actorproc.store.home import home_of
from actorproc.support.durations import in_seconds
from actorproc.support.engine_log import engine_logger

if TYPE_CHECKING:
    from actorproc.report.why import EngineFacts

__all__ = ["ProcedureClient"]

logger = engine_logger("actorproc")

_C = TypeVar("_C", bound=type | ProcedureFunction[..., Any])


class ProcedureClient(ScheduleVerbs, RepairVerbs, OperatorVerbs, SignalVerbs, MaintenanceVerbs, ReloadVerbs):
    """Submits to, waits for, watches and steers the procedures of a manager in another process of this user.

    It has the methods of `ProcedureManager`, with their results and errors, save those of its life (``start``,
    ``stop``, ``resize`` …) and ``register_loader``. Reading what is stored needs no manager: `info`, `list` and `steps`
    of what has ended, `audit`, `get(id).result()`. Everything else waits for one to run, up to ``patience``. A restart
    of the manager, a store that is away, and a change of leaders are pauses, after which handles and watches go on.
    When the patience is over it raises `ManagerStopped` or `StorageUnavailable`. If the manager is lost in the middle
    of a verb that must not be repeated unasked (`retry`, `bypass`, …), the verb raises `OutcomeUnknown`. `submit` and
    `signal` are repeated, and count once.

    Classes travel with the first submit, as they do to workers. Nothing is touched before the first call. May be used
    from any thread; use it in a ``with``, or `close` it.

    Args:
        path: The manager's directory.
        procedures: Classes whose outputs are to be decoded here without a submit. Default: none.
        patience: Seconds, or a timedelta, that a call waits for a manager. Default: 30.
        config: Settings, as the manager has them. Default: ``Config()``.

    Raises:
        ValueError: ``patience`` is no duration, or the path is empty.
        UsageError: A class cannot be run, or the path is a URL.
        DuplicateType: Two classes have one type name.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        procedures: Iterable[type | ProcedureFunction[..., Any]] = (),
        patience: float | timedelta = 30.0,
        config: Config | None = None,
    ) -> None:
        try:
            seconds = in_seconds(patience, "patience", endless=True)
        except TypeError as error:
            raise ValueError(str(error)) from None
        self._home = home_of(path)
        self._path = self._home.words
        self._config = config if config is not None else Config()
        permit_size(self._config.max_state)
        self._clock = self._home.clock()
        self._types = Registration(self._home, self._config.signing_key, max_frame=self._config.max_frame)
        self._engine = RemoteEngine(
            self._home,
            patience=seconds,
            max_frame=self._config.max_frame,
            allow_any_filesystem=self._config.allow_any_filesystem,
        )
        self._types.reach = self._engine.wait_out
        self._pid = os.getpid()
        self._attached = False
        self._warned: set[str] = set()
        """Types of a script that were warned of."""
        for procedure_class in procedures:
            self.register(procedure_class)

    def register(self, procedure_class: _C) -> _C:
        """Make a class or a `procedure` function known here and to the manager. Usable as a decorator.

        Args:
            procedure_class: The class or function.

        Returns:
            The class or function itself.

        Raises:
            UsageError: The class cannot be run.
            DuplicateType: Another class has its type name.
        """
        self._types.register(procedure_class)
        return procedure_class

    def health(self) -> Health:
        """Health of the manager; never raises. "stopped" when no manager answers within the patience."""
        if os.getpid() != self._pid or self._engine.closed or self._engine.manager_status() is None:
            return Health.stopped()
        return Queries(self._running()).health(None)

    def _engine_facts(self) -> EngineFacts:
        self._check_fork()
        self._engine.reach()  # else each of its questions would wait for a manager that is not there
        return super()._engine_facts()

    def close(self) -> None:
        """Leave the manager. Procedures go on. Idempotent."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _post(self, errand: Callable[[], object]) -> None:
        """Run a callback on the client's thread for callbacks."""
        self._engine.post(errand)

    def _life(self) -> str:
        return "closed" if self._engine.closed else "open"

    def _running(self) -> RunningEngine:
        self._check_fork()
        if self._engine.closed:
            msg = "this client was closed; make another one"
            raise ManagerStopped(msg)
        return self._engine

    def _describe(self, *arguments: Any, **options: Any) -> Any:
        if not self._attached:
            # A manager has been there, so its key is: what is signed here must be known there.
            self._engine.open()
            self._types.definitions()
            self._types.attach(self._engine)
            self._attached = True
        new = super()._describe(*arguments, **options)
        if new.type_name.startswith("__main__.") and new.type_name not in self._warned:
            self._warned.add(new.type_name)
            logger.warning(
                "%s is a class of this program's script: the manager runs it as long as it lives, and after its "
                "restart no module has it, so what is unfinished is parked. Put the class into a module that both "
                "import, or give it a type_name under which the manager's module registers the same class",
                new.type_name,
            )
        return new
