"""Promises to those who ask: a reply is that of a step which ended well, stored with it, told after, and stays (20)."""

from __future__ import annotations

from typing import Any

from actorproc.model.ids import Mode, StepToken
from actorproc.model.rows.asks import AskKey, ReplyRecord, ask_of
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL
from actorproc.testing.histories.evidence import Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["AskRules"]

_Key = tuple[str, str]
"""Procedure, and mark of the ask."""


class AskRules(Judge):
    """Judges stored replies against what steps answered, and what is told against what is stored."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.stored: dict[_Key, ReplyRecord] = {}
        self.given: dict[str, set[bytes]] = {}
        """Replies in the answers of steps, by procedure; "": a step answered without one."""
        self.delivered: set[_Key] = set()
        self.due: list[_Key] = []
        """Asks whose steps ended well in this commit."""
        self.withdrawn: set[str] = set()
        self.ever: set[str] = set()
        """Procedures that have ended, in whatever run."""

    def on_exit(self, token: StepToken, unit: str | None, outcome: Any) -> None:
        del unit
        if token.mode is Mode.EXECUTE:
            requests = getattr(outcome, "requests", None)
            reply = b"" if requests is None else requests.reply or b""
            self.given.setdefault(token.procedure, set()).add(reply)

    def on_call(self, reply: int, kind: str, target: str, payload: bytes) -> None:
        del reply, payload
        if kind == "withdraw":
            self.withdrawn.add(target)

    # ------------------------------------------------------------ commits
    def on_reply_stored(self, record: ReplyRecord) -> None:
        key = record.procedure, record.mark
        if key in self.stored:
            self.say(20, f"the ask {record.ask} to {record.procedure} was answered twice: {self.stored[key]}, {record}")
        if record.value not in self.given.get(record.procedure, ()):
            self.say(20, f"{record} was stored, and no step has answered so")
        self.stored[key] = record

    def on_reply_gone(self, procedure: str, mark: str) -> None:
        self.stored.pop((procedure, mark), None)
        self.say(20, f"the reply to {mark!r} of {procedure} is gone, and that procedure is not")

    def on_removed(self, id: str) -> None:
        for known in (self.stored, self.delivered):
            for key in [key for key in known if key[0] == id]:
                known.pop(key) if isinstance(known, dict) else known.discard(key)

    def on_head(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        if record.state in TERMINAL:
            self.ever.add(record.id)
        old = None if before is None else before.payload
        taken = ask_of(record.payload)
        if taken is not None and record.payload != old:
            self._check_delivery(record, taken)
        answered = ask_of(old)
        if answered is not None and before is not None and record.payload is None and record.step > before.step:
            self.due.append((record.id, answered.mark))

    def _check_delivery(self, record: ProcedureRecord, ask: AskKey) -> None:
        # What is retried goes on at an earlier record: behind that one are those of its end.
        awaited = self.facts.records.get((record.id, record.state_at or record.records))
        if awaited is not None and awaited.awaits != ask.name and not record.rolling:
            self.say(20, f"{record.id} took {ask}, and waited for {awaited.awaits}")
        if (record.id, ask.mark) in self.delivered and (record.id, ask.mark) not in self.stored:
            return  # it was stopped before its step had seen it, and is woken by it again
        if (record.id, ask.mark) in self.stored:
            self.say(20, f"{record.id} took {ask}, which has its reply")
        self.delivered.add((record.id, ask.mark))

    def on_committed(self) -> None:
        for key in self.due:
            if key not in self.stored and key[0] in self.facts.heads:
                self.say(20, f"a step of {key[0]} that took the ask {key[1]!r} ended well, and no reply is noted")
        self.due.clear()

    # ------------------------------------------------------------ answers
    def on_resolve_ask(self, id: str, ask: AskKey, value: bytes | None) -> None:
        """One who asked was told."""
        known = self.stored.get((id, ask.mark))
        head = self.facts.heads.get(id)
        if value is None:
            is_gone = head is None or head.state in TERMINAL
            if not is_gone and id not in self.withdrawn and known is None:
                self.say(20, f"who asked {id} for {ask} was told that the ask is gone, and it was not withdrawn")
        elif head is not None and (known is None or known.value != value):
            self.say(20, f"who asked {id} for {ask} was told {value!r}, and stored is {known}")

    def on_ask_ended(self, id: str, ask: AskKey) -> None:
        """One who asked was told that the procedure has ended without a reply."""
        head = self.facts.heads.get(id)
        if (id, ask.mark) in self.stored:
            self.say(20, f"who asked {id} for {ask} was told of its end, and stored is {self.stored[id, ask.mark]}")
        elif head is not None and head.state not in TERMINAL and not self.ended_before(id):
            self.say(20, f"who asked {id} for {ask} was told of its end, and it has not ended: {head}")

    def ended_before(self, id: str) -> bool:
        """True if it had ended in an earlier run or generation, of which the caller may have been told since."""
        return id in self.ever
