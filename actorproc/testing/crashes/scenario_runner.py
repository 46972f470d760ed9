"""Runs a procedure from its beginning to its end, through the death of a host or of a worker if that is wanted."""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import msgspec

from actorproc.api.handle import ProcedureHandle
from actorproc.engine.arguments import checked_classes
from actorproc.errors import ProcedureFailed, UnknownProcedure, UsageError
from actorproc.model.states import Phase
from actorproc.procedure.authoring.function import ProcedureFunction
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.values.error_text import in_words
from actorproc.procedure.values.fields import declared_fields
from actorproc.support.durations import in_seconds
from actorproc.testing.inline import CrashingStore, InlineManager, Place, VirtualClock
from actorproc.testing.step_names import Step, name_of, step_of
from actorproc.workers.protocol.frames import Ended, Run

__all__ = ["Bench", "Played"]

ID = "procedure"
"""Id of the procedure under test; its children's ids follow from it."""
_LOOK = 0.003
"""Seconds between looks at a run."""


class Played(msgspec.Struct):
    """One run, and how it ended."""

    end: str = ""
    ended: bool = True
    """It came to an end in time; if not, `end` says what it was waiting for."""
    world: Any = None
    stored: dict[Place, Step | None] = msgspec.field(default_factory=dict)
    """Each record in order, and the step that ended with it."""
    last: dict[str, Step] = msgspec.field(default_factory=dict)
    """Of each procedure the step that ran last."""
    ran: list[Step] = msgspec.field(default_factory=list)
    """Each step once, in order of first execution."""
    times: Counter[Step] = msgspec.field(default_factory=Counter)
    """Number of beginnings of each step."""
    names: dict[Step, str] = msgspec.field(default_factory=dict)
    was_repeated: bool = False
    lives: int = 1


class Bench:
    """Runs the procedure under test."""

    def __init__(
        self,
        procedure: Procedure | Callable[[], Procedure],
        *,
        observe: Callable[[], Any] | None,
        reset: Callable[[], object] | None,
        procedures: Iterable[Any],
        drive: Callable[[InlineManager, ProcedureHandle], object] | None,
        environment: Callable[[], Any] | None,
        timeout: float | timedelta,
    ) -> None:
        self._procedure = _checked_procedure(procedure)
        _check_functions(observe=observe, reset=reset, drive=drive, environment=environment)
        self._observe = observe
        self._reset = reset
        self._procedures = checked_classes(procedures)
        self._drive = drive
        self._environment = environment
        self._timeout = in_seconds(timeout, "timeout=", least="above zero")

    @property
    def observes(self) -> bool:
        """True when a function observes the world after a run."""
        return self._observe is not None

    def look(self) -> Any:
        """The world as observed now; None without an observer."""
        if self._observe is None:
            return None
        found = self._observe()
        try:
            return copy.deepcopy(found)
        except Exception as error:
            msg = f"what observe gives cannot be kept ({in_words(error)}); give plain data, such as lists and dicts"
            raise UsageError(msg) from error

    def _make(self) -> Procedure:
        given = self._procedure
        made: Any = copy.deepcopy(given) if isinstance(given, Procedure) else given()
        if not isinstance(made, Procedure):
            msg = f"the function that is to make the procedure gave {made!r:.60}, which is none"
            raise TypeError(msg)
        return made

    def run(self, *, at: Place | None = None, after: bool = False, repeat: Step | None = None) -> Played:
        """From the beginning to the end, with at most one disturbance."""
        if self._reset is not None:
            self._reset()
        made = self._make()
        played = Played()
        store = CrashingStore()
        store.at, store.after = at, after
        store.on_record = lambda record: played.stored.setdefault(record, played.last.get(record[0]))
        clock = VirtualClock()
        with self._life(made, store, clock, played, repeat) as manager:
            self._live(made, manager, store, played)
        if store.dead.is_set():
            played.lives = 2
            with self._life(made, store.next_life(), clock, played, None) as manager:
                self._live(made, manager, None, played)
        played.world = self.look()
        return played

    @contextlib.contextmanager
    def _life(
        self, made: Procedure, store: CrashingStore, clock: VirtualClock, played: Played, repeat: Step | None
    ) -> Iterator[InlineManager]:
        def note(run: Run) -> None:
            step = played.last[run.token.procedure] = step_of(run)
            played.times[step] += 1
            if step not in played.names:
                played.ran.append(step)
            if step not in played.names or run.state is not None:
                played.names[step] = name_of(run)

        def loses(ended: Ended) -> bool:
            token = ended.token
            if repeat is None or played.was_repeated:
                return False
            played.was_repeated = (token.procedure, token.step, int(token.mode)) == repeat[:3]
            return played.was_repeated

        manager = InlineManager(
            (type(made), *self._procedures),
            store=store,
            clock=clock,
            environment=self._environment,
            on_run=note,
            loses=loses,
        )
        manager.start()
        try:
            yield manager
        finally:
            # What runs goes on to its end, as the last step of a host that dies may do; then the thread is gone.
            manager.stop(drain=False, timeout=self._timeout)

    def _live(self, made: Procedure, manager: InlineManager, store: CrashingStore | None, played: Played) -> None:
        """One life of the host: submit, or find what was submitted, and wait for the end or for the death."""
        played.ended = True
        try:
            self._live_in_time(made, manager, store, played)
        except TimeoutError as error:
            played.end, played.ended = f"did not end within {self._timeout:g} s: {error}", False

    def _live_in_time(
        self, made: Procedure, manager: InlineManager, store: CrashingStore | None, played: Played
    ) -> None:
        try:
            handle = manager.get(ID)
        except UnknownProcedure:
            handles: list[ProcedureHandle] = []
            # As a caller does who is not told whether it worked.
            if not self._beside(lambda: handles.append(manager.submit(made, ID)), store, "submit()"):
                return
            handle = handles[0]
        if self._drive is not None:
            drive = self._drive
            # What it asks for is not answered by a host that died.
            self._beside(lambda: drive(manager, handle), store, "drive=")
        if self._finish(manager, handle, store):
            played.end = _end_of(handle)

    def _beside(self, call: Callable[[], object], store: CrashingStore | None, name: str) -> bool:
        """Do this on a thread, and wait for it only as long as the host lives; whether that outlived it.

        Raises what it raised, and `TimeoutError`.
        """
        errors: list[BaseException] = []

        def work() -> None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - raised again below
                errors.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        deadline = time.monotonic() + self._timeout
        while thread.is_alive():
            thread.join(_LOOK)
            if store is not None and store.dead.is_set():
                return False
            if time.monotonic() > deadline and thread.is_alive():
                msg = f"{name} has not returned"
                raise TimeoutError(msg)
        if store is not None and store.dead.is_set():
            return False
        if errors:
            raise errors[0]
        return True

    def _finish(self, manager: InlineManager, handle: ProcedureHandle, store: CrashingStore | None) -> bool:
        """Wait for the end; whether the host outlived it. Raises `TimeoutError`."""
        deadline = time.monotonic() + self._timeout
        while not handle.wait(_LOOK, wait_parked=True):
            if store is not None and store.dead.is_set():
                return False
            if time.monotonic() > deadline:
                raise TimeoutError(_unfinished_text(manager, handle))
            manager.skip()
        return store is None or not store.dead.is_set()


def _check_functions(**functions: Any) -> None:
    for name, given in functions.items():
        if given is not None and not callable(given):
            msg = f"{name}= is a function or None, not {given!r:.60}"
            raise TypeError(msg)


def _checked_procedure(given: Any) -> Procedure | Callable[[], Procedure]:
    if isinstance(given, Procedure) or (callable(given) and not _lacks_arguments(given)):
        return given  # type: ignore[no-any-return]
    name = getattr(given, "__name__", None) or f"{given!r:.60}"
    such = f"an object such as {name}(…)" if callable(given) else f"a procedure, and not {name}"
    msg = f"survives_crashes takes {such}, or a function that makes one"
    raise (UsageError if callable(given) else TypeError)(msg)


def _lacks_arguments(given: Any) -> bool:
    """A class with fields, or a `procedure` function, stands where an object of it was meant."""
    return isinstance(given, ProcedureFunction) or (isinstance(given, type) and bool(declared_fields(given)))


def _unfinished_text(manager: InlineManager, handle: ProcedureHandle) -> str:
    """Wait of the procedure, and the members below it that cannot go on."""
    info = handle.info()
    parked = [
        f"{member.id} is parked: {member.reason}; does procedures= name its class?"
        for member in manager.list(root=handle.id, phase=Phase.PARKED)
    ]
    return "; ".join([f"it is {info.phase}, {info.reason}", *parked])


def _end_of(handle: ProcedureHandle) -> str:
    try:
        return f"SUCCESS with {handle.result(1.0)!r}"
    except ProcedureFailed as failure:
        return f"{failure.state} with {type(failure.cause).__name__}: {failure.cause}"
