"""Schedules: procedures that start again and again, by cron expressions, intervals and calendars."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec

from actorproc.api.verbs.submit import SubmitVerbs, checked_terms
from actorproc.engine.arguments import checked_by, checked_reason
from actorproc.errors import InvalidId, StateTooLarge, StoreDamaged, UsageError
from actorproc.model.ids import check_id
from actorproc.model.messages.events import ScheduleDeclared, ScheduleSteered
from actorproc.model.rows.schedules import FIRING_TAG, CatchUp, Overlap, ScheduleRecord
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.declaring.policies import Limits
from actorproc.procedure.declaring.submit_options import Tags, checked_tags
from actorproc.report.info import ScheduleInfo
from actorproc.support.durations import in_seconds, moment, seconds_or_none
from actorproc.support.engine_log import engine_logger
from actorproc.support.recurrence import Calendar, advice, rule_of, spec_of, zone_name

if TYPE_CHECKING:
    from typing import Literal

__all__ = ["LONGEST_ID", "MOST_STATE", "ScheduleVerbs"]

LONGEST_ID = 107
"""Characters of the id of a schedule: with an instant behind it, it is the id of a procedure."""
MOST_STATE = 65_536
"""Bytes of the state of a schedule's procedure, which is written again with each firing."""
_LONGEST = 36_525 * 86_400.0
"""Seconds that a firing may be put off, or take: a century from any instant ends before dates do."""

logger = engine_logger("actorproc")


class ScheduleVerbs(SubmitVerbs):
    """`schedule`, `unschedule`, `pause_schedule`, `resume_schedule`, `reset_schedule`."""

    def schedule(
        self,
        when: str | timedelta | float | Calendar,
        procedure: Procedure,
        *,
        id: str,
        timezone: str | tzinfo = "UTC",
        seconds: bool = False,
        catch_up: CatchUp = "last",
        catch_up_within: float | timedelta | None = None,
        overlap: Overlap = "skip",
        jitter: float | timedelta = 0,
        until: datetime | float | None = None,
        owner: str | None = None,
        priority: int = 0,
        deadline: float | timedelta | None = None,
        tags: Tags | None = None,
        limits: Limits | None = None,
        limit_keys: Iterable[str] = (),
    ) -> ScheduleInfo:
        """Declare a schedule: a procedure that starts at each instant of a rule. Durable when it returns.

        To be called at each start of the program; it concerns the schedule of this id alone. With another rule or time
        zone than before, instants that lie before the call are never made up for. Each firing is a procedure of its
        own, with the tag ``schedule:ID``; its id is that of the schedule, ``@`` and the instant, and `Context`
        has the instant as ``scheduled_at``.

        Args:
            when: A cron expression of five fields (extra ``schedules``), an interval (a timedelta, or whole seconds),
                or a `Calendar`.
            procedure: The procedure; each firing starts as it is now.
            id: Name of the schedule, at most 107 characters.
            timezone: Time zone of its wall times, such as ``"Europe/Berlin"``. Default: UTC.
            seconds: The cron expression has six fields, of which the first is seconds. Default: False.
            catch_up: Instants that are made up for when no manager ran: ``"last"``, ``"all"`` (at most 1,000, one
                after the other), or ``"none"``. Default: "last".
            catch_up_within: Seconds, or a timedelta, after which a missed instant is not made up for. Default: None,
                without limit.
            overlap: Policy for an instant that comes while the firing before has not ended. ``"skip"`` passes over it,
                ``"queue"`` starts it afterwards (at most 1,000 wait), ``"cancel-running"`` aborts the one before, and
                starts after its undo. Default: "skip".
            jitter: Seconds, or a timedelta, by which the start of each firing is put off at most. Default: 0.
            until: Moment after which it fires no more: a datetime with a time zone, or seconds since 1970. Default:
                None.
            owner: As in `submit`.
            priority: As in `submit`.
            deadline: Seconds, or a timedelta, that each firing may take. Default: None.
            tags: As in `submit`; at most 99, beside that of the schedule.
            limits: As in `submit`.
            limit_keys: As in `submit`.

        Returns:
            A `ScheduleInfo` with the next instants.

        Raises:
            ValueError: The rule, the time zone or an option makes no sense, or needs the extra ``schedules``; the
                message says what to do.
            TypeError: An argument is of the wrong kind.
            StateNotEncodable: The state of the procedure cannot be stored.
            StateTooLarge: It takes more than 64 KiB.
            UsageError: The class has ``codec = "pickle"``, or cannot be run.
            InvalidId: The id is no id, or is too long.
            StoreDamaged: The row of this schedule cannot be read; `unschedule` removes it.
            ManagerStopped: No manager runs.
        """
        self._running()
        name = check_id(id)
        if len(name) > LONGEST_ID:
            msg = f"the id of a schedule has at most {LONGEST_ID} characters, as the ids of its firings contain it"
            raise InvalidId(msg)
        spec, zone = spec_of(when, seconds=seconds), zone_name(timezone)
        if rule_of(spec, zone).next(self._clock.wall()) is None:
            msg = f"the schedule {name} would never fire: {when!r:.80} has no instant to come"
            raise ValueError(msg)
        given = ScheduleRecord(
            id=name,
            spec=spec,
            timezone=zone,
            new=self._firing(procedure, name, owner, priority, tags, limits, limit_keys),
            catch_up=_one_of(catch_up, CatchUp, "catch_up"),
            catch_up_within=seconds_or_none(catch_up_within, "catch_up_within", least="above zero"),
            overlap=_one_of(overlap, Overlap, "overlap"),
            jitter=_bounded(in_seconds(jitter, "jitter"), "jitter"),
            until=None if until is None else moment(until, "until"),
            deadline=_bounded(seconds_or_none(deadline, "deadline", least="above zero"), "deadline"),
        )
        return self._declare(given)

    def _firing(self, procedure: Procedure, name: str, *options: Any) -> Any:
        """The procedure of a schedule as each firing submits it."""
        owner, priority, tags, limits, limit_keys = options
        checked = checked_terms(self._clock, owner, priority, tags=tags, limits=limits, limit_keys=limit_keys)
        new = self._describe(procedure, name, checked)
        if new.codec != "data":
            msg = (
                f"{new.type_name} has codec = 'pickle': its state is signed for one procedure, and a schedule starts "
                "many. Schedule a class with the default codec"
            )
            raise UsageError(msg)
        if len(new.state) > MOST_STATE:
            msg = (
                f"the state of {new.type_name} has {len(new.state)} bytes; that of a schedule may have {MOST_STATE}. "
                "Keep large data in a file and its path in the state"
            )
            raise StateTooLarge(msg)
        tag = FIRING_TAG + name
        tags = new.tags if tag in new.tags else checked_tags((*new.tags, tag))
        return msgspec.structs.replace(new, fresh=False, trace=None, tags=tags)

    def _declare(self, given: ScheduleRecord) -> ScheduleInfo:
        before = None
        with self._asking() as queries, suppress(StoreDamaged):  # the manager refuses it, and says what to do
            before = queries.schedule(given.id)
        who = checked_by(None)
        changed = self._running().request(lambda reply: ScheduleDeclared(given, reply, None, who))
        now = self.schedule_info(given.id)
        if changed and (hint := advice(given.spec)) is not None:
            logger.warning("schedule %s: %s", given.id, hint)
        if changed and before is not None and (before.rule, before.timezone) != (now.rule, now.timezone):
            words = (given.id, before.rule, before.timezone, now.rule, now.timezone)
            logger.warning("schedule %s was %r (%s) and is %r (%s) now; earlier instants are not made up for", *words)
        return now

    def unschedule(self, id: str, reason: str | None = None, *, by: str | None = None) -> None:
        """Remove a schedule. A firing that runs goes on. Durable when it returns, and recorded (`audit`).

        Args:
            id: The schedule; for a damaged row the name that `health()` shows.
            reason: An operator's reason. Default: None.
            by: Name of the one who asks. Default: None, the user of this process.

        Raises:
            UnknownProcedure: There is no such schedule.
            ManagerStopped: No manager runs.
        """
        self._steer(id, "remove", reason, by)

    def pause_schedule(self, id: str, reason: str | None = None, *, by: str | None = None) -> None:
        """Let a schedule fire no more until `resume_schedule`; what comes meanwhile is not made up for.

        Args:
            id: The schedule.
            reason: An operator's reason. Default: None.
            by: Name of the one who asks. Default: None, the user of this process.

        Raises:
            UnknownProcedure: There is no such schedule.
            ManagerStopped: No manager runs.
        """
        self._steer(id, "pause", reason, by)

    def resume_schedule(self, id: str, reason: str | None = None, *, by: str | None = None) -> bool:
        """Let a paused schedule fire again, from now on.

        Args:
            id: The schedule.
            reason: An operator's reason. Default: None.
            by: Name of the one who asks. Default: None, the user of this process.

        Returns:
            False when it was not paused.

        Raises:
            UnknownProcedure: There is no such schedule.
            ManagerStopped: No manager runs.
        """
        return self._steer(id, "resume", reason, by)

    def reset_schedule(self, id: str, reason: str | None = None, *, by: str | None = None) -> None:
        """Let a schedule go on from now, after a clock that was wrong had it fire instants that were still to come.

        Instants that wait are dropped. An instant whose procedure has ended starts that again, as a new generation.

        Args:
            id: The schedule.
            reason: An operator's reason. Default: None.
            by: Name of the one who asks. Default: None, the user of this process.

        Raises:
            UnknownProcedure: There is no such schedule.
            ManagerStopped: No manager runs.
        """
        self._steer(id, "reset", reason, by)

    def _steer(
        self, id: str, action: Literal["remove", "pause", "resume", "reset"], reason: str | None, by: str | None
    ) -> bool:
        # A damaged row may stand under a name that is no id, and is removed under the name that `health()` shows.
        name = id if action == "remove" and isinstance(id, str) else check_id(id)
        why, who = checked_reason(reason), checked_by(by)
        done: bool = self._running().request(lambda reply: ScheduleSteered(name, action, reply, why, who))
        return done


_S = TypeVar("_S", float, float | None)


def _bounded(seconds: _S, what: str) -> _S:
    if seconds is not None and seconds > _LONGEST:
        msg = f"{what}={seconds:g} is longer than a century; give seconds, not milliseconds"
        raise ValueError(msg)
    return seconds


def _one_of(given: Any, allowed: Any, what: str) -> Any:
    names = get_args(allowed)
    if not isinstance(given, str):
        msg = f"{what} is one of {', '.join(map(repr, names))}, not {given!r:.60}"
        raise TypeError(msg)
    if given not in names:
        msg = f"{what} is one of {', '.join(map(repr, names))}, not {given!r:.60}"
        raise ValueError(msg)
    return given
