"""Does a procedure end the same way whatever crashes on its way? Every crash is tried.

`survives_crashes` runs a procedure undisturbed, and then again and again, each time with one disturbance:

- the host dies before a record of the step log is stored, and right after: once for each record;
- a worker dies when a step, or an undo, is complete and its answer was not heard: the step runs twice; once for each;
- a worker dies at a named crash point: once for each passage.

Each run must end as the undisturbed one did, with the same output or error, and must leave the world as that did. That
an undisturbed run always does is tried first: else the world was not put back, and nothing can be concluded. The
engine promises at-least-once execution of a step; that twice is as good as once is what a step has to see to, with
`ctx.idempotency_key`, `ctx.remember`, or by saying what is wanted and not what to change. Steps that do not are named.

HBase's tests of ProcedureV2 kill before and after each store update in this way.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from actorproc.errors import ProcedureFailed, UnknownProcedure, UsageError
from actorproc.handle import ProcedureHandle
from actorproc.procedure.fields import declared_fields
from actorproc.procedure.procedure import Procedure
from actorproc.testing.inline import CrashingStore, InlineManager, VirtualClock
from actorproc.testing.points import armed, watched
from actorproc.testing.step_names import Step, name_of, step_of
from actorproc.workers.frames import Ended, Run

__all__ = ["DidNotSurvive", "Difference", "SurvivalReport", "survives_crashes"]

ID = "procedure"
"""Id of the procedure under test; its children's ids follow from it."""

_REMEDY = (
    "a step runs again when its answer was not stored: let the other side recognise ctx.idempotency_key, keep what "
    "must be made once with ctx.remember, or say what is wanted (stock is 8) and not what to change (2 less)"
)
_LOOK = 0.003
"""Seconds between looks at a run."""
_ROOM, _BEFORE = 300, 60
"""Characters of a difference that are shown, and how many of them stand before it."""


class Difference(msgspec.Struct, frozen=True):
    """One run that did not end as the undisturbed one."""

    disturbance: str
    """What was done to it."""
    step: str
    """The step that ran twice, or "" for the death of a host."""
    words: str
    """What is different."""

    def __str__(self) -> str:
        return f"{self.disturbance}: {self.words}"


class SurvivalReport(msgspec.Struct):
    """What was tried and what came of it."""

    outcome: str = ""
    """How the undisturbed run ended."""
    steps: list[str] = msgspec.field(default_factory=list)
    """The steps and undos of the undisturbed run, in order."""
    observed: bool = False
    """Whether what was left behind was compared too, and not only how the procedure ended."""
    host_crashes: int = 0
    repeated: int = 0
    """Steps and undos that were run twice."""
    points: int = 0
    """Crashes at named points."""
    differences: list[Difference] = msgspec.field(default_factory=list)

    @property
    def not_idempotent(self) -> list[str]:
        """The steps that gave another end when they ran twice."""
        return list(dict.fromkeys(found.step for found in self.differences if found.step))

    def __str__(self) -> str:
        tried = (
            f"{self.host_crashes} deaths of the host, {self.repeated} steps run twice, {self.points} crash points; "
            f"{len(self.differences)} gave another end than {self.outcome}"
        )
        lines = [f"not idempotent: {step}" for step in self.not_idempotent]
        lines += [f"  {found}" for found in self.differences]
        if self.not_idempotent:
            lines.append(_REMEDY)
        if not self.observed:
            lines.append("only ends were compared: give observe= to compare what was left behind")
        return "\n".join([tried, *lines])


class DidNotSurvive(AssertionError):
    """A crash changed how the procedure ended, or what it left behind. ``report`` has all that was found."""

    def __init__(self, report: SurvivalReport) -> None:
        super().__init__(str(report))
        self.report = report


def survives_crashes(
    procedure: Procedure | Callable[[], Procedure],
    *,
    observe: Callable[[], Any] | None = None,
    reset: Callable[[], object] | None = None,
    procedures: Iterable[Any] = (),
    drive: Callable[[InlineManager, ProcedureHandle], object] | None = None,
    check: bool = True,
    timeout: float = 20.0,
) -> SurvivalReport:
    """Run `procedure` with every crash there is, one at a time, and compare the ends.

    `procedure` is an object, or a function that makes one for each run. `reset` puts the world back to how it was
    before each run, and `observe` says how it is after it: rows of a database, names of files, balances; anything that
    compares with ``==``. `procedures` are further classes (children). `drive` does what the procedure needs from
    outside, such as ``manager.signal(…)``; it is called again in each life of the host, and must bear that.

    Raises `UsageError` when two undisturbed runs end differently: then `reset` is missing or does not put all back.

    Runs without processes (`InlineManager`), with one worker; time in which nothing happens is skipped. Raises
    `DidNotSurvive` unless `check` is false; `timeout` bounds each run, in seconds.
    """
    __tracebackhide__ = True  # pytest shows the test, and what was found
    bench = _Bench(procedure, observe, reset, tuple(procedures), drive, timeout)
    with _quiet():
        return _try_all(bench, check=check)


def _try_all(bench: _Bench, *, check: bool) -> SurvivalReport:
    __tracebackhide__ = True
    report = SurvivalReport(observed=bench.observes)
    with watched() as passed:
        first = bench.run()
    report.outcome, report.steps = first.end[:_ROOM], [first.names[step] for step in first.ran]
    _check_same(first, bench.run())
    for at, step in first.stored.items():
        for after in (False, True):
            found = bench.run(at=at, after=after)
            report.host_crashes += found.lives > 1
            when = f"{'after' if after else 'before'} {at[0]}/{at[1]:06} was stored"
            done = f" (what {first.names[step]} had done)" if step in first.names else " (the submit)"
            _compare(report, first, found, f"the host died {when}{done}", "")
    for step in first.ran:
        name = first.names[step]
        found = bench.run(repeat=step)
        report.repeated += found.was_repeated
        _compare(report, first, found, f"{name} ran twice", name)
    for point, times in passed.items():
        for passage in range(1, times + 1):
            with armed(point, passage) as left:
                found = bench.run()
                report.points += left() < 1
            name = _crashed_in(first, found)
            _compare(report, first, found, f"a worker died at {point!r} (passage {passage})", name)
    if report.differences and check:
        raise DidNotSurvive(report)
    return report


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hosts that die on purpose are no news."""
    logger = logging.getLogger("actorproc")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Played(msgspec.Struct):
    """One run."""

    end: str = ""
    world: Any = None
    stored: dict[tuple[str, int], Step | None] = msgspec.field(default_factory=dict)
    """Each record in order, and the step that ended with it."""
    last: dict[str, Step] = msgspec.field(default_factory=dict)
    """Of each procedure the step that ran last."""
    ran: list[Step] = msgspec.field(default_factory=list)
    """Each step once, in order of first execution."""
    times: Counter[Step] = msgspec.field(default_factory=Counter)
    """How often each was begun."""
    names: dict[Step, str] = msgspec.field(default_factory=dict)
    was_repeated: bool = False
    lives: int = 1


class _Bench:
    """Runs the procedure under test."""

    def __init__(
        self,
        procedure: Procedure | Callable[[], Procedure],
        observe: Callable[[], Any] | None,
        reset: Callable[[], object] | None,
        procedures: tuple[Any, ...],
        drive: Callable[[InlineManager, ProcedureHandle], object] | None,
        timeout: float,
    ) -> None:
        self._procedure = procedure
        self._observe = observe
        self._reset = reset
        self._procedures = procedures
        self._drive = drive
        self._timeout = timeout

    @property
    def observes(self) -> bool:
        """Somebody says how the world is after a run."""
        return self._observe is not None

    def _make(self) -> Procedure:
        given = self._procedure
        if isinstance(given, type) and declared_fields(given):
            msg = f"survives_crashes takes an object such as {given.__name__}(…), or a function that makes one"
            raise UsageError(msg)
        return copy.deepcopy(given) if isinstance(given, Procedure) else given()

    def run(self, *, at: tuple[str, int] | None = None, after: bool = False, repeat: Step | None = None) -> _Played:
        """From the beginning to the end, with at most one disturbance."""
        if self._reset is not None:
            self._reset()
        played = _Played()
        store = CrashingStore()
        store.at, store.after = at, after
        store.on_record = lambda record: played.stored.setdefault(record, played.last.get(record[0]))
        clock = VirtualClock()
        with self._life(store, clock, played, repeat) as manager:
            self._live(manager, store, played)
        if store.dead.is_set():
            played.lives = 2
            with self._life(store.next_life(), clock, played, None) as manager:
                self._live(manager, None, played)
        played.world = copy.deepcopy(self._observe()) if self._observe is not None else None
        return played

    @contextlib.contextmanager
    def _life(
        self, store: CrashingStore, clock: VirtualClock, played: _Played, repeat: Step | None
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

        made = self._make()
        kinds = (type(made), *self._procedures)
        manager = InlineManager(kinds, store=store, clock=clock, on_run=note, loses=loses)
        manager.start()
        try:
            yield manager
        finally:
            # What runs goes on to its end, as the last step of a host that dies may do; then the thread is gone.
            manager.stop(drain=False, timeout=self._timeout)

    def _live(self, manager: InlineManager, store: CrashingStore | None, played: _Played) -> None:
        """One life of the host: submit, or find what was submitted, and wait for the end or for the death."""
        try:
            handle = manager.get(ID)
        except UnknownProcedure:
            submitted = self._submit(manager, store)
            if submitted is None:
                return
            handle = submitted
        if self._drive is not None:
            drive = self._drive
            # What it asks for is not answered by a host that died.
            self._beside(lambda: drive(manager, handle), store)
        try:
            self._finish(manager, handle, store)
        except TimeoutError as error:
            played.end = f"did not end: {error}"
            return
        if store is None or not store.dead.is_set():
            played.end = _end_of(handle)

    def _submit(self, manager: InlineManager, store: CrashingStore | None) -> ProcedureHandle | None:
        """As a caller does who is not told whether it worked: None when the host died."""
        handles: list[ProcedureHandle] = []

        self._beside(lambda: handles.append(manager.submit(self._make(), ID)), store)
        return handles[0] if handles else None

    def _beside(self, call: Callable[[], object], store: CrashingStore | None) -> None:
        """Do this on a thread, and wait for it only as long as the host lives; raises what it raised."""
        errors: list[BaseException] = []

        def work() -> None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - raised again below
                errors.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        deadline = time.monotonic() + self._timeout
        while thread.is_alive() and time.monotonic() < deadline:
            thread.join(_LOOK)
            if store is not None and store.dead.is_set():
                return
        if errors and not (store is not None and store.dead.is_set()):
            raise errors[0]

    def _finish(self, manager: InlineManager, handle: ProcedureHandle, store: CrashingStore | None) -> None:
        deadline = time.monotonic() + self._timeout
        while not handle.wait(_LOOK):
            if store is not None and store.dead.is_set():
                return
            if time.monotonic() > deadline:
                info = handle.info()
                msg = f"after {self._timeout} s it is {info.phase}, {info.reason}"
                raise TimeoutError(msg)
            manager.skip()


def _check_same(first: _Played, again: _Played) -> None:
    __tracebackhide__ = True
    report = SurvivalReport()
    _compare(report, first, again, "a second run", "")
    for found in report.differences:
        msg = (
            f"two runs that nothing disturbed end differently, so crashes prove nothing: {found}. Give reset=, which "
            "puts the world back as it was before the first run; keep times and chance out of outputs and of observe"
        )
        raise UsageError(msg)


def _crashed_in(first: _Played, found: _Played) -> str:
    """The step in which the worker died: it was begun once more than in the undisturbed run, if it was begun again."""
    again = [step for step in found.ran if found.times[step] > first.times[step]]
    if not again and found.end.startswith("did not"):
        again = found.ran[-1:]
    return found.names[again[0]] if again else ""


def _compare(report: SurvivalReport, first: _Played, found: _Played, disturbance: str, step: str) -> None:
    words = []
    if found.end != first.end:
        words.append(f"it ended as {_clipped(found.end, first.end)} instead of {_clipped(first.end, found.end)}")
    if found.world != first.world:
        left, wanted = repr(found.world), repr(first.world)
        words.append(f"it left {_clipped(left, wanted)} instead of {_clipped(wanted, left)}")
    if words:
        report.differences.append(Difference(disturbance, step, " and ".join(words)))


def _clipped(text: str, other: str) -> str:
    """At most so much of a text that the place where it begins to be another one is seen."""
    same = next((at for at, pair in enumerate(zip(text, other, strict=False)) if pair[0] != pair[1]), _BEFORE)
    begin = 0 if same < _ROOM // 2 else same - _BEFORE
    return ("…" if begin else "") + text[begin : begin + _ROOM]


def _end_of(handle: ProcedureHandle) -> str:
    try:
        return f"SUCCESS with {handle.result(1.0)!r}"
    except ProcedureFailed as failure:
        return f"{failure.state} with {type(failure.cause).__name__}: {failure.cause}"
