"""Callers of an episode of several processes: each goes on until its procedure is there and has what it waits for."""

from __future__ import annotations

import threading
import time

from actorproc.api.client import ProcedureClient
from actorproc.errors import (
    ActorprocError,
    EngineError,
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
from actorproc.testing.torture.plan import Root
from actorproc.testing.torture.record import EpisodeJournal

__all__ = ["ClusterCaller"]

_PASSING = (StorageUnavailable, ManagerBusy, ManagerStopped, OutcomeUnknown)
"""Errors of a leader, or a database, that is away: what was asked may have been done."""
_PAUSE = 0.05


class ClusterCaller:
    """One thread of a program: submits a root, signals and aborts it, and waits for its end.

    Args:
        client: The client that all callers share.
        journal: The journal of the episode.
        root: The procedure that it submits, with its signals and its abort.
        procedure: The procedure of that root.
        over: Set when the episode is to end.
    """

    def __init__(
        self,
        client: ProcedureClient,
        journal: EpisodeJournal,
        root: Root,
        procedure: Procedure,
        over: threading.Event,
    ) -> None:
        self.client = client
        self.journal = journal
        self.root = root
        self.procedure = procedure
        self.is_done = False
        """It needs nothing more."""
        self._over = over
        self._up = time.monotonic()

    def serve(self) -> None:
        """Do everything. Ends early when the episode is over."""
        root = self.root
        try:
            if not self._over.wait(root.after) and self._submit():
                errands = [(after, "signal", event) for event, after in root.signals]
                if root.abort_after is not None:
                    errands.append((root.abort_after, "abort", root.id))
                for after, what, name in sorted(errands):
                    self._over.wait(max(0.0, self._up + root.after + after - time.monotonic()))
                    self._request(what, name)
                self._see_the_end()
        except ActorprocError as error:
            self.journal.note("stalled", procedure=root.id, text=f"its caller is told {in_words(error)}")
        self.is_done = not self._over.is_set()

    def _submit(self) -> bool:
        root, journal = self.root, self.journal
        while not self._over.is_set():
            journal.submitted(root.id)
            try:
                deadline = None if root.deadline is None else time.time() + root.deadline
                self.client.submit(self.procedure, id=root.id, deadline=deadline)
            except _PASSING:
                journal.note("unknown", procedure=root.id)
                self._over.wait(_PAUSE)
            except KeyPoisoned:
                journal.note("refused", procedure=root.id)
                return False
            except (UsageError, TypeError, ValueError) as error:
                journal.note("stalled", procedure=root.id, text=f"could not be submitted: {in_words(error)}")
                return False
            else:
                journal.acknowledged(root.id)
                return True
        return False

    def _request(self, what: str, name: str) -> None:
        while not self._over.is_set():
            try:
                if what == "signal":
                    self.client.publish(name, dedup=name)
                else:
                    self.client.abort(name)
            except UnknownProcedure:
                return
            except _PASSING:
                self._over.wait(_PAUSE)
            else:
                self.journal.note("asked", procedure=f"{what} {name}")
                return

    def _see_the_end(self) -> None:
        root, journal = self.root, self.journal
        while not self._over.is_set():
            try:
                handle = self.client.get(root.id)
                try:
                    journal.note("output", procedure=root.id, text=repr(handle.result(1.0)))
                except ProcedureFailed as failure:
                    journal.note("output", procedure=root.id, text="", mode=str(failure.cause)[:200])
                journal.resolved(root.id, handle.info().state.value)
            except TimeoutError:
                continue
            except _PASSING:
                self._over.wait(_PAUSE)
            except UnknownProcedure:
                journal.note("stalled", procedure=root.id, text="was acknowledged, and is not known")
                return
            except EngineError as error:
                journal.note("told", procedure=root.id, text=in_words(error))
                self._over.wait(_PAUSE)
            else:
                return
