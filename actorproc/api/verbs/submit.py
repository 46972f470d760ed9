"""Submitting: a procedure is dumped in the caller's thread, and the call returns once it is durable."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from concurrent.futures import Future
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack, overload

import msgspec

from actorproc.api.handle import ProcedureHandle, late
from actorproc.api.verbs.base import RunningEngine
from actorproc.api.verbs.inspect import InspectVerbs
from actorproc.engine.arguments import (
    checked_debounce,
    checked_limits,
    checked_on_existing,
    checked_priority,
    checked_tags,
    checked_text,
    due_time,
    epoch_seconds,
    pair,
)
from actorproc.engine.end_waiters import fail_as
from actorproc.engine.messages import Ending, Patience
from actorproc.engine.runtime.clock import waiting_seconds
from actorproc.engine.runtime.gc_pause import collector_paused_for
from actorproc.errors import ActorprocError, DuplicateProcedure, ResultTimeout, StateTooLarge, UsageError
from actorproc.model.ids import new_id
from actorproc.model.messages.events import Submitted
from actorproc.model.policies import OnExisting, StepLimits
from actorproc.model.rows.record_parts import TOKEN, DebounceTerms
from actorproc.model.rows.records import IdReuse, NewProcedure
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.declaring.policies import Limits
from actorproc.procedure.declaring.step_policies import check_given_limits
from actorproc.procedure.declaring.submit_options import Tags, checked_limit_keys
from actorproc.procedure.runtime.class_shipping import refuse_unloadable
from actorproc.procedure.runtime.comparing import differing_fields
from actorproc.procedure.runtime.engine_side import TypeRuntime
from actorproc.support.clock import Clock

__all__ = ["SubmitOptions", "SubmitTerms", "SubmitVerbs", "checked_reuse", "checked_terms", "described"]

R = TypeVar("R")


# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_CALL, _PARKED = Patience.CALL, Patience.PARKED


class _NotStored(TimeoutError):
    """The time is up, and the store has not answered."""


class SubmitTerms(NamedTuple):
    """Options of a call for every procedure it submits, checked."""

    owner: str | None
    priority: int
    due_at: float | None
    deadline: float | None
    tags: tuple[str, ...]
    limits: StepLimits | None
    limit_keys: tuple[str, ...]
    reuse: IdReuse | None
    debounce: DebounceTerms | None


class ManyOptions(TypedDict, total=False):
    """Options of `SubmitVerbs.submit_many`."""

    owner: str | None
    priority: int
    delay: float | timedelta
    deadline: datetime | timedelta | float | None
    tags: Tags | None
    limits: Limits | None
    limit_keys: Iterable[str]
    on_existing: OnExisting
    at: datetime | float | None


class SubmitOptions(ManyOptions, total=False):
    """Options of `SubmitVerbs.submit` that `SubmitVerbs.run` takes as well."""

    debounce: str | None
    within: float | timedelta | None
    at_most: float | timedelta | None


def checked_reuse(on_existing: OnExisting) -> IdReuse | None:
    """The policy of one submit with a token of its own; None for the default, which counts once without."""
    policy = checked_on_existing(on_existing)
    return None if policy == "same" else IdReuse(policy, os.urandom(TOKEN))


def checked_terms(
    clock: Clock,
    owner: str | None = None,
    priority: int = 0,
    delay: float | timedelta = 0,
    deadline: datetime | timedelta | float | None = None,
    tags: Tags | None = None,
    limits: Limits | None = None,
    limit_keys: Iterable[str] = (),
    on_existing: OnExisting = "same",
    at: datetime | float | None = None,
    debounce: str | None = None,
    within: float | timedelta | None = None,
    at_most: float | timedelta | None = None,
) -> SubmitTerms:
    """The options of a call, checked once for all that it submits; times from now are counted by this clock."""
    return SubmitTerms(
        owner=checked_text(owner, "owner", 1024) if owner is not None else None,
        priority=checked_priority(priority),
        due_at=due_time(delay, clock, at),
        deadline=epoch_seconds(deadline, clock),
        tags=checked_tags(tags),
        limits=checked_limits(limits).of_submit if limits is not None else None,
        limit_keys=checked_limit_keys(limit_keys, "limit_keys"),
        reuse=checked_reuse(on_existing),
        debounce=checked_debounce(
            debounce,
            within,
            at_most,
            {"on_existing": on_existing != "same", "delay": bool(delay), "at": at is not None},
        ),
    )


def described(runtime: TypeRuntime, procedure: Procedure, id: str | None, terms: SubmitTerms) -> NewProcedure:
    """The procedure as it is stored first. Raises as `SubmitVerbs.submit` does."""
    debounced = terms.debounce
    if debounced is not None:
        if id is not None:
            msg = f"debounce={debounced.key!r} makes the id {debounced.key}:…, so leave id={id!r:.60} out"
            raise ValueError(msg)
        id = f"{debounced.key}:{new_id()}"
    new = runtime.describe(
        procedure,
        id=id,
        fresh=debounced is not None,
        owner=terms.owner,
        priority=terms.priority,
        due_at=terms.due_at,
        deadline=terms.deadline,
        tags=terms.tags,
    )
    if debounced is not None:
        if new.codec != "data":
            msg = (
                f"{new.type_name} has codec = 'pickle': its state is signed for one id, and a debounced submit may "
                "get that of an earlier one. Use a class with the default codec"
            )
            raise UsageError(msg)
        new = msgspec.structs.replace(new, debounce=debounced)
    if terms.limits is not None:
        check_given_limits(runtime.type_name, terms.limits, runtime.meta)
        new = msgspec.structs.replace(new, limits=terms.limits)
    if terms.limit_keys:
        both = checked_limit_keys((*new.limit_keys, *terms.limit_keys), "limit_keys")
        new = msgspec.structs.replace(new, limit_keys=both)
    if terms.reuse is not None and not new.fresh:
        new = msgspec.structs.replace(new, reuse=terms.reuse)
    return new


class SubmitVerbs(InspectVerbs):
    """`submit`, `submit_many`, `run`."""

    def submit(
        self,
        procedure: Procedure[R],
        id: str | None = None,
        owner: str | None = None,
        priority: int = 0,
        delay: float | timedelta = 0,
        deadline: datetime | timedelta | float | None = None,
        tags: Tags | None = None,
        *,
        limits: Limits | None = None,
        limit_keys: Iterable[str] = (),
        on_existing: OnExisting = "same",
        at: datetime | float | None = None,
        debounce: str | None = None,
        within: float | timedelta | None = None,
        at_most: float | timedelta | None = None,
    ) -> ProcedureHandle[R]:
        """Submit a procedure; returns once it is durable.

        A submit counts once, however often its message arrives: a repetition after a lost answer begins nothing.

        Args:
            procedure: An instance of a registered or importable class.
            id: Its name for ever. Default: None, a new id.
            owner: Free text, 1 to 1024 bytes in UTF-8. Default: None.
            priority: An int; higher goes first. Default: 0.
            delay: Seconds, or a timedelta, before it may start. Default: 0.
            deadline: A timedelta from now, or a moment: a datetime with a time zone, or seconds since 1970. Default:
                None.
            tags: Tags to find it by (`list`): a dict of keys and values, or a list of words and of texts ``key=value``.
                At most 100, of at most 256 bytes. A step may change them (`Context.set_tag`). Default: None.
            limits: `Limits` of its steps. Each that is given goes before the step's and the class's. Default: None.
            limit_keys: Limit keys beside those of the class (`Procedure.limit_keys`). Default: none.
            on_existing: Policy for an id that exists. ``"same"``, the default, returns the existing procedure when type
                and initial state are equal, as today's class reads the stored one. ``"error"`` refuses every id that
                exists. ``"restart-failed"`` begins the next generation of a root that ended failed or undone, from the
                state that is submitted now. ``"restart"`` does so also after a success.
            at: Moment before which it does not start, in place of ``delay``: a datetime with a time zone, or seconds
                since 1970. Default: None.
            debounce: Key under which it waits for further submits. A later one of the key replaces its state and
                options, and begins the wait anew. So the last of many runs, and all have handles of that one run.
                Once its wait is over, the next submit begins another run. 1 to 91 characters, as those of an id. In
                place of ``id``, ``on_existing``, ``delay`` and ``at``. Default: None.
            within: Seconds, or a timedelta, without a further submit of the key after which it starts.
            at_most: Seconds, or a timedelta, from the first of these submits after which it starts in any case.
                Default: None, without limit.

        Returns:
            A `ProcedureHandle`.

        Raises:
            DuplicateProcedure: The id exists, with another type or state under ``"same"``, or at all under ``"error"``.
                Or a procedure of another type waits under the key of the debounce.
            NotAllowed: The procedure of this id is one that a restart does not take; also one whose rollback gave up.
            ManagerBusy: More procedures are unfinished than `Config.max_running` and `Config.max_queued` allow.
            KeyPoisoned: It needs a key that is poisoned.
            StateNotEncodable: Its state cannot be stored.
            StateTooLarge: Its state takes more bytes than `Config.max_state`.
            UsageError: Its class, or the id, is wrong; the message says where. Or it has ``codec = "pickle"``, which no
                debounce takes.
            ValueError: A time makes no sense: a naive datetime, a number too small for a moment, or one after the year
                9999. Or options exclude each other.
            TypeError: An option is of the wrong kind.
            StorageUnavailable: The store refuses commits at the moment.
            OutcomeUnknown: The commit failed and could not be read back; ask by id.
            ManagerStopped: No manager runs.
        """
        self._running()
        terms = checked_terms(
            self._clock,
            owner,
            priority,
            delay,
            deadline,
            tags,
            limits,
            limit_keys,
            on_existing,
            at,
            debounce,
            within,
            at_most,
        )
        new = self._describe(procedure, id, terms)
        if new.debounce is not None:
            return self._submit_debounced(new)
        self._submit_all((new,))
        return ProcedureHandle(new.id, self)

    async def submit_async(
        self, procedure: Procedure[R], id: str | None = None, **options: Unpack[SubmitOptions]
    ) -> ProcedureHandle[R]:
        """Submit a procedure as `submit` does, while the event loop goes on; the wait for the disk is on a thread.

        A caller that is cancelled does not know whether the submit was made: ask by id, or submit it again.

        Args:
            procedure: An instance of a registered or importable class.
            id: Its name for ever. Default: None, a new id.
            **options: Those of `submit`.

        Returns:
            A `ProcedureHandle`, which can be awaited.

        Raises:
            ActorprocError: As of `submit`.
        """
        import asyncio  # noqa: PLC0415 - hosts without a loop need not load it

        return await asyncio.to_thread(lambda: self.submit(procedure, id, **options))

    def _submit_debounced(self, new: NewProcedure) -> ProcedureHandle[Any]:
        """Submit, and return a handle of the root that waits."""
        (name,) = self._running().request(partial(Submitted, (new,)))
        return ProcedureHandle(name, self)

    def _submit_all(self, news: tuple[NewProcedure, ...]) -> None:
        """Submit, and return once all are durable.

        The manager compares a state with one stored under its id by their digests, for it runs no code of classes.
        Where these differ, or say nothing as the versions differ, the states are read here and compared by field.
        """
        tree = self._running()
        try:
            tree.request(partial(Submitted, news))
        except DuplicateProcedure:
            tree.request(partial(Submitted, self._all_compared(tree, news)))

    def _all_compared(self, tree: RunningEngine, news: tuple[NewProcedure, ...]) -> tuple[NewProcedure, ...]:
        """These, marked as compared; for the handler of a `DuplicateProcedure`, which is raised again if it is true."""
        compared = tuple(self._compared(tree, new) for new in news)
        if compared == news:
            raise  # noqa: PLE0704 - as it says
        return compared

    def _submit_and_wait(self, new: NewProcedure, seconds: float | None, patience: Patience) -> Ending:
        """Submit, and wait for the end: one message asks for both. Raises `TimeoutError`, or `_NotStored`."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            tree = self._running()
            end: Future[Ending] = Future()
            reply = tree.ask(partial(Submitted, (new,)), (end,), patience)
            reply.add_done_callback(partial(fail_as, end))
            try:
                return end.result(None if until is None else max(0.0, until - time.monotonic()))
            except DuplicateProcedure:
                (new,) = self._all_compared(tree, (new,))
            except TimeoutError:
                if not reply.done():
                    raise _NotStored from None
                raise

    def _compared(self, tree: RunningEngine, new: NewProcedure) -> NewProcedure:
        """The same, marked as compared where the stored procedure of its id is the same submit.

        Raises `DuplicateProcedure` naming the fields that differ.
        """
        is_comparable = not new.fresh and new.digest and new.reuse is None
        head = tree.store.procedure(new.id) if is_comparable else None
        if head is None or head.type_name != new.type_name:
            return new
        first = tree.store.step(new.id, 1)
        runtime = self._types.runtime_named(new.type_name)
        if first is None or runtime is None:
            return new
        try:
            fields = differing_fields(runtime, first, new)
        except (ActorprocError, MemoryError) as error:
            if first.version != new.version:  # nothing can be compared: then type and version decide
                return msgspec.structs.replace(new, is_compared=True)
            msg = (
                f"procedure {new.id} ({new.type_name}) exists, and its initial state cannot be compared: {error}; use "
                "another id, or raise the version of the class and write migrate()"
            )
            raise DuplicateProcedure(msg) from None
        if fields:
            names = ", ".join(map(repr, fields))
            msg = (
                f"procedure {new.id} ({new.type_name}) exists with another initial state: {names} "
                f"{'differs' if len(fields) == 1 else 'differ'}; use another id, or the same state"
            )
            raise DuplicateProcedure(msg)
        return msgspec.structs.replace(new, is_compared=True)

    @overload
    def submit_many(
        self, procedures: Iterable[Procedure[R]], **options: Unpack[ManyOptions]
    ) -> list[ProcedureHandle[R]]: ...
    @overload
    def submit_many(
        self, procedures: Iterable[tuple[str, Procedure[R]]], **options: Unpack[ManyOptions]
    ) -> list[ProcedureHandle[R]]: ...
    @overload
    def submit_many(
        self, procedures: Iterable[Procedure | tuple[str, Procedure]], **options: Unpack[ManyOptions]
    ) -> list[ProcedureHandle]: ...
    def submit_many(
        self,
        procedures: Iterable[Procedure | tuple[str, Procedure]],
        *,
        owner: str | None = None,
        priority: int = 0,
        delay: float | timedelta = 0,
        deadline: datetime | timedelta | float | None = None,
        tags: Tags | None = None,
        limits: Limits | None = None,
        limit_keys: Iterable[str] = (),
        on_existing: OnExisting = "same",
        at: datetime | float | None = None,
    ) -> list[ProcedureHandle]:
        """Submit procedures in one commit: all of them or none.

        With 1,000 procedures or more, the program's cycle collector pauses while they are dumped and decided about.

        Args:
            procedures: Procedures, or ``(id, procedure)`` pairs.
            owner: For each, as in `submit`.
            priority: For each, as in `submit`.
            delay: For each, as in `submit`.
            deadline: For each, as in `submit`.
            tags: For each, as in `submit`.
            limits: For each, as in `submit`.
            limit_keys: For each, as in `submit`.
            on_existing: For each, as in `submit`.
            at: For each, as in `submit`.

        Returns:
            Handles in the order of the procedures.

        Raises:
            ActorprocError: Any error of `submit`; nothing is submitted then.
            TypeError: An item is no procedure and no pair, or an option is of the wrong kind.
            ValueError: A time makes no sense.
        """
        self._running()
        terms = checked_terms(self._clock, owner, priority, delay, deadline, tags, limits, limit_keys, on_existing, at)
        with collector_paused_for(len(procedures) if isinstance(procedures, list) else 0):
            pairs = [pair(item) for item in procedures]
        with collector_paused_for(len(pairs)):
            news = tuple(self._describe(procedure, id, terms) for id, procedure in pairs)
        if not news:
            return []
        with collector_paused_for(len(news)):  # while they are decided about and stored
            handles = [ProcedureHandle(new.id, self) for new in news]
        self._submit_all(news)
        return handles

    def run(
        self,
        procedure: Procedure[R],
        id: str | None = None,
        *,
        timeout: float | timedelta | None = None,
        wait_parked: bool = False,
        **options: Unpack[SubmitOptions],
    ) -> R:
        """Submit a procedure, wait for its end and return its output.

        Args:
            procedure: The procedure.
            id: Its name, as of `submit`. Default: None.
            timeout: Seconds, or a timedelta, to wait at most in all, the submit included. Default: None, without limit.
            wait_parked: Wait on while it is parked, as `ProcedureHandle.result`. Default: False.
            **options: Those of `submit`.

        Returns:
            The output.

        Raises:
            ResultTimeout: The time is up (a builtin `TimeoutError`); the procedure goes on. When not even the store has
                answered by then (a full disk), it may be stored and run later: `get` tells, by the given ``id``.
            ActorprocError: Any error of `submit` and `ProcedureHandle.result`.
        """
        seconds = waiting_seconds(timeout)
        self._running()
        new = self._describe(procedure, id, checked_terms(self._clock, **options))
        if new.debounce is not None:
            until = None if seconds is None else time.monotonic() + seconds
            waiting = self._submit_debounced(new)
            left = None if until is None else max(0.0, until - time.monotonic())
            output: R = waiting.result(left, wait_parked=wait_parked)
            return output
        try:
            ending = self._submit_and_wait(new, seconds, _PARKED if wait_parked else _CALL)
        except _NotStored:
            reason = "the submit is not stored"
            msg = f"the submit was not stored within {seconds:g} s; it may be later: look by its id, or submit it again"
            raise ResultTimeout(msg, id=id or "", reason=reason) from None
        except TimeoutError:
            raise late(new.id, timeout, self._glance(new.id)) from None
        handle: ProcedureHandle[R] = ProcedureHandle(new.id, self)
        return handle._unpack(ending)

    def _describe(self, procedure: Procedure, id: str | None, terms: SubmitTerms) -> NewProcedure:
        """The procedure as it is stored first."""
        runtime = self._types.runtime_of(procedure)
        new = described(runtime, procedure, id, terms)
        self._check_size(new)
        if new.codec == "pickle":
            refuse_unloadable(procedure, runtime)
        return new

    def _check_size(self, new: NewProcedure, *, of_call: bool = False) -> None:
        config = self._config
        if of_call and self._home.largest_value is not None and len(new.state) > config.max_state:
            msg = (
                f"the arguments of {new.type_name} take {len(new.state)} bytes; with a store in a database they may "
                f"have {config.max_state} (Config.max_state). Put large data into storage that all machines share, and "
                "pass its place"
            )
            raise StateTooLarge(msg)
        limit, option = (config.max_call, "max_call") if of_call else (config.max_state, "max_state")
        if len(new.state) > limit:
            msg = (
                f"the state of {new.type_name} has {len(new.state)} bytes; Config.{option} is {limit}. Keep large data "
                "in a file and its path in the state"
            )
            raise StateTooLarge(msg)
