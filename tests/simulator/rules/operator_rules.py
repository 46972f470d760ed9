"""Promises to operators: what is paused stands still, limits are kept, and what was granted was done (20, 21)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeVar

from actorproc.model.ids import Mode, StepToken
from actorproc.model.policies import Scheduling
from actorproc.model.rows.cold_trees import is_alone
from actorproc.model.rows.records import WITH_RUNNING, WITH_SLOT, ProcedureRecord, StartRecord
from actorproc.model.states import TERMINAL
from actorproc.testing.histories.evidence import Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["OperatorRules"]

T = TypeVar("T")
_Place = tuple[int, int, int, int]
"""Position of a procedure: step, records, undo unit, attempt."""


class OperatorRules(Judge):
    """Judges what is handed out by the pauses and limits that are durable, and every answer to an operator."""

    def __init__(self, facts: Facts, found: list[Violation], scheduling: Scheduling) -> None:
        super().__init__(facts, found)
        self.scheduling = scheduling
        self.free: dict[str, _Place] = {}
        """Position of each procedure when nothing was paused above it for the last time."""
        self.switch: str | None = None
        """Reason for which the whole manager is paused."""
        self.asked: dict[int, tuple[str, str]] = {}
        self.done_before: dict[int, int] = {}
        self.done: Counter[tuple[str, str]] = Counter()
        """Number of times that a verb was done durably, by verb and target."""
        self.starts: dict[str, list[float]] = {}
        self.has_clock_gone_back = False
        """Then the ages of starts are not what they seem."""
        self.has_slots_changed = False
        self.unended: set[str] = set()
        self.delivered: dict[bytes, str] = {}
        """Signals with ids that were delivered, and to whom."""

    # ------------------------------------------------------------ pauses
    def on_sent(self, token: StepToken, record: int, warm: bool) -> None:
        del record, warm
        head = self.facts.heads.get(token.procedure)
        if head is None or token.mode is Mode.ASK_ABORT:
            return
        # Decided before the pause, in the same batch: then it runs to its end, as a running step does.
        if self._pause_over(head) is not None and self.free.get(head.id) != _place(head):
            self.say(21, f"{token} was handed out although {self._pause_over(head)}")
        is_new = token.mode is Mode.EXECUTE and not head.rolling and not head.bypassing
        if is_new and self._keys_of(head) and head.admitted not in WITH_SLOT:
            self.say(21, f"{token} was handed out without slots of {self._keys_of(head)}")

    def _pause_over(self, head: ProcedureRecord) -> str | None:
        if self.switch is not None:
            return "the manager is paused"
        heads = self.facts.heads
        name: str | None = head.id
        while name is not None and (above := heads.get(name)) is not None:
            if above.paused is not None:
                return f"{name} is paused"
            name = above.parent
        return None

    def on_switch(self, paused: str | None) -> None:
        if paused != self.switch:  # else the row was written for the number of audit rows beside it
            self.done["pause" if paused is not None else "resume", ""] += 1
        self.switch = paused

    # ------------------------------------------------------------ limits
    def _keys_of(self, head: ProcedureRecord) -> list[str]:
        return [key for key in head.limit_keys if self._capacity(key) is not None]

    def _capacity(self, key: str) -> int | None:
        return _rule(self.scheduling.concurrency, key)

    def on_start(self, start: StartRecord) -> None:
        rate = _rule(self.scheduling.rate, start.key)
        if rate is None or self.has_clock_gone_back:
            return
        times = self.starts.setdefault(start.key, [])
        times.append(start.at)
        most, span = rate
        if sum(start.at - span < at <= start.at for at in times) > most:
            self.say(21, f"{start.key!r} had more than {most} starts in {span:g} s: {times}")

    def on_clock_back(self) -> None:
        self.has_clock_gone_back = True

    def on_committed(self) -> None:
        if not self.has_slots_changed:
            return
        self.has_slots_changed = False
        live = [head for head in self.facts.heads.values() if head.state not in TERMINAL and head.admitted]
        held = Counter(key for head in live if head.admitted in WITH_SLOT for key in head.limit_keys)
        for key, count in held.items():
            capacity = self._capacity(key)
            if capacity is not None and count > capacity:
                self.say(21, f"{count} procedures hold slots of {key!r}, {capacity} may")
        most = self.scheduling.max_running
        # A retried root is let in at once, as its tree may hold locks that others wait for.
        running = sum(head.admitted in WITH_RUNNING and head.run == 1 for head in live)
        if most is not None and running > most:
            self.say(21, f"{running} roots run, {most} may")

    # ------------------------------------------------------------ heads
    def on_head(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        (self.unended.discard if record.state in TERMINAL else self.unended.add)(record.id)
        if self._pause_over(record) is None:
            self.free[record.id] = _place(record)
        self.has_slots_changed |= bool(record.admitted)
        if record.payload is not None and (before is None or before.payload != record.payload):
            self._note_payload(record, record.payload)
        if before is None:
            return
        if record.paused != before.paused:
            self.done["pause" if record.paused is not None else "resume", record.id] += 1
        if record.audits > before.audits:  # all that a kill leaves in the head
            self.done["kill", record.id] += 1
        if record.bypassed or record.bypassing:
            self.done["bypass", record.id] += 1
        if record.run > before.run:
            self.done["retry", record.id] += 1
        if record.rolling:
            self.done["rollback", record.id] += 1

    def _note_payload(self, record: ProcedureRecord, payload: bytes) -> None:
        if payload.startswith(b"signal id "):
            other = self.delivered.setdefault(payload, record.id)
            if other != record.id:
                self.say(20, f"the signal {payload!r} was delivered to {other} and to {record.id}")

    def on_removed(self, id: str) -> None:
        self.done["delete", id] += 1
        self.done["taken", id] += 1
        if id in self.unended:
            self.unended.discard(id)
            self.say(1, f"{id} was removed before it had ended")
        self.free.pop(id, None)

    def on_signal_taken(self, target: str, seq: int) -> None:
        del seq
        self.done["withdraw", target] += 1

    def on_acknowledged(self, root: str) -> None:
        self.done["acknowledge", root] += 1

    # ------------------------------------------------------------ answers
    def on_call(self, reply: int, kind: str, target: str, payload: bytes) -> None:
        del payload
        if kind not in {"abort", "clear", "signal"}:
            self.asked[reply] = (kind, target)
            self.done_before[reply] = self.done[kind, target]
        if kind == "taken" and ((head := self.facts.heads.get(target)) is None or not is_alone(head)):
            del self.asked[reply]  # there was no result to take, or one of a tree, which is not for `taken`

    def on_reply(self, reply: int, value: object, error: object) -> None:
        if reply in self.asked and self.asked[reply][0] == "taken" and error is None:
            self._check_taken(reply, self.asked[reply][1], value)
            return
        if reply not in self.asked or error is not None or not value:
            return
        kind, target = self.asked[reply]
        head = self.facts.heads.get(target)
        # Asking again for what is so already is granted, and nothing has to be done.
        is_so = kind in {"pause", "bypass", "rollback", "acknowledge"} and self.done[kind, target]
        if not is_so and self.done[kind, target] == self.done_before[reply]:
            self.say(20, f"{kind} of {target or 'all'} was granted and is not durable: {head}")

    def _check_taken(self, reply: int, target: str, left: Any) -> None:
        """A result that was taken is gone, unless the answer says that its call is not at rest."""
        head = self.facts.heads.get(target)
        is_gone = head is None or self.done["taken", target] > self.done_before[reply]
        if not is_gone and head is not None and is_alone(head) and target not in left:
            self.say(20, f"the result of {target} was taken, and it is still stored: {head}")


def _place(head: ProcedureRecord) -> _Place:
    return head.step, head.records, head.undoing, head.attempt


def _rule(rules: Mapping[str, T], key: str) -> T | None:
    """Rule for a key, by its name or the longest pattern that it begins with."""
    if key in rules:
        return rules[key]
    fitting = [name for name in rules if name.endswith("*") and key.startswith(name[:-1])]
    return rules[max(fitting, key=len)] if fitting else None
