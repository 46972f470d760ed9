"""Looking: what is stored, joined with what only the live engine knows; and what handles ask of a manager."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from actorproc.actors.messages import Ending
from actorproc.facade.base import Facade
from actorproc.handle import ProcedureHandle
from actorproc.info import LockInfo, PoisonInfo, ProcedureInfo
from actorproc.model.records import StepRecord
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.queries import Queries
from actorproc.workers.base import WorkerInfo

__all__ = ["Looking"]

_List = list
"""`list` hides the builtin inside the class."""


class Looking(Facade):
    """`get`, `info`, `list`, `steps`, `locks`, `poisons`, `workers`, and what handles need (`HandleSource`)."""

    def get(self, id: str) -> ProcedureHandle:  # noqa: A002 - public contract
        """A handle of an existing procedure, finished ones included; raises `UnknownProcedure`."""
        Queries(self._running()).head(id)
        return ProcedureHandle(id, self)

    def info(self, id: str) -> ProcedureInfo:  # noqa: A002 - public contract
        """One procedure as it is now; raises `UnknownProcedure`."""
        return Queries(self._running()).info(id)

    def list(
        self,
        state: ProcedureState | str | None = None,
        type_name: str | None = None,
        root: str | None = None,
        tag: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        owner: str | None = None,
    ) -> _List[ProcedureInfo]:
        """Procedures in submit order that match all given filters; ``after`` is the id of the last one seen."""
        return Queries(self._running()).listed(
            state=ProcedureState(state) if state is not None else None,
            type_name=type_name,
            root=root,
            tag=tag,
            owner=owner,
            limit=limit,
            after=after,
        )

    def steps(self, id: str) -> _List[StepRecord]:  # noqa: A002 - public contract
        """The step log of a procedure in order; raises `UnknownProcedure`."""
        return Queries(self._running()).steps(id)

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
