"""Looking: what is stored, joined with what only the live engine knows; and what handles ask of a manager."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from typing import Any, overload

from actorproc.api.handle import ProcedureHandle
from actorproc.api.queries import Queries, StoredQueries
from actorproc.api.verbs.read import ReadVerbs
from actorproc.api.verbs.signal import SignalVerbs
from actorproc.api.watch import Watch
from actorproc.api.why_source import facts_of
from actorproc.core.state.phases import seen_in_store
from actorproc.engine.arguments import check_flag
from actorproc.engine.messages import Described, Ending, Patience
from actorproc.engine.runtime.subscription import SHORTEST_DIGEST, DigestSubscription, Subscription
from actorproc.errors import UsageError
from actorproc.model.ids import check_id
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL
from actorproc.report.changes import Change, ChangeDigest, Overflow
from actorproc.report.hosts import HostInfo
from actorproc.report.info import LockInfo
from actorproc.report.metrics import Metrics
from actorproc.report.why import EngineFacts
from actorproc.support.durations import in_seconds
from actorproc.workers.base import WorkerInfo
from actorproc.workers.protocol.log_entry import LogEntry

__all__ = ["InspectVerbs"]

_BUFFER = 10_000
"""Changes that may wait for a watcher, unless it says otherwise."""
_List = list
"""`list` hides the builtin inside the class."""


class InspectVerbs(SignalVerbs, ReadVerbs):
    """Views of present, past and coming events, for people and programs; and what handles need (`HandleSource`)."""

    def _asking(self) -> AbstractContextManager[StoredQueries]:
        return nullcontext(Queries(self._running()))

    def _now(self) -> float:
        return self._clock.wall()

    def _engine_facts(self) -> EngineFacts:
        return facts_of(Queries(self._running()))

    def get(self, id: str) -> ProcedureHandle:
        """A handle of an existing procedure, finished ones included.

        Args:
            id: The procedure.

        Returns:
            A `ProcedureHandle`.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
            ManagerStopped: No manager runs.
        """
        return ProcedureHandle(Queries(self._running()).head(id).id, self)

    @overload
    def watch(
        self,
        id: str | None = None,
        *,
        since: int | None = None,
        steps: bool = False,
        progress: bool = False,
        buffer: int = 10_000,
        digest: None = None,
    ) -> Watch[Change | Overflow]: ...

    @overload
    def watch(self, *, digest: float | timedelta) -> Watch[ChangeDigest]: ...

    def watch(
        self,
        id: str | None = None,
        *,
        since: int | None = None,
        steps: bool = False,
        progress: bool = False,
        buffer: int = _BUFFER,
        digest: float | timedelta | None = None,
    ) -> Watch[Any]:
        """Every change of state or phase of one procedure, or of all, once and in the order of commits.

        A watch of one procedure begins with its present state and ends after its terminal state. Close a watch after
        use. A digest is for pages that show many procedures: it tells which ones changed, and costs the manager little.

        Args:
            id: The procedure; None: all. Default: None.
            since: The ``seq`` of a change, an int of at least 0. The watch goes on after it, as far back as changes are
                remembered, and tells the gap with an `Overflow` otherwise. Default: None, it begins now.
            steps: Count each step and attempt as a change too. Default: False.
            progress: Count each ``ctx.heartbeat`` as a change too; these are not durable. Default: False.
            buffer: Number of changes that may wait, at least 1. Beyond it the oldest are dropped, and an `Overflow` has
                their number. Default: 10,000.
            digest: Seconds, or a timedelta, from one `ChangeDigest` to the next, at least 0.1. It has the procedures
                that changed meanwhile, once; of more than 500 changes the number. It is for all procedures, and takes
                no other argument. Default: None, each change is told by itself.

        Returns:
            A `Watch`, which is an iterator and an async iterator.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
            ValueError: ``since``, ``buffer`` or ``digest`` is no such number.
            UsageError: ``digest`` is given with another argument.
            ManagerStopped: No manager runs.
        """
        if id is not None:
            id = check_id(id)
        for name, number, least in (("since", since, 0), ("buffer", buffer, 1)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < least):
                msg = f"watch({name}=…) is an int, at least {least}, not {number!r:.60}"
                raise ValueError(msg)
        subscription = Subscription(id, steps=steps, progress=progress, bound=buffer)
        if digest is not None:
            if id is not None or since is not None or steps or progress or buffer != _BUFFER:
                raise UsageError("watch(digest=…) is of all procedures and takes no other argument")
            subscription = DigestSubscription(_between(digest))
        return Watch(subscription, self._running().subscribe(subscription, since))

    def metrics(self, *, whole: bool = False) -> Metrics:
        """Counters and histograms since the start, in one snapshot.

        ``metrics(whole=True).prometheus()`` is the text for a scraper.

        Args:
            whole: Look at all procedures that have not ended too, for `Metrics.states`, `Metrics.phases` and
                `Metrics.oldest_unfinished`. It takes some 10 µs for each. Default: False.

        Returns:
            A `Metrics`.

        Raises:
            ManagerStopped: No manager runs.
            TypeError: ``whole`` is neither True nor False.
        """
        check_flag(whole, "whole")
        engine = self._running()
        return Queries(engine).metrics(self._now(), engine.failure, whole=whole)

    def dangling_locks(self) -> _List[LockInfo]:
        """Locks whose holder does not exist or has ended, or of which the store and the running engine disagree.

        Normally empty: a row here, with its ``reason``, is a bug or a store changed from outside. The idea is that of
        Accumulo's FATE administration.

        Returns:
            One `LockInfo` for each.

        Raises:
            StorageUnavailable: The store is in trouble.
            ManagerStopped: No manager runs.
        """
        return Queries(self._running()).dangling_locks(self._now())

    def workers(self) -> _List[WorkerInfo]:
        """Every worker process: pid, the step in it, age, CPU seconds, memory."""
        return Queries(self._running()).workers()

    def hosts(self) -> _List[HostInfo]:
        """Every worker host that has joined the manager that leads, in the order of their numbers.

        The machine of the leader itself is not among them. With a directory there are none.

        Returns:
            One `HostInfo` for each: where it is, what it offers, how busy it is, when it was heard of last.

        Raises:
            ManagerStopped: No manager runs.
        """
        return list(self._running().hosts())

    def stack(self, id: str) -> str:
        """The Python stack of a procedure's running step, most recent call last.

        A step inside C code that holds the GIL shows the stacks of all threads as `faulthandler` writes them, most
        recent call first.

        Args:
            id: The procedure.

        Returns:
            The stack as text; "" when no step of it runs now.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
            ManagerStopped: No manager runs.
        """
        return Queries(self._running()).stack(id)

    def logs(self, id: str) -> _List[LogEntry]:
        """Prints and log records of a procedure, oldest first: stdout, stderr and log records of all its steps.

        At most `Config.log_bytes` of each procedure are kept in memory. Output received by earlier managers is in two
        files in the directory, as far as `Config.log_file_bytes` goes.

        Args:
            id: The procedure.

        Returns:
            One `LogEntry` for each line or record.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
            ManagerStopped: No manager runs.
        """
        return Queries(self._running()).logs(id)

    # ------------------------------------------------------------ what handles ask (HandleSource)
    def _end_of(self, id: str, patience: Patience = Patience.CALL) -> Ending | Future[Ending]:
        """A procedure's end, or a future of it while it has not ended; `patience` says what keeps that waiting."""
        tree = self._running()
        # One that has ended stays as it is stored, and the manager need not be asked.
        return tree.recent_end(id) or Queries(tree).ending(id) or tree.watch(id, patience)

    def _glance(self, id: str) -> Described | None:
        """State of a procedure, for the words of an error; None when that is not known soon."""
        with suppress(Exception):  # an error is on its way already
            tree = self._running()
            found = tree.glance(id)
            if found is None:
                record = Queries(tree).head(id)
                phase, reason = seen_in_store(record, is_owned=True)
                found = Described(record, phase, "; ".join(filter(None, (reason, "no manager answers"))), None)
            return found
        return None

    def _ended(self, id: str) -> bool:
        """The procedure is in a terminal state."""
        return Queries(self._running()).head(id).state in TERMINAL

    def _output_of(self, ending: Ending) -> Any:
        """The decoded output of a procedure that succeeded."""
        return self._types.decode_output(ending.record.type_name, ending.output, ending.record.id)

    def _original_of(self, record: ProcedureRecord) -> BaseException | None:
        """The exception itself that a failed procedure ended with, if its class asked for that."""
        return None if record.error is None else self._types.original_of(record.error, record.type_name)

    def _post(self, errand: Callable[[], object]) -> None:
        """Run a callback on the manager's thread for callbacks."""
        tree = self._tree
        if tree is not None and tree.closed and self._is_succeeded():
            tree = self._running()
        if tree is not None:
            tree.post(errand)


def _between(digest: float | timedelta) -> float:
    """Seconds between two digests."""
    seconds = in_seconds(digest, "watch(digest=…)")
    if seconds < SHORTEST_DIGEST:
        msg = f"watch(digest=…) is at least {SHORTEST_DIGEST:g} s between two digests, not {digest!r:.60}"
        raise ValueError(msg)
    return seconds
