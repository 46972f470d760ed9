"""One life of the host that is tortured: ``python -m actorproc.testing.torture.host FOLDER NUMBER``.

It is an ordinary program around a `ProcedureManager`: it submits, signals and aborts as the plan says, and in the
last life waits until everything has ended. All it says goes to the journal.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from actorproc.api.manager import ProcedureManager
from actorproc.config import Config
from actorproc.errors import (
    ActorprocError,
    KeyPoisoned,
    ManagerBusy,
    ManagerStopped,
    OutcomeUnknown,
    ProcedureFailed,
    StorageUnavailable,
    UnknownProcedure,
    UsageError,
)
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.values.error_text import in_words
from actorproc.report.info import ProcedureInfo
from actorproc.testing.torture.faults import Fault, FaultPhase, TortureFault
from actorproc.testing.torture.injection import (
    Executioner,
    JumpyClock,
    TorturedManager,
    TorturedStore,
    mark_acting,
    mark_log,
)
from actorproc.testing.torture.phase_probe import HostPeriod, PhaseProbe, ProbeMark
from actorproc.testing.torture.plan import Life, Plan, Root
from actorproc.testing.torture.procedures import CLASSES, made_of
from actorproc.testing.torture.record import EpisodeJournal
from actorproc.testing.torture.seeded_bugs import SEEDED_BUGS, VARIABLE
from actorproc.testing.torture.user_module import own_procedures

__all__ = ["Notary", "main", "settings", "watch_for_lag"]

_INTO_THE_STOP = 0.01
"""Seconds from the beginning of an orderly stop to the kill that interrupts it."""
_RELOADS_WITHIN = 20.0
"""Seconds a reload may take; then it is given up half-way."""
_KILLS_WITHIN = 1.0
"""Seconds for which a step is waited for whose attempt an operator ends."""
_LOOK = 0.05
"""Seconds between two looks at the clock, or at what has not ended."""
_PAUSE = 0.02
"""Seconds before a refused request is made again."""


def settings() -> Config:
    """Short pauses, and no worker slot that is given up: kills are what this is about."""
    return Config(
        commit_backoff=0.02, commit_backoff_cap=0.2, restart_limit=1_000_000, spares=2, control=False, log_bytes=0
    )


class Notary(logging.Handler):
    """Writes down that the engine gave up, as it does for a bug only: the next life would hide it."""

    def __init__(self, journal: EpisodeJournal) -> None:
        super().__init__(logging.CRITICAL)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        """Called with what is logged as critical."""
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage() if error is None else f"{record.getMessage()}: {in_words(error)}"
        self._journal.note("stalled", text=f"the engine failed: {text}")


class _Caller:
    """One thread of the program: submits a root, then signals and aborts it."""

    def __init__(self, manager: ProcedureManager, journal: EpisodeJournal, clock: JumpyClock) -> None:
        self.manager = manager
        self.journal = journal
        self.clock = clock
        self.up = time.monotonic()

    def serve(self, root: Root, procedure: Procedure, known: set[str]) -> None:
        """Everything the plan wants of one root. Ends with the manager."""
        try:
            self._wait(root.after)
            if f"given-up {root.id}" in known:
                return
            # One that may be there already is insisted on: it needs its signals.
            insists = root.insists or f"tried {root.id}" in known
            if root.id not in known and not self.submit(root, procedure, insists=insists):
                return
            if root.restarts:
                self._restart(root, procedure)
                return
            errands = [(after, "signal", event) for event, after in root.signals]
            if root.abort_after is not None:
                errands.append((root.abort_after, "force" if root.force else "abort", root.id))
            for after, what, name in sorted(errands):
                self._wait(after)
                if f"{what} {name}" not in known:
                    self._request(what, name)
        except ManagerStopped:
            return

    def submit(self, root: Root, procedure: Procedure, *, insists: bool) -> bool:
        """Submit until it is acknowledged, or refused to a caller who does not insist."""
        while True:
            self.journal.submitted(root.id)
            try:
                deadline = None if root.deadline is None else self.clock.wall() + root.deadline
                self.manager.submit(procedure, id=root.id, deadline=deadline)
            except (StorageUnavailable, ManagerBusy):
                self.journal.note("refused", procedure=root.id)
                if not insists:
                    self.journal.note("asked", procedure=f"given-up {root.id}")
                    return False
                time.sleep(_PAUSE)
            except OutcomeUnknown:
                self.journal.note("unknown", procedure=root.id)
                return False
            except KeyPoisoned:
                self.journal.note("refused", procedure=root.id)
                return False
            except ManagerStopped:
                raise
            except (UsageError, TypeError, ValueError) as error:
                self.journal.note("stalled", procedure=root.id, text=f"could not be submitted: {in_words(error)}")
                return False
            else:
                self.journal.acknowledged(root.id)
                return True

    def _restart(self, root: Root, procedure: Procedure) -> None:
        """Submit a root again each time it has ended, as often as planned; a later life goes on with it."""
        while (generation := self._ended_generation(root.id)) <= root.restarts:
            if generation:
                self.journal.note("restarting", procedure=root.id)
                try:
                    self.manager.submit(procedure, id=root.id, on_existing="restart")
                except OutcomeUnknown:
                    pass
                except ManagerStopped:
                    raise
                except (StorageUnavailable, UsageError):
                    self.journal.note("restart-refused", procedure=root.id)
                else:
                    self.journal.note("restarted", procedure=root.id)
                    continue
            time.sleep(_PAUSE)

    def _ended_generation(self, id: str) -> int:
        """Wait for the end of a root, and give the number of its generation; 0 when that cannot be said now."""
        try:
            # An end that no caller waits for is kept elsewhere than one that is waited for.
            while (info := self.manager.info(id)).generation % 2 and info.finished_at is None:
                time.sleep(_PAUSE)
            output = self.manager.get(id).result()
            generation = self.manager.info(id).generation
        except (StorageUnavailable, OutcomeUnknown, UnknownProcedure):
            return 0
        self.journal.note("generation-ended", procedure=id, step=generation, text=repr(output))
        return generation

    def _request(self, what: str, name: str) -> None:
        while True:
            try:
                if what == "signal":
                    self.manager.publish(name, dedup=name)
                elif self.manager.abort(name, force=what == "force") and what == "force":
                    self.journal.note("forced", procedure=name)
            except UnknownProcedure:
                return
            except (StorageUnavailable, OutcomeUnknown):
                time.sleep(_PAUSE)
            else:
                self.journal.note("asked", procedure=f"{what} {name}")
                return

    def _wait(self, after: float) -> None:
        time.sleep(max(0.0, self.up + after - time.monotonic()))


def main(folder: Path, number: int) -> int:
    """Live; the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    plan = msgspec.json.decode((folder / "plan.json").read_bytes(), type=Plan)
    if plan.bug:
        os.environ[VARIABLE] = plan.bug
        SEEDED_BUGS[plan.bug].in_host()
    threading.Thread(target=_end_with_the_runner, daemon=True).start()
    life = plan.lives[number]
    journal = EpisodeJournal(folder / "journal")
    logging.getLogger().addHandler(Notary(journal))
    probe = PhaseProbe(folder / f"probe-{number}")
    mark_acting(probe)
    executioner = Executioner(life, journal, probe)
    mark_log(executioner)
    clock = JumpyClock(life, journal)
    manager = TorturedManager(
        str(folder / "state"),
        executioner=executioner,
        procedures=CLASSES.values() if not plan.module else (),
        workers=plan.workers,
        store=TorturedStore(str(folder / "state"), life, executioner, durability=plan.durability),
        config=settings(),
        clock=clock,
        preload=["actorproc.testing.torture.procedures"],
    )
    roots = _roots(plan, folder, manager)
    manager.start()
    probe.set(ProbeMark.PERIOD, HostPeriod.RUNNING)
    threading.Thread(target=watch_for_lag, args=(journal,), daemon=True).start()
    clock.up()
    for fault in life.faults:
        if fault.kind is TortureFault.RELOAD:
            threading.Thread(target=_reload, args=(manager, journal, fault.after), daemon=True).start()
    if kills := [fault for fault in life.faults if fault.kind is TortureFault.OPERATOR_KILL]:
        threading.Thread(target=_kill_attempts, args=(manager, journal, kills), daemon=True).start()
    _live(
        manager, journal, clock, plan, life, roots, is_stopping=life.ends == "stopped" or executioner.is_due("stopping")
    )
    probe.set(ProbeMark.PERIOD, HostPeriod.STOPPING)
    if executioner.is_due("stopping"):
        threading.Timer(_INTO_THE_STOP, executioner.passing, ["stopping"]).start()
    manager.stop(timeout=min(20.0, plan.patience))
    return 0


def _end_with_the_runner() -> None:
    """End when the episode runner has ended: there is no judge any more. Its end closes our standard input."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def _reload(manager: ProcedureManager, journal: EpisodeJournal, after: float) -> None:
    """Replace the workers one by one `after` this many seconds. Other faults, and a stop, may cut it short."""
    time.sleep(after)
    journal.struck(TortureFault.RELOAD, FaultPhase.WAITING)
    with contextlib.suppress(ActorprocError, TimeoutError):
        manager.reload(timeout=_RELOADS_WITHIN)


def _kill_attempts(manager: ProcedureManager, journal: EpisodeJournal, faults: list[Fault]) -> None:
    """End attempts as an operator does, at the planned moments, each in a worker that has a step then."""
    up = time.monotonic()
    for fault in sorted(faults, key=lambda fault: fault.after):
        time.sleep(max(0.0, up + fault.after - time.monotonic()))
        with contextlib.suppress(ActorprocError, TimeoutError):
            _kill_attempt(manager, journal, fault.draw)


def _kill_attempt(manager: ProcedureManager, journal: EpisodeJournal, draw: float) -> None:
    until = time.monotonic() + _KILLS_WITHIN
    while time.monotonic() < until:
        busy = [info.procedure for info in manager.workers() if info.procedure is not None]
        name = busy[int(draw * len(busy))] if busy else None
        if name is None or not manager.kill(name, reason="torture"):
            time.sleep(_PAUSE)
            continue
        journal.struck(TortureFault.OPERATOR_KILL, FaultPhase.EXECUTING, procedure=name)
        killed = [row.detail for row in manager.audit(name) if row.verb == "kill"]
        journal.note("operator-killed", procedure=name, text=killed[-1] if killed else "")
        return


def watch_for_lag(journal: EpisodeJournal) -> None:
    """Write down when this process got no processor in time: others could not have acted either."""
    before = time.monotonic()
    while True:
        time.sleep(_LOOK)
        now = time.monotonic()
        if now - before > 2 * _LOOK:
            journal.note("lag", text=f"{now - before - _LOOK:.3f}")
        before = now


def _live(
    manager: ProcedureManager,
    journal: EpisodeJournal,
    clock: JumpyClock,
    plan: Plan,
    life: Life,
    roots: list[tuple[Root, Procedure]],
    *,
    is_stopping: bool,
) -> None:
    known = _known(journal)
    caller = _Caller(manager, journal, clock)
    threads = [
        threading.Thread(target=caller.serve, args=(root, procedure, known), daemon=True) for root, procedure in roots
    ]
    for thread in threads:
        thread.start()
    if life.ends != "quiet":
        time.sleep(life.seconds if is_stopping else plan.patience)
        return
    deadline = time.monotonic() + plan.patience
    for thread in threads:
        thread.join(max(0.1, deadline - time.monotonic()))
    for root in sorted(_known(journal)):
        if " " not in root:
            _see_the_end(manager, journal, root, deadline)
    while (left := _unfinished(manager)) and time.monotonic() < deadline:
        time.sleep(_LOOK)  # children that outlive their root may still be undone
    for info in left:
        journal.note("stalled", procedure=info.id, text=f"{info.phase}: {info.reason}")


def _unfinished(manager: ProcedureManager) -> list[ProcedureInfo]:
    return [info for info in manager.list() if info.finished_at is None]


def _see_the_end(manager: ProcedureManager, journal: EpisodeJournal, id: str, deadline: float) -> None:
    try:
        handle = manager.get(id)
    except UnknownProcedure:
        return  # the oracle says what that means
    try:
        output: Any = handle.result(max(1.0, deadline - time.monotonic()))
        journal.note("output", procedure=id, text=repr(output))
    except ProcedureFailed as failure:
        journal.note("output", procedure=id, text="", mode=str(failure.cause)[:200])
    except TimeoutError:
        return
    journal.resolved(id, handle.info().state.value)


def _known(journal: EpisodeJournal) -> set[str]:
    """Acknowledged roots, and what else was done in any life so far: "tried ID", "signal NAME", "abort ID" …"""
    lines = journal.lines()
    tried = {f"tried {line.procedure}" for line in lines if line.kind == "submitted"}
    return tried | {line.procedure for line in lines if line.kind in {"acknowledged", "asked"}}


def _roots(plan: Plan, folder: Path, manager: ProcedureManager) -> list[tuple[Root, Procedure]]:
    if not plan.module:
        return [(root, made_of(root.spec, str(folder))) for root in plan.roots]
    roots = []
    for id, procedure in own_procedures(plan.module, str(folder), plan.seed):
        manager.register(type(procedure))
        roots.append((Root(id=id, spec={}, ends=()), procedure))
    return roots


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
    except ActorprocError as error:
        sys.exit(f"{type(error).__name__}: {error}")
