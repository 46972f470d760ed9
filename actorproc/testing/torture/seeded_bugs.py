"""Bugs to be seeded in a real engine, to prove that the torture finds such: for tests, one at a time.

A bug patches the engine inside the host that is tortured (`SeededBug.in_host`) or inside its workers
(`SeededBug.in_worker`), and nowhere else: a production process never loads this module. Those of the pure core are in
the tests of the simulation; these are of what lies around it: store, wire, threads and processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

__all__ = ["SEEDED_BUGS", "VARIABLE", "SeededBug"]

VARIABLE = "ACTORPROC_TORTURE_PLANT"
"""Names the bug to the workers of a host."""


def _nowhere() -> None:
    """Nothing to patch here."""


class SeededBug(msgspec.Struct, frozen=True):
    """One bug."""

    in_host: Callable[[], None] = _nowhere
    in_worker: Callable[[], None] = _nowhere


def _leaves_early(kind: str) -> Callable[[], None]:
    """Commands of this kind are carried out before the commit that records why."""

    def bug() -> None:
        from actorproc.engine.pipeline.batch import CommitBatch
        from actorproc.engine.pipeline.commit_pipeline import CommitPipeline

        honest = CommitPipeline.close

        def close(self: CommitPipeline) -> None:
            batch = self._open
            if self._committing is None and not self.trouble and batch.writes:
                early = CommitBatch()
                early.writes = batch.writes
                early.commands = [command for command in batch.commands if type(command).__name__ == kind]
                batch.commands = [command for command in batch.commands if type(command).__name__ != kind]
                self._act(early)
            honest(self)

        CommitPipeline.close = close  # type: ignore[method-assign]

    return bug


def _commits_are_dropped() -> None:
    from actorproc.store.lmdb.store import LmdbStore

    honest = LmdbStore.commit
    seen = [0]

    def commit(self: LmdbStore, writes: Sequence[Any], epoch: int, batch: int = 0) -> None:
        seen[0] += 1
        if seen[0] % 9:
            honest(self, writes, epoch, batch)

    LmdbStore.commit = commit  # type: ignore[method-assign]


def _a_failed_commit_counts() -> None:
    from actorproc.store.committer import Committer, coalesce

    def commit(self: Committer, writes: Sequence[Any], batch: int) -> None:
        with contextlib.suppress(Exception):
            self._store.commit(coalesce(writes), self.epoch, batch)
        self._tell(self._done, batch, None)

    Committer._commit = commit  # type: ignore[method-assign]


def _any_answer_counts() -> None:
    from actorproc.core.queues.worker_table import WorkerTable

    def current(self: WorkerTable, token: Any) -> Any:
        worker = self.in_hand.get(token.procedure)
        return None if worker is None else worker.queue[token.procedure]

    WorkerTable.current = current  # type: ignore[method-assign]


def _answers_are_mixed_up() -> None:
    from actorproc.engine.workers.worker_messages import WorkerMessageHandler
    from actorproc.model.messages.outcomes import Advanced
    from actorproc.workers.protocol.frames import Ended

    honest = WorkerMessageHandler.ended
    last: list[Ended] = []
    honest_ones = [0]

    def ended(self: WorkerMessageHandler, message: Ended) -> None:
        if type(message.outcome) is Advanced:
            told, honest_ones[0] = message, honest_ones[0] + 1
            is_from_another = bool(last) and last[0].token.procedure != message.token.procedure
            if is_from_another and honest_ones[0] > 2:
                told, honest_ones[0] = msgspec.structs.replace(message, outcome=last[0].outcome), 0
            last[:] = [message]
            message = told
        honest(self, message)

    WorkerMessageHandler.ended = ended  # type: ignore[method-assign]


def _ends_of_children_are_lost() -> None:
    from actorproc.engine.workers.worker_messages import WorkerMessageHandler
    from actorproc.model.messages.outcomes import Finished
    from actorproc.workers.protocol.frames import Ended

    honest = WorkerMessageHandler.ended

    def ended(self: WorkerMessageHandler, message: Ended) -> None:
        is_child = "-" in message.token.procedure.removeprefix("root-")
        if not (is_child and type(message.outcome) is Finished):
            honest(self, message)

    WorkerMessageHandler.ended = ended  # type: ignore[method-assign]


def _locks_are_not_read_back() -> None:
    from actorproc.store.lmdb.store import LmdbStore

    honest = LmdbStore.load

    def load(self: LmdbStore, *, whole: bool = True) -> Any:
        snapshot = honest(self, whole=whole)
        snapshot.locks.clear()
        return snapshot

    LmdbStore.load = load  # type: ignore[method-assign]


def _records_are_swapped() -> None:
    from actorproc.model.rows.records import StepKind
    from actorproc.model.rows.writes import PutStep
    from actorproc.store.lmdb.store import LmdbStore

    honest = LmdbStore.commit

    def commit(self: LmdbStore, writes: Sequence[Any], epoch: int, batch: int = 0) -> None:
        mixed = list(writes)
        places = [at for at, write in enumerate(mixed) if type(write) is PutStep and write.record.kind is StepKind.STEP]
        if len(places) > 1:
            one, other = (mixed[at].record for at in places[:2])
            mixed[places[0]] = PutStep(msgspec.structs.replace(one, state=other.state))
            mixed[places[1]] = PutStep(msgspec.structs.replace(other, state=one.state))
        honest(self, mixed, epoch, batch)

    LmdbStore.commit = commit  # type: ignore[method-assign]


def _refused_and_done() -> None:
    from actorproc.engine.manager_actor import ManagerActor
    from actorproc.errors import StorageUnavailable

    honest = ManagerActor._commit_failed

    def commit_failed(self: ManagerActor, message: Any) -> None:
        honest(self, message)
        for replies in self._pipeline.unanswered():
            for reply in replies:
                self._replies.fail(reply, StorageUnavailable("refused, it says"))

    ManagerActor._commit_failed = commit_failed  # type: ignore[method-assign]


def _successors_come_first() -> None:
    from actorproc.engine.workers.worker_messages import WorkerMessageHandler
    from actorproc.workers.base import WorkerBooted

    def booted(self: WorkerMessageHandler, message: WorkerBooted) -> None:
        self._pipeline.handle(self.joined(message))

    WorkerMessageHandler.booted = booted  # type: ignore[method-assign]


def _a_worker_remembers_failed_attempts() -> None:
    from actorproc.workers.child.runtime.actor import ProcedureActor

    honest = ProcedureActor._restore
    kept: dict[str, Any] = {}

    def restore(self: ProcedureActor, run: Any, runtime: Any) -> bool:
        is_ready = honest(self, run, runtime)
        if run.token.procedure in kept and run.token.attempt > 1:
            self._live = kept[run.token.procedure]
        kept[run.token.procedure] = self._live
        return is_ready

    ProcedureActor._restore = restore  # type: ignore[method-assign]


def _workers_outlive_their_host() -> None:
    from actorproc.workers.child.process_state.process_state import PRIVATE_FROM
    from actorproc.workers.child.runtime import channel_reader
    from actorproc.workers.child.runtime.channel import WorkerChannel

    honest = WorkerChannel._write

    def write(self: WorkerChannel, frame: bytes) -> None:
        with contextlib.suppress(OSError):
            honest(self, frame)

    WorkerChannel._write = write  # type: ignore[method-assign]
    vars(channel_reader)["die_with_group"] = threading.Event().wait
    for fd in range(PRIVATE_FROM, PRIVATE_FROM + 32):
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_ASYNC)


def _running_steps_are_not_told() -> None:
    from actorproc.engine.pipeline.command_executor import CommandExecutor

    CommandExecutor._ask_abort = lambda *_: None  # type: ignore[method-assign]


def _outstaying_steps_are_not_killed() -> None:
    from actorproc.core.results import due_times

    vars(due_times)["kill_outstaying"] = lambda *_: None


def _killed_attempts_are_crashes() -> None:
    from actorproc.core.queues.worker_table import InHand
    from actorproc.core.results import worker_loss
    from actorproc.core.scheduler.cancellation import KILLED
    from actorproc.core.state.engine_state import EngineState
    from actorproc.model.crash_report import CrashReport
    from actorproc.model.rows.records import ProcedureRecord

    honest = worker_loss._charge

    # Typed in full, so that mypy tells when the function changes that is replaced.
    def charge(state: EngineState, record: ProcedureRecord, item: InHand, report: CrashReport) -> None:
        if report.kind == KILLED:
            item.forced = None
            report = msgspec.structs.replace(report, kind="signal")
        honest(state, record, item, report)

    vars(worker_loss)["_charge"] = charge


def _ends_of_earlier_generations_are_told() -> None:
    from actorproc.engine.pipeline.commit_cache import CommitCache

    honest = CommitCache.note_end
    first: dict[str, Any] = {}

    def note_end(self: CommitCache, ending: Any) -> None:
        honest(self, ending)
        first.setdefault(ending.record.id, ending)

    CommitCache.note_end = note_end  # type: ignore[method-assign]

    def end(self: CommitCache, id: str) -> Any:
        del self
        return first.get(id)

    CommitCache.end = end  # type: ignore[method-assign]


def _asks_that_come_again_count_anew() -> None:
    from actorproc.core.lifecycle import signals
    from actorproc.core.state.signal_ids import is_repeated as honest

    def is_repeated(buffer: Any, target: str, dedup: str | None) -> bool:
        is_ask = dedup is not None and dedup.startswith("\0")
        return not is_ask and honest(buffer, target, dedup)

    vars(signals)["is_repeated"] = is_repeated


def _old_tags_stay_in_the_index() -> None:
    from actorproc.model.rows.records import ProcedureRecord
    from actorproc.store.rows import layout
    from actorproc.store.rows.keys import tag_key

    honest = layout._move_texts

    # Typed in full, so that mypy tells when the function changes that is replaced.
    def move_texts(
        key_of: Callable[[str], bytes],
        old: tuple[str, ...],
        new: tuple[str, ...],
        record: ProcedureRecord,
        rows: list[layout.Row],
    ) -> None:
        honest(key_of, () if key_of is tag_key else old, new, record, rows)

    vars(layout)["_move_texts"] = move_texts


def _debounced_submits_do_not_wait_for_others() -> None:
    from actorproc.core.lifecycle import submit

    vars(submit)["is_debounced"] = lambda _record: False


SEEDED_BUGS: dict[str, SeededBug] = {
    "asks that come again count anew": SeededBug(in_host=_asks_that_come_again_count_anew),
    "old tags stay in the index of lists": SeededBug(in_host=_old_tags_stay_in_the_index),
    "each debounced submit begins a run": SeededBug(in_host=_debounced_submits_do_not_wait_for_others),
    "attempts that operators kill count as crashes": SeededBug(in_host=_killed_attempts_are_crashes),
    "the end of an earlier generation is told": SeededBug(in_host=_ends_of_earlier_generations_are_told),
    "running steps are not told of their undo": SeededBug(in_host=_running_steps_are_not_told),
    "steps that outstay their abort_grace are not killed": SeededBug(in_host=_outstaying_steps_are_not_killed),
    "submits are acknowledged before the commit": SeededBug(in_host=_leaves_early("Reply")),
    "steps are handed out before the commit": SeededBug(in_host=_leaves_early("RunStep")),
    "some commits are never written": SeededBug(in_host=_commits_are_dropped),
    "a failed commit counts as done": SeededBug(in_host=_a_failed_commit_counts),
    "stale answers count": SeededBug(in_host=_any_answer_counts),
    "answers are given to other steps": SeededBug(in_host=_answers_are_mixed_up),
    "the ends of children are lost": SeededBug(in_host=_ends_of_children_are_lost),
    "locks are forgotten at a restart": SeededBug(in_host=_locks_are_not_read_back),
    "records of one commit are swapped": SeededBug(in_host=_records_are_swapped),
    "a refused submit is done all the same": SeededBug(in_host=_refused_and_done),
    "a worker that comes while the disk is full is heard of before the death": SeededBug(
        in_host=_successors_come_first
    ),
    "a worker goes on with the memory of a failed attempt": SeededBug(in_worker=_a_worker_remembers_failed_attempts),
    "workers outlive their host": SeededBug(in_worker=_workers_outlive_their_host),
}
