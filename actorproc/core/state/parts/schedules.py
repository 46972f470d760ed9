"""Schedules: their rows, and what is known of their last firings."""

from __future__ import annotations

from actorproc.model.rows.schedules import Rule, RuleOf, ScheduleRecord

__all__ = ["ScheduleTable", "named_by_timer", "no_rules", "timer_name"]

_TIMER = "schedule "
"""Beginning of the names under which schedules have timers; no id has a space."""


def timer_name(schedule: str) -> str:
    """The name under which a schedule has its timer, beside those of procedures."""
    return _TIMER + schedule


def named_by_timer(name: str) -> str | None:
    """The schedule of a timer; None: the timer is that of a procedure."""
    return name.removeprefix(_TIMER) if name.startswith(_TIMER) else None


def no_rules(spec: str, timezone: str, anchor: int) -> Rule:
    """The arithmetic of a core that was given none: each schedule is at fault."""
    del timezone, anchor
    msg = f"this core was given no arithmetic for rules such as {spec!r:.60}"
    raise ValueError(msg)


class ScheduleTable:
    """Part of the `EngineState`: all schedules of the store. Empty, it costs one look for each end of a procedure."""

    def __init__(self, now: float = 0.0) -> None:
        self.rule_of: RuleOf = no_rules
        self.began = now
        """Time of the start, from which declarations are waited for."""
        self.records: dict[str, ScheduleRecord] = {}
        self.by_firing: dict[str, str] = {}
        """Schedules by the id of their last firing."""
        self.last_state: dict[str, str] = {}
        """State of the last firing by schedule: "open", "stuck" (its undo gave up), or "" when it has ended. Where a
        schedule is missing it is not known, and the firing has to be looked up."""
        self.armed: dict[str, float] = {}
        """Time of the timer of each schedule that has one."""
        self.suspected: dict[str, float] = {}
        """Schedules that came due more than a day late, with the time at which the clock is looked at again."""

    def reckon_by(self, rules: RuleOf) -> None:
        """Take the arithmetic of rules."""
        self.rule_of = rules

    def put(self, record: ScheduleRecord) -> None:
        """Note a schedule as it is now."""
        known = self.records.get(record.id)
        self.records[record.id] = record
        if known is not None and known.fired != record.fired:
            self.by_firing.pop(known.id_of(known.fired), None)
            self.last_state.pop(record.id, None)
        if record.fired:
            self.by_firing[record.id_of(record.fired)] = record.id

    def drop(self, schedule: str) -> None:
        """Forget a schedule; its last firing goes on."""
        record = self.records.pop(schedule)
        self.by_firing.pop(record.id_of(record.fired), None)
        self.last_state.pop(schedule, None)
        self.suspected.pop(schedule, None)

    def note_open(self, procedure: str) -> None:
        """A procedure that had ended goes on, or begins anew."""
        if procedure in self.by_firing:
            self.last_state[self.by_firing[procedure]] = "open"
