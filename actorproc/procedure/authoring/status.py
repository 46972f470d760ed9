"""Values of `Status`: the next action that a step asks for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from actorproc.errors import InvalidStatus
from actorproc.model.exact import exact_text
from actorproc.model.ids import check_id
from actorproc.model.policies import LockKey, checked_lock_key
from actorproc.procedure.authoring.submittable import Submittable
from actorproc.procedure.values.kinds.base import is_text
from actorproc.support.durations import in_seconds, moment

if TYPE_CHECKING:
    from actorproc.model.rows.records import Wait

__all__ = ["Done", "Executing", "Poisoning", "Renewing", "Sleeping", "Status", "Suspending", "Waiting"]


class Status(msgspec.Struct, frozen=True):
    """Result of `Procedure.execute`. Made by the names below, never by calling the class.

    All times are seconds (a float, an int or a `datetime.timedelta`), finite and not negative.
    Wrong arguments raise `InvalidStatus`, which fails the step and is never retried.
    """

    @staticmethod
    def executing(
        persist: bool = True,
        yield_: bool = False,
        after: float | timedelta = 0.0,
        acquire: Iterable[LockKey] = (),
        *,
        no_return: bool = False,
    ) -> Status:
        """There is more to do: call `execute` again.

        Args:
            persist: False permits the engine to skip the record of this step; the step may be repeated after a crash.
                Default: True.
            yield_: Let other procedures go first. Default: False.
            after: Seconds, or a timedelta, to wait before the next step. Default: 0.
            acquire: More locks, granted before the next step. Default: none.
            no_return: The next step is the point of no return. Default: False.

        Returns:
            The status.

        Raises:
            InvalidStatus: ``after`` is no duration, or ``acquire`` holds something else than `LockKey` values.
        """
        if persist and not yield_ and not after and not acquire and not no_return:
            return _EXECUTING
        given: Any = acquire
        if not isinstance(given, Iterable):
            msg = f"Status.executing(acquire=…) takes a list of LockKey values, not {given!r:.60}"
            raise InvalidStatus(msg)
        keys: list[LockKey] = []
        for key in given:
            try:
                keys.append(checked_lock_key(key))
            except (TypeError, ValueError) as error:
                msg = (
                    "Status.executing(acquire=…) takes LockKey values such as LockKey.write('a/b'), "
                    f"not {key!r:.80}: {error}"
                )
                raise InvalidStatus(msg) from None
        pause = _seconds("executing(after=…)", after)
        return Executing(bool(persist), bool(yield_), pause, tuple(keys), bool(no_return))

    @staticmethod
    def suspended(
        children: Iterable[Submittable | tuple[str, Submittable]],
        persist: bool = True,
        *,
        wait: Wait = "all",
        max_parallel: int | None = None,
        on_parent_end: Literal["abort", "leave"] = "abort",
    ) -> Status:
        """Start children, and go on when they have ended.

        A child without an id gets one made of parent, step and index, so a repeated step names the same children.
        Without children it goes on at once; twice in a row with an equal state that is `InvalidStatus`.

        Args:
            children: Procedures, or ``(id, procedure)`` pairs.
            persist: Has no effect: children are always stored together with their parent's state. Default: True.
            wait: The next step runs when "all" have finished, when "any" one has, or once for "each". Default: "all".
            max_parallel: Number of children that run at a time, at least 1. Default: None, without limit.
            on_parent_end: "abort" or "leave" the children that still run when the parent ends. Default: "abort".

        Returns:
            The status.

        Raises:
            InvalidStatus: An argument is none of these, a child is no procedure, or two children have one id.
            InvalidId: The id of a child is no id.
        """
        del persist
        if wait not in {"all", "any", "each"}:
            msg = f"Status.suspended(wait=…) is 'all', 'any' or 'each', not {wait!r}"
            raise InvalidStatus(msg)
        if on_parent_end not in {"abort", "leave"}:
            msg = f"Status.suspended(on_parent_end=…) is 'abort' or 'leave', not {on_parent_end!r}"
            raise InvalidStatus(msg)
        if max_parallel is not None and (type(max_parallel) is not int or max_parallel < 1):
            msg = f"Status.suspended(max_parallel=…) is a number of children, at least 1, or None, not {max_parallel!r}"
            raise InvalidStatus(msg)
        return Suspending(_children(children), wait, max_parallel, on_parent_end)

    @staticmethod
    def sleep(seconds: float | timedelta) -> Status:
        """Go on after some time; costs a record, no process.

        Args:
            seconds: Seconds, or a timedelta.

        Returns:
            The status.

        Raises:
            InvalidStatus: ``seconds`` is no duration.
        """
        return Sleeping(_seconds("sleep(…)", seconds))

    @staticmethod
    def sleep_until(at: datetime | float) -> Status:
        """Go on at a moment, by the clock of the manager; at once if it has passed. Costs a record, no process.

        Args:
            at: A datetime with a time zone, or seconds since 1970.

        Returns:
            The status.

        Raises:
            InvalidStatus: ``at`` is no moment.
        """
        try:
            until = moment(at, "Status.sleep_until(…)", instead=f"For so long from now: Status.sleep({at!r:.60})")
        except (TypeError, ValueError) as error:
            raise InvalidStatus(str(error)) from None
        return Sleeping(until=until)

    @staticmethod
    def wait(event: str, timeout: float | timedelta | None = None) -> Status:
        """Go on when an event is signalled; ``ctx.event`` is its payload then.

        Args:
            event: The name of the event, 1 to 255 bytes in UTF-8.
            timeout: Seconds, or a timedelta, after which `Procedure.on_timeout` is called. Default: None, without
                limit.

        Returns:
            The status.

        Raises:
            InvalidStatus: ``event`` is no such name, or ``timeout`` is no duration.
        """
        if not isinstance(event, str) or not is_text(event) or not 0 < len(event.encode()) <= 255:
            msg = f"Status.wait(event) is a name of 1 to 255 bytes in UTF-8, not {event!r:.60}"
            raise InvalidStatus(msg)
        return Waiting(exact_text(event), None if timeout is None else _seconds("wait(timeout=…)", timeout))

    @staticmethod
    def done(output: object = None) -> Status:
        """The procedure is finished.

        Args:
            output: Any value the data codec keeps. Default: None.

        Returns:
            The status.
        """
        return Done(output)

    @staticmethod
    def again(state: Submittable) -> Status:
        """Begin anew from the first step, under the same id, with ``state``: for what never ends.

        It is a commit point, as continue-as-new in Temporal. Steps before it are never undone; their undo units, notes
        and ended children are removed. ``lock_keys`` and ``poison_keys`` are asked anew: keys that both name are held
        on. Tags, deadline, priority, handles and signals not yet taken stay. ``result()`` is that of the last
        generation.

        Args:
            state: a procedure of the same class; ``self`` is one.

        Returns:
            A status for a root, or a child whose parent has ended, all of whose children have ended.

        Raises:
            InvalidStatus: ``state`` is no procedure. Returned elsewhere, it fails the step with the same error.
        """
        # Imported here: procedure.py needs this module to be there first.

        given: Any = state
        if not isinstance(given, Submittable):
            msg = f"Status.again(state) takes a procedure of the same class, such as self, not {given!r:.60}"
            raise InvalidStatus(msg)
        return Renewing(state)

    @staticmethod
    def poisoned(keys: Iterable[str | LockKey] | str | LockKey, error: BaseException | str) -> Status:
        """End without being undone, and leave keys refused to other procedures until an operator clears them.

        Past the point of no return the step runs again instead, until it works; meanwhile the keys are refused.

        Args:
            keys: Keys, or their paths such as "catalog/db/table"; one or several.
            error: The reason, an exception or a text.

        Returns:
            The status.

        Raises:
            InvalidStatus: A key is none, or ``error`` is neither an exception nor a text.
        """
        given: Any = error
        if not isinstance(given, BaseException | str):
            msg = f"Status.poisoned(…, error) takes an exception or a text, not {given!r:.60}"
            raise InvalidStatus(msg)
        return Poisoning(_key_paths(keys), error)


class Renewing(Status, frozen=True):
    """`Status.again`."""

    state: Any


class Executing(Status, frozen=True):
    """`Status.executing`."""

    persist: bool = True
    yield_: bool = False
    after: float = 0.0
    acquire: tuple[LockKey, ...] = ()
    no_return: bool = False


class Suspending(Status, frozen=True):
    """`Status.suspended`; a child without an id of its own has None."""

    children: tuple[tuple[str | None, Any], ...]
    resume: Wait = "all"
    max_parallel: int | None = None
    on_parent_end: Literal["abort", "leave"] = "abort"


class Sleeping(Status, frozen=True):
    """`Status.sleep`, or `Status.sleep_until` with `until` in epoch seconds."""

    seconds: float = 0.0
    until: float | None = None


class Waiting(Status, frozen=True):
    """`Status.wait`."""

    event: str
    timeout: float | None = None


class Done(Status, frozen=True):
    """`Status.done`."""

    output: Any = None


class Poisoning(Status, frozen=True):
    """`Status.poisoned`."""

    keys: tuple[str, ...]
    error: Any


_EXECUTING = Executing()


def _seconds(where: str, value: float | timedelta) -> float:
    try:
        return in_seconds(value, f"Status.{where}")
    except (TypeError, ValueError) as error:
        raise InvalidStatus(str(error)) from None


def _key_paths(keys: Any) -> tuple[str, ...]:
    try:
        listed = (keys,) if isinstance(keys, str | LockKey) else tuple(keys)
        return tuple(
            checked_lock_key(key).path if isinstance(key, LockKey) else LockKey.write(key).path for key in listed
        )
    except (TypeError, ValueError) as error:
        msg = f"Status.poisoned(keys, …) takes key paths such as 'catalog/db/table': {error}"
        raise InvalidStatus(msg) from None


def _children(children: Iterable[Submittable | tuple[str, Submittable]]) -> tuple[tuple[str | None, Any], ...]:
    # Imported here: procedure.py needs this module to be there first.

    if isinstance(children, Submittable) or not isinstance(children, Iterable):
        msg = "Status.suspended takes an iterable of children: write Status.suspended([child])"
        raise InvalidStatus(msg)
    found: list[tuple[str | None, Any]] = []
    named: set[str] = set()
    entries: Iterable[Any] = children
    for index, entry in enumerate(entries):
        child_id, child = entry if isinstance(entry, tuple) and len(entry) == 2 else (None, entry)
        if not isinstance(child, Submittable):
            msg = f"child {index} of Status.suspended is {child!r:.80}, not a Procedure or an (id, Procedure) pair"
            raise InvalidStatus(msg)
        if child_id is not None:
            child_id = check_id(child_id)
            if child_id in named:
                msg = f"two children of Status.suspended have the id {child_id!r}"
                raise InvalidStatus(msg)
            named.add(child_id)
        found.append((child_id, child))
    return tuple(found)
