"""Looking: what is stored, joined with what only the live engine knows; and what handles ask of a manager."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from datetime import datetime
from typing import Any

from actorproc.actors.messages import Ending
from actorproc.actors.subscription import Subscription
from actorproc.facade.base import Facade
from actorproc.handle import ProcedureHandle
from actorproc.info import LockInfo, PoisonInfo, ProcedureInfo, ProcedureTree
from actorproc.listing import ListFilter
from actorproc.looks import QueryLooks, facts_of
from actorproc.metrics import Metrics
from actorproc.model.ids import check_id
from actorproc.model.states import TERMINAL, Phase, ProcedureState
from actorproc.queries import Queries
from actorproc.step_log import StepInfo
from actorproc.watch import Watch
from actorproc.why import Cause, explain
from actorproc.workers.base import WorkerInfo
from actorproc.workers.logbook import LogEntry

__all__ = ["Looking"]

_List = list
"""`list` hides the builtin inside the class."""


class Looking(Facade):
    """What is, was, and happens, for people and programs; and what handles need (`HandleSource`)."""

    def get(self, id: str) -> ProcedureHandle:  # noqa: A002 - public contract
        """A handle of an existing procedure, finished ones included; raises `UnknownProcedure`."""
        Queries(self._running()).head(id)
        return ProcedureHandle(id, self)

    def info(self, id: str) -> ProcedureInfo:  # noqa: A002 - public contract
        """One procedure as it is now; raises `UnknownProcedure`."""
        return Queries(self._running()).info(id)

    def list(
        self,
        state: ProcedureState | str | Iterable[ProcedureState | str] | None = None,
        type_name: str | None = None,
        root: str | None = None,
        tag: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        owner: str | None = None,
        *,
        phase: Phase | str | Iterable[Phase | str] | None = None,
        parent: str | None = None,
        id_prefix: str | None = None,
        roots_only: bool = False,
        troubled: bool = False,
        created_since: datetime | float | None = None,
        created_until: datetime | float | None = None,
        updated_since: datetime | float | None = None,
        updated_until: datetime | float | None = None,
        newest_first: bool = False,
    ) -> _List[ProcedureInfo]:
        """Procedures in submit order, or ``newest_first``, that match all given filters.

        ``state`` and ``phase`` take one or several. ``troubled``: only those whose present step has failed or crashed
        before, also while it runs again. ``parent``: children of that one; ``root``: all of a tree; ``id_prefix``: ids
        that begin so. Times are datetimes or epoch seconds; "until" leaves the moment itself out. At most ``limit``
        are returned; the id of the last one is ``after`` of the next page.
        """
        wanted = ListFilter.of(
            state=state,
            phase=phase,
            type_name=type_name,
            root=root,
            parent=parent,
            tag=tag,
            owner=owner,
            id_prefix=id_prefix,
            roots_only=roots_only,
            troubled=troubled,
            created_since=created_since,
            created_until=created_until,
            updated_since=updated_since,
            updated_until=updated_until,
            newest_first=newest_first,
            limit=limit,
            after=after,
        )
        return Queries(self._running()).listed(wanted)

    def tree(self, id: str, *, limit: int = 1000) -> ProcedureTree:  # noqa: A002 - public contract
        """A procedure and what it started, nested, down to ``limit`` procedures in all; raises `UnknownProcedure`.

        The upper levels come first; each node says in ``omitted`` how many of its children are left out.
        """
        return Queries(self._running()).tree(id, limit)

    def steps(self, id: str) -> _List[StepInfo]:  # noqa: A002 - public contract
        """The step log of a procedure in order; raises `UnknownProcedure`."""
        return Queries(self._running()).steps(id)

    def watch(
        self,
        id: str | None = None,  # noqa: A002 - public contract
        *,
        since: int | None = None,
        steps: bool = False,
        progress: bool = False,
        buffer: int = 10_000,
    ) -> Watch:
        """Every change of state or phase of one procedure, or of all, once and in the order of commits.

        A watch of one procedure begins with how it is now and ends after its terminal state; raises
        `UnknownProcedure`. With ``steps`` each step and attempt is a change too, with ``progress`` each
        ``ctx.heartbeat`` (not durable). ``since`` is the ``seq`` of a change: it goes on after that one, as far back
        as changes are remembered, and tells the gap with an `Overflow` otherwise. ``buffer`` is how many changes may
        wait; beyond that the oldest are dropped and an `Overflow` says how many. Close it after use.
        """
        if id is not None:
            check_id(id)
        for name, number, least in (("since", since, 0), ("buffer", buffer, 1)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < least):
                msg = f"watch({name}=…) is an int, at least {least}, not {number!r:.60}"
                raise ValueError(msg)
        subscription = Subscription(id, steps=steps, progress=progress, bound=buffer)
        return Watch(subscription, self._running().subscribe(subscription, since))

    def metrics(self) -> Metrics:
        """Counters and histograms since the start, in one snapshot; ``metrics().prometheus()`` is their text."""
        return Queries(self._running()).metrics(self._clock.wall())

    def locks(self) -> _List[LockInfo]:
        """The lock table: every granted lock with its holder, its age, and who waits for it in which order."""
        return Queries(self._running()).locks(self._clock.wall())

    def dangling_locks(self) -> _List[LockInfo]:
        """Locks whose holder does not exist or has ended, or of which the store and the running engine disagree.

        Normally empty: a row here, with its ``reason``, is a bug or a store changed from outside (the idea is
        that of Accumulo's FATE administration). Raises `StorageUnavailable` while the store is in trouble.
        """
        return Queries(self._running()).dangling_locks(self._clock.wall())

    def poisons(self) -> _List[PoisonInfo]:
        """The poisoned keys: who poisoned them, when and why. `clear_poison` gives one back."""
        return Queries(self._running()).poisons()

    def workers(self) -> _List[WorkerInfo]:
        """Every worker process: pid, the step in it, age, CPU seconds, memory."""
        return Queries(self._running()).workers()

    def why(self, id: str) -> Cause:  # noqa: A002 - public contract
        """Why a procedure does not go on: the chain of what it waits for, down to its root causes.

        Each end of the chain names the commands that would repair it. Raises `UnknownProcedure`.
        """
        queries = Queries(self._running())
        now = self._clock.wall()
        return explain(QueryLooks(queries, facts_of(queries), now), id, now)

    def stack(self, id: str) -> str:  # noqa: A002 - public contract
        """The Python stack of a procedure's running step, most recent call last; "" when it does not run now.

        A step inside C code that holds the GIL shows the stacks of all threads as `faulthandler` writes them, most
        recent call first. Raises `UnknownProcedure`.
        """
        return Queries(self._running()).stack(id)

    def logs(self, id: str) -> _List[LogEntry]:  # noqa: A002 - public contract
        """What a procedure printed and logged, oldest first: stdout, stderr and log records of all its steps.

        Kept in memory, at most ``Config.log_bytes`` of each procedure; it outlives workers, not this program.
        Raises `UnknownProcedure`.
        """
        return Queries(self._running()).logs(id)

    # ------------------------------------------------------------ what handles ask (HandleSource)
    def end_of(self, id: str) -> Future[Ending]:  # noqa: A002
        """A future of a procedure's end."""
        tree = self._running()
        ending = Queries(tree).ending(id)
        if ending is None:
            return tree.watch(id)
        # It has ended: what is stored is final, and the manager need not be asked.
        future: Future[Ending] = Future()
        future.set_result(ending)
        return future

    def ended(self, id: str) -> bool:  # noqa: A002
        """The procedure is in a terminal state."""
        return Queries(self._running()).head(id).state in TERMINAL

    def output_of(self, ending: Ending) -> Any:
        """The decoded output of a procedure that succeeded."""
        if ending.closing is None:
            return None
        return self._types.decode_output(ending.record.type_name, ending.closing.output)

    def post(self, errand: Callable[[], object]) -> None:
        """Run a callback on the manager's thread for callbacks."""
        tree = self._tree
        if tree is not None:
            tree.post(errand)
