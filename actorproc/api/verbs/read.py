"""Questions that any store answers, whether its engine runs here, elsewhere, or not at all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING

from actorproc.api.queries import StoredQueries
from actorproc.engine.arguments import kept_target
from actorproc.errors import UnknownProcedure
from actorproc.model.states import Phase, ProcedureState
from actorproc.procedure.declaring.submit_options import Tags
from actorproc.report.audit import AuditFilter, AuditInfo
from actorproc.report.info import (
    EnqueuedInfo,
    LockInfo,
    PoisonInfo,
    ProcedureInfo,
    ProcedureTree,
    ScheduleInfo,
    SignalInfo,
)
from actorproc.report.listing import ListFilter
from actorproc.report.step_log import AttemptInfo, StepInfo

if TYPE_CHECKING:
    from actorproc.report.states import StateInfo
    from actorproc.report.why import Cause, EngineFacts

__all__ = ["ReadVerbs"]

_List = list
"""`list` hides the builtin inside the class."""


class ReadVerbs(ABC):
    """The looking methods that a manager, a client and a reader of a store share."""

    @abstractmethod
    def _asking(self) -> AbstractContextManager[StoredQueries]:
        """Open the source of answers for one call."""

    @abstractmethod
    def _now(self) -> float:
        """The present moment, in epoch seconds."""

    @abstractmethod
    def _engine_facts(self) -> EngineFacts:
        """Facts about the engine itself, fetched before the queries of the caller begin."""

    def info(self, id: str) -> ProcedureInfo:
        """One procedure as it is now.

        If the procedure has not ended, state and phase are those that are decided: they may precede the commit that
        stores them. An end shows when it is stored.

        Args:
            id: The procedure.

        Returns:
            A `ProcedureInfo`.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
        """
        with self._asking() as queries:
            return queries.info(id)

    def list(
        self,
        state: ProcedureState | str | Iterable[ProcedureState | str] | None = None,
        type_name: str | None = None,
        root: str | None = None,
        tag: str | Tags | None = None,
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
        where: Mapping[str, object] | None = None,
        newest_first: bool = False,
    ) -> _List[ProcedureInfo]:
        """Procedures that match all given filters, in submit order.

        Times are datetimes with a time zone, or seconds since 1970. Each filter is None by default, which filters
        nothing.

        Args:
            state: One `ProcedureState` or several.
            type_name: Only procedures of this type.
            root: The root of a tree; only procedures of that tree.
            tag: Only procedures with this tag: a word, or ``"key=value"``. A dict or a list names several; then only
                procedures with all of them. The one that fewest procedures have is looked up, and the rest is compared.
            limit: Greatest number of procedures returned, at least 0.
            after: The id of the last procedure of the page before.
            owner: Only procedures submitted with this ``owner``.
            phase: One `Phase` or several.
            parent: Only children of this procedure.
            id_prefix: Only ids that begin so.
            roots_only: Leave out children. Default: False.
            troubled: Only those whose present step has failed or crashed before, also while it runs again. Default:
                False.
            created_since: Only procedures submitted at this time or later.
            created_until: Only procedures submitted before this time.
            updated_since: Only procedures whose last change was at this time or later.
            updated_until: Only procedures whose last change was before this time.
            where: Values of fields that their classes declare `Procedure.searchable`, by name; only procedures whose
                state has all of them. Values are compared as texts, so 42 and ``"42"`` are the same. As with several
                tags, one index is looked up, and the rest is compared.
            newest_first: Turn the order round. Default: False.

        Returns:
            One `ProcedureInfo` for each.

        Raises:
            UnknownProcedure: ``after`` names no procedure.
            InvalidId: ``root``, ``parent`` or ``after`` is no id.
            TypeError: A filter, or a value in ``where``, is of the wrong kind.
            ValueError: A state, a phase, a time, ``limit`` or the name of a field makes no sense.
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
            where=where,
            newest_first=newest_first,
            limit=limit,
            after=after,
        )
        with self._asking() as queries:
            return queries.listed(wanted)

    def tree(self, id: str, *, limit: int = 1000) -> ProcedureTree:
        """A procedure and its descendants, nested. The upper levels come first.

        Args:
            id: The procedure at the top.
            limit: Greatest number of procedures in all, at least 1. Default: 1000.

        Returns:
            A `ProcedureTree`; each node has in ``omitted`` the number of its children that are left out.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
            ValueError: ``limit`` is no such number.
        """
        with self._asking() as queries:
            return queries.tree(id, limit)

    def steps(self, id: str) -> _List[StepInfo]:
        """The step log of a procedure.

        Args:
            id: The procedure.

        Returns:
            One `StepInfo` for each stored step, in order.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
        """
        with self._asking() as queries:
            return queries.steps(id)

    def attempts(self, id: str, step: int | None = None) -> _List[AttemptInfo]:
        """Attempts of a procedure's steps that failed, crashed or were killed.

        Args:
            id: The procedure.
            step: Number of a step; only its attempts. Default: None, those of all steps.

        Returns:
            One `AttemptInfo` for each, in order of time; the newest 20 of a step are kept.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
        """
        with self._asking() as queries:
            return queries.attempts(id, step)

    def states(self, id: str) -> _List[StateInfo]:
        """The states of a procedure over time, decoded without its class and with secrets masked.

        Args:
            id: The procedure.

        Returns:
            One `StateInfo` for each record that is left, in order; record 1 has the input.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
        """
        from actorproc.report.states import state_infos_of  # noqa: PLC0415 - a list need not wait for it

        with self._asking() as queries:
            return state_infos_of(*queries.log(id))

    def state(self, id: str, step: int | None = None) -> StateInfo:
        """One state of a procedure, decoded without its class and with secrets masked, with the notes of its step.

        Args:
            id: The procedure.
            step: Number of the record: the state from which the step of this number runs. Default: None, the newest
                state.

        Returns:
            A `StateInfo`.

        Raises:
            UnknownProcedure: No procedure has this id.
            UnknownStep: There is no such record; the message says whether it was trimmed.
            InvalidId: The id is no id.
        """
        from actorproc.report.states import state_of  # noqa: PLC0415 - a list need not wait for it

        with self._asking() as queries:
            head, records = queries.log(id)
            return state_of(head, records, step, queries.notes)

    def locks(self) -> _List[LockInfo]:
        """The lock table: every granted lock with its holder, its age, and its queue of waiters in order."""
        with self._asking() as queries:
            return queries.locks(self._now())

    def poisons(self) -> _List[PoisonInfo]:
        """The poisoned keys, each with the procedure that poisoned it, the time and the reason.

        A manager's `clear_poison` gives one back.
        """
        with self._asking() as queries:
            return queries.poisons()

    def schedules(self) -> _List[ScheduleInfo]:
        """The schedules, by id, each with its next instants and its last firing.

        Those that no program has declared since the manager started have ``declared`` False; they fire all the same.
        """
        with self._asking() as queries:
            return queries.schedules()

    def enqueued(self) -> _List[EnqueuedInfo]:
        """Procedures that applications enqueued in transactions of their own, and that are none yet.

        First those that wait, about in the order in which they were enqueued, then those that were refused. Those
        whose obstacle may be gone are tried again: at a start, with a class that is registered, with a key that is
        not poisoned any more.

        Returns:
            One `EnqueuedInfo` for each.
        """
        with self._asking() as queries:
            return queries.enqueued()

    def schedule_info(self, id: str) -> ScheduleInfo:
        """One schedule as it is now.

        Args:
            id: The schedule.

        Returns:
            A `ScheduleInfo`.

        Raises:
            UnknownProcedure: There is no such schedule.
            InvalidId: The id is no id.
        """
        with self._asking() as queries:
            found = queries.schedule(id)
            if found is None:
                queries.check_schedules()  # its row may be one that cannot be read
        if found is None:
            msg = f"no schedule has the id {id!r:.120}"
            raise UnknownProcedure(msg)
        return found

    def signals(self, id: str | None = None, *, event: str | None = None) -> _List[SignalInfo]:
        """Signals and events that no procedure has taken yet, the oldest first, without their payloads.

        A manager's `withdraw` removes them; events go by themselves after `Config.retain_signals`.

        Args:
            id: Only signals to this procedure.
            event: Only events of this name.

        Returns:
            One `SignalInfo` for each.

        Raises:
            UsageError: Both are given.
        """
        target = kept_target(id, event)
        with self._asking() as queries:
            return queries.signals(target)

    def audit(self, id: str | None = None) -> _List[AuditInfo]:
        """Requests of operators, in order: for a procedure, or without an id for the manager itself.

        The manager's own are pauses of everything, cleared poison keys, deleted procedures, and acknowledged ones when
        a reason was given. For a procedure that was removed, what the store still notes of it (`audit_log`).

        Args:
            id: The procedure; None: the manager. Default: None.

        Returns:
            One `AuditInfo` for each request.

        Raises:
            UnknownProcedure: No procedure has this id, or no request about one that was removed is noted.
            InvalidId: The id is no id.
        """
        with self._asking() as queries:
            return queries.audit(id)

    def audit_log(
        self,
        *,
        since: float | datetime | None = None,
        until: float | datetime | None = None,
        verb: str | Iterable[str] | None = None,
        by: str | None = None,
        limit: int | None = None,
    ) -> _List[AuditInfo]:
        """All requests of operators, for procedures and for the manager, the newest first.

        Those about removed procedures are among them; the newest 100,000 are kept.

        Args:
            since: Only those at this time or later; epoch seconds, or a datetime. Default: None, all.
            until: Only those before this time. Default: None, all.
            verb: Only those with this verb, or one of these: abort, kill, retry, …. Default: None, all.
            by: Only those of this name. Default: None, all.
            limit: At most so many. Default: None, no limit.

        Returns:
            One `AuditInfo` for each request.

        Raises:
            ValueError: A time or the limit is none.
            TypeError: An argument has the wrong type.
        """
        chosen = AuditFilter.of(since, until, verb, by, limit)
        with self._asking() as queries:
            return chosen.among(queries.audit_log())

    def why(self, id: str) -> Cause:
        """Reasons for a procedure's standstill: the chain of what it waits for, down to its root causes.

        Args:
            id: The procedure; or a schedule, for its next instant and what it waits for; or what was enqueued and is no
                procedure yet.

        Returns:
            The chain. Each end of it names the commands that would repair it.

        Raises:
            UnknownProcedure: Neither a procedure nor a schedule has this id.
            InvalidId: The id is no id.
        """
        from actorproc.api.why_source import QuerySource  # noqa: PLC0415 - a list need not wait for it
        from actorproc.report.why import explain, explain_enqueued, explain_schedule  # noqa: PLC0415

        now = self._now()
        facts = self._engine_facts()
        with self._asking() as queries:
            source = QuerySource(queries, facts, now)
            try:
                return explain(source, id, now)
            except UnknownProcedure:
                found = queries.schedule(id)
                if found is not None:
                    return explain_schedule(source, found, now)
                queries.check_schedules()  # its row may be one that cannot be read
                if (row := next((row for row in queries.enqueued() if row.id == id), None)) is None:
                    raise
                return explain_enqueued(source, row, now)
