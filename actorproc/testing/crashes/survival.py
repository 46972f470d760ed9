"""`survives_crashes`: tries every crash on the way of a procedure, and compares the ends.

It runs a procedure undisturbed, and then again and again, each time with one disturbance:

- the host dies before a record of the step log is stored, and right after, once for each record. The same goes for
  each value that `ctx.remember` stores in the middle of a step;
- a worker dies when a step, or an undo, is complete and its answer was not heard, so that the step runs twice; once
  for each;
- a worker dies at a named crash point: once for each passage.

Each run must end as the undisturbed one did, with the same output or error, and must leave the world as that did. That
an undisturbed run always does is tried first: else the world was not put back, and nothing can be concluded. The engine
promises at-least-once execution of a step. That twice is as good as once is up to the step, with `ctx.idempotency_key`,
`ctx.remember`, or by saying what is wanted and not what to change. Steps that do not are named.

HBase's tests of ProcedureV2 kill before and after each store update in this way.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import msgspec

from actorproc.api.handle import ProcedureHandle
from actorproc.errors import UsageError
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.values.error_text import in_words
from actorproc.testing.crashes.scenario_runner import Bench, Played
from actorproc.testing.inline import InlineManager, Place
from actorproc.testing.points import armed, told_astray, watched

__all__ = ["DidNotSurvive", "Difference", "SurvivalReport", "survives_crashes"]

_REMEDY = (
    "a step runs again when its answer was not stored: let the other side recognise ctx.idempotency_key, keep what "
    "must be made once with ctx.remember, or say what is wanted (stock is 8) and not what to change (2 less)"
)
_ROOM, _BEFORE = 300, 60
"""Characters of a difference that are shown, and how many of them stand before it."""


class Difference(msgspec.Struct, frozen=True):
    """One run that did not end as the undisturbed one."""

    disturbance: str
    """Disturbance of the run."""
    step: str
    """The step that ran twice, or was cut in its middle; "" for the death of a host between two steps."""
    words: str
    """Difference, in words."""

    def __str__(self) -> str:
        return f"{self.disturbance}: {self.words}"


class SurvivalReport(msgspec.Struct):
    """Runs that were tried, and their results."""

    outcome: str = ""
    """End of the undisturbed run."""
    steps: list[str] = msgspec.field(default_factory=list)
    """The steps and undos of the undisturbed run, in order."""
    observed: bool = False
    """True if the remains were compared too, and not only how the procedure ended."""
    host_crashes: int = 0
    repeated: int = 0
    """Steps and undos that were run twice."""
    points: int = 0
    """Crashes at named points."""
    not_tried: list[str] = msgspec.field(default_factory=list)
    """Cases left out, in words: points that were passed where nothing can die, and a world that is not told."""
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
        lines += self.not_tried
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
    environment: Callable[[], Any] | None = None,
    check: bool = True,
    timeout: float | timedelta = 20.0,
) -> SurvivalReport:
    """Run a procedure with every crash there is, one at a time, and compare the ends.

    Runs without processes (`InlineManager`), with one worker; time in which nothing happens is skipped. Errors of
    ``reset``, ``observe`` and ``drive`` are passed on, with a note of the run.

    Args:
        procedure: An object, or a function that makes one for each run.
        observe: Returns the state of the world after a run: rows of a database, names of files, balances. Anything that
            compares with ``==``. Default: None, only the ends are compared.
        reset: Puts the world back to how it was before each run. Default: None.
        procedures: Further classes (children). Default: none.
        drive: Does what the procedure needs from outside, such as ``manager.signal(…)``, called as ``drive(manager,
            handle)``. It is called again in each life of the host, and must bear that. Default: None.
        environment: Makes ``ctx.env``, as that of a `ProcedureManager` does. Default: None.
        check: Raise when an end differs; else only report it. Default: True.
        timeout: Seconds, or a timedelta, for each run. Default: 20.

    Returns:
        Runs that were tried, and their results.

    Raises:
        DidNotSurvive: A crash changed how the procedure ended, or what it left behind.
        UsageError: The undisturbed run does not end, or two of them end differently: then ``reset`` is missing or does
            not put all back. Or a result of ``observe`` cannot be copied or compared.
        TypeError: An argument is of the wrong kind.
        ValueError: ``timeout`` makes no sense.
    """
    __tracebackhide__ = True  # pytest shows the test, and what was found
    bench = Bench(
        procedure,
        observe=observe,
        reset=reset,
        procedures=procedures,
        drive=drive,
        environment=environment,
        timeout=timeout,
    )
    with _quiet():
        return _try_all(bench, check=check)


def _try_all(bench: Bench, *, check: bool) -> SurvivalReport:
    __tracebackhide__ = True
    report = SurvivalReport()
    with watched() as seen:
        first = bench.run()
    if not first.ended:
        msg = (
            f"the undisturbed run {first.end}. So crashes prove nothing; give drive= to do what must come from "
            "outside, or timeout= for more time"
        )
        raise UsageError(msg)
    report.outcome, report.steps = first.end[:_ROOM], [first.names[step] for step in first.ran]
    report.observed = first.world is not None
    report.not_tried = [f"{name!r} was not tried.{told_astray(times)}" for name, times in seen.astray.items()]
    if not report.observed:
        remedy = "observe gave None; return what is to be compared" if bench.observes else "give observe="
        report.not_tried.append(f"only ends were compared: {remedy} to compare what was left behind")
    _check_same(bench, first)
    _kill_hosts(bench, report, first)
    _repeat_steps(bench, report, first)
    for point, times in seen.by_workers.items():
        _crash_at(bench, report, first, point, times)
    if report.differences and check:
        raise DidNotSurvive(report)
    return report


def _kill_hosts(bench: Bench, report: SurvivalReport, first: Played) -> None:
    for at, step in first.stored.items():
        for after in (False, True):
            name = "" if step is None else first.names.get(step, "")
            told = f"the host died {'after' if after else 'before'} {_shown(at, name)}"
            with _noted(told):
                found = bench.run(at=at, after=after)
            report.host_crashes += found.lives > 1
            is_within = len(at) > 2  # a step that remembers is cut in its middle
            _compare(report, first, found, told, name if is_within else "")


def _shown(at: Place, step: str) -> str:
    """A place at which a host dies, in words."""
    if len(at) > 2:
        return f"{step} had remembered {at[2]!r}"
    return f"{at[0]}/{at[1]:06} was stored ({f'what {step} had done' if step else 'the submit'})"


def _repeat_steps(bench: Bench, report: SurvivalReport, first: Played) -> None:
    for step in first.ran:
        name = first.names[step]
        with _noted(f"{name} ran twice"):
            found = bench.run(repeat=step)
        report.repeated += found.was_repeated
        _compare(report, first, found, f"{name} ran twice", name)


def _crash_at(bench: Bench, report: SurvivalReport, first: Played, point: str, times: int) -> None:
    for passage in range(1, times + 1):
        told = f"a worker died at {point!r} (passage {passage})"
        with _noted(told), armed(point, passage) as left:
            found = bench.run()
            report.points += left() < 1
        _compare(report, first, found, told, _crashed_in(first, found))


@contextlib.contextmanager
def _noted(told: str) -> Iterator[None]:
    """Note in errors of the test itself in which run they came."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"(in the run in which {told})")
        raise


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


def _check_same(bench: Bench, first: Played) -> None:
    __tracebackhide__ = True
    report = SurvivalReport()
    again = bench.run()
    _compare(report, first, again, "a second run", "")
    if not report.differences:
        return
    if _is_other(bench.look(), bench.look()):
        msg = (
            f"what observe gives is not equal to what it gives when asked again at once: {again.world!r:.{_ROOM}}. "
            "Keep times, chance and objects that compare by identity out of it"
        )
        raise UsageError(msg)
    msg = (
        f"two runs that nothing disturbed end differently, so crashes prove nothing: {report.differences[0]}. Give "
        "reset=, which puts the world back as it was before the first run; keep times and chance out of outputs and of "
        "observe"
    )
    raise UsageError(msg)


def _is_other(world: Any, wanted: Any) -> bool:
    try:
        return bool(world != wanted)
    except Exception as error:
        msg = f"what observe gives cannot be compared ({in_words(error)}); give plain data, such as lists and dicts"
        raise UsageError(msg) from error


def _crashed_in(first: Played, found: Played) -> str:
    """The step in which the worker died: it was begun once more than in the undisturbed run, if it was begun again."""
    again = [step for step in found.ran if found.times[step] > first.times[step]]
    if not again and not found.ended:
        again = found.ran[-1:]
    return found.names[again[0]] if again else ""


def _compare(report: SurvivalReport, first: Played, found: Played, disturbance: str, step: str) -> None:
    words = []
    if not found.ended:
        words.append(f"it {found.end}; undisturbed it ended as {first.end[:_ROOM]}")
    elif found.end != first.end:
        words.append(f"it ended as {_clipped(found.end, first.end)} instead of {_clipped(first.end, found.end)}")
    if _is_other(found.world, first.world):
        left, wanted = repr(found.world), repr(first.world)
        words.append(f"it left {_clipped(left, wanted)} instead of {_clipped(wanted, left)}")
    if words:
        report.differences.append(Difference(disturbance, step, " and ".join(words)))


def _clipped(text: str, other: str) -> str:
    """At most so much of a text that the place where it begins to be another one is seen."""
    same = next((at for at, pair in enumerate(zip(text, other, strict=False)) if pair[0] != pair[1]), _BEFORE)
    begin = 0 if same < _ROOM // 2 else same - _BEFORE
    return ("…" if begin else "") + text[begin : begin + _ROOM]
