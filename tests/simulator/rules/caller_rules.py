"""Promises to callers: nothing acknowledged is lost, ends are final, answers are honest (1, 2, 14, 15, 17, 20)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from actorproc.errors import UnknownProcedure
from actorproc.model.ids import StepToken, event_target, name_of_event
from actorproc.model.rows.asks import opened
from actorproc.model.rows.record_parts import TOKEN
from actorproc.model.rows.records import EventRecord, NewProcedure, ProcedureRecord
from actorproc.model.rows.schedules import FIRING_TAG
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.testing.histories.evidence import StoreDump, Violation
from tests.simulator.generators.enqueued import ENQUEUED_TAG
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["CallerRules"]

Ending = tuple[ProcedureState, bytes]
"""State and output of a procedure that has ended."""


class CallerRules(Judge):
    """Judges every answer against what is durable when it is given, and the store against all answers."""

    def __init__(
        self, facts: Facts, found: list[Violation], bystander: str | None, *, is_forgetful: bool = False
    ) -> None:
        super().__init__(facts, found)
        self.is_forgetful = is_forgetful
        """Events that no procedure takes are removed in the end."""
        self.bystander = bystander
        self.submits: dict[int, tuple[str, ...]] = {}
        self.calls: dict[int, tuple[str, str, bytes]] = {}
        """Calls by reply number: kind, target, payload."""
        self.about_known: set[int] = set()
        """Calls about procedures that were stored when they were made."""
        self.acknowledged: set[str] = set()
        self.answered: set[int] = set()
        self.refused: set[str] = set()
        """Ids that were new when they were submitted, and refused."""
        self.known: dict[int, frozenset[str]] = {}
        """Those of a submit's ids that were stored before."""
        self.offered: set[str] = set()
        self.endings: dict[str, Ending] = {}
        """Endings that were read, by procedure."""
        self.sent: list[tuple[str, bytes]] = []
        """Signals that were acknowledged."""
        self.delivered: set[bytes] = set()
        self.kept: dict[tuple[str, int], EventRecord] = {}
        self.cleared: dict[str, int] = {}
        """Number of removals of each poison key."""
        self.cleared_before: dict[int, int] = {}
        self.fell: set[str] = set()
        """Ids and event names of those who failed while they waited for a signal."""
        self.gone_now: list[EventRecord] = []
        """Kept signals whose rows went in this commit, taken or not."""
        self.withdrawn: set[str] = set()
        """Targets of which an operator wanted all signals withdrawn."""
        self.let_go: set[bytes] = set()
        """Signals that none took, and that went for a good reason."""
        self.has_failed_now = False
        self.ever: dict[str, set[ProcedureState]] = {}
        """States in which a procedure had ended, in whatever run."""
        self.aborted: set[str] = set()
        """Procedures that had a durable request to abort."""
        self.removed: set[str] = set()
        self.latest: dict[str, ProcedureRecord] = {}
        """The newest head of each id, also of those that were removed."""
        self.used_anew: set[str] = set()
        """Ids that were given to procedures that know nothing of those before."""
        self.resubmits: dict[int, list[tuple[str, bytes]]] = {}
        """Ids and tokens of submits with a policy for ids that exist."""

    # ------------------------------------------------------------ questions and answers
    def on_submit(self, reply: int, ids: tuple[str, ...]) -> None:
        self.submits[reply] = ids
        self.known[reply] = frozenset(self.facts.heads.keys() & set(ids))
        self.offered.update(ids)

    def on_debounce(self, reply: int, new: NewProcedure) -> None:
        del reply
        self.offered.add(new.id)

    def on_exit(self, token: StepToken, unit: str | None, outcome: Any) -> None:
        del token, unit
        requests = getattr(outcome, "requests", None)
        if requests is not None:  # a step has answered with roots of their own
            self.offered.update(new.id for new in requests.roots)

    def on_resubmit(self, reply: int, id: str, token: bytes) -> None:
        self.resubmits.setdefault(reply, []).append((id, token))

    def on_call(self, reply: int, kind: str, target: str, payload: bytes) -> None:
        self.calls[reply] = (kind, target, payload)
        if kind == "withdraw":
            self.withdrawn.add(target)
        if target in self.facts.heads:
            self.about_known.add(reply)
        self.cleared_before[reply] = self.cleared.get(target, 0)

    def on_reply(self, reply: int, value: object, error: object) -> None:
        if reply in self.calls:
            if self.calls[reply][0] in {"abort", "clear", "signal", "publish"}:
                self._answer_call(reply, value, error)
            return
        ids = self.submits.get(reply, ())
        self.answered.add(reply)
        if error is not None:
            self.refused.update(id for id in ids if id not in self.known[reply])
            return
        self.acknowledged.update(ids)
        missing = [id for id in ids if id not in self.facts.heads.keys() | self.removed]
        if missing:
            self.say(1, f"submit of {missing} was acknowledged before it was durable")
        for id, token in self.resubmits.get(reply, ()):
            head = self.facts.heads.get(id)
            if head is not None and token not in tokens_of(head) and id not in self.used_anew:
                self.say(1, f"the restart of {id} was acknowledged before it was durable: {head}")

    def _answer_call(self, reply: int, value: object, error: object) -> None:
        kind, target, payload = self.calls[reply]
        head = self.facts.heads.get(target)
        # One that an operator bypasses is as good as ended.
        has_ended = target in self.ever or (head is not None and head.bypassing)
        if error is not None:
            # What was submitted after it was asked may be durable before the answer is told.
            is_denied = kind == "abort" or (kind == "signal" and isinstance(error, UnknownProcedure))
            if is_denied and reply in self.about_known and head is not None and target not in self.removed:
                self.say(20, f"{kind} of {target} was answered with {error!r}, yet it is stored")
        elif kind == "clear":
            if value and self.cleared.get(target, 0) == self.cleared_before[reply]:
                self.say(20, f"clearing {target} was acknowledged, yet it is still poisoned")
        elif kind == "publish":
            self.sent.append((target, payload))
        elif not value:
            if not has_ended:
                self.say(20, f"{kind} of {target} was answered False, yet it has not ended")
        elif kind == "abort":
            if target not in self.aborted:
                self.say(20, f"abort of {target} was acknowledged and is not durable")
        elif head is None and target not in self.removed:
            self.say(20, f"a signal to {target} was acknowledged, and there is no such procedure")
        else:
            self.sent.append((target, payload))

    # ------------------------------------------------------------ ends
    def on_read(self, endings: Iterable[tuple[str, ProcedureState, bytes]]) -> None:
        """The store was read: before a restart, after it, at the end."""
        for id, state, output in endings:
            self._check_ending(id, (state, output))

    def on_resolve(self, id: str, state: ProcedureState, output: bytes) -> None:
        """A handle was told."""
        if state not in self.ever.get(id, ()):
            self.say(20, f"the handles of {id} were told {state}, yet it has not ended")
        head = self.facts.heads.get(id)
        if head is not None and head.state is state:  # else a retry or a removal came with the same commit
            self._check_ending(id, (state, output))

    def _check_ending(self, id: str, ending: Ending) -> None:
        before = self.endings.setdefault(id, ending)
        head = self.facts.heads.get(id)
        is_child = head is not None and head.parent is not None
        if before != ending and not (is_child and before[0] is ProcedureState.SUCCESS):
            self.say(14, f"{id} was read as {before} and later as {ending}")
        self.endings[id] = ending

    # ------------------------------------------------------------ commits
    def on_created(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        """A restart takes what has ended, once for each submit; who removed it by hand has forgotten it."""
        del before
        known = self.latest.get(record.id)
        if record.generation == 1:
            if known is not None:
                self.used_anew.add(record.id)
        elif known is None or known.state not in TERMINAL:
            self.say(14, f"{record.id} began generation {record.generation}, yet it had not ended: {known}")
        elif record.generation != known.generation + 1:
            self.say(14, f"{record.id} began generation {record.generation} behind {known.generation}")
        elif record.tokens[:TOKEN] in tokens_of(known):
            self.say(20, f"one submit of {record.id} began generation {record.generation} and one before it")

    def on_head(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        self.latest[record.id] = record
        if record.payload is not None:
            self.delivered.add(opened(record.payload)[1])
        if record.aborting:
            self.aborted.add(record.id)
        if record.state in TERMINAL:
            self.ever.setdefault(record.id, set()).add(record.state)
        if before is not None and before.state in TERMINAL and record.state is not before.state:
            self.endings.pop(record.id, None)  # `log_rules` says whether that may be
        self.has_failed_now |= record.rolling and (before is None or not before.rolling)
        is_over = record.rolling or record.bypassing or record.state in TERMINAL
        if before is not None and before.event is not None and is_over:
            # It may have been woken, and have failed over its locks, in one decision.
            self.fell.update((record.id, event_target(before.event)))
        if record.id == self.bystander and record.errors:
            self.say(17, f"the bystander was charged with an error: {record.error}")

    def on_signal_kept(self, event: EventRecord) -> None:
        self.kept[event.target, event.seq] = event

    def on_signal_taken(self, target: str, seq: int) -> None:
        if (target, seq) in self.kept:
            self.gone_now.append(self.kept.pop((target, seq)))

    def on_committed(self) -> None:
        if self.has_failed_now:
            # Who took it was stopped in the same decision, before the step that would have seen it.
            self.delivered.update(opened(row.payload)[1] for row in self.gone_now)
        self.let_go.update(opened(row.payload)[1] for row in self.gone_now if self._may_go(row.target))
        self.gone_now.clear()
        self.has_failed_now = False

    def _may_go(self, target: str) -> bool:
        """True if a kept signal may go untaken: it was withdrawn, its procedure has ended, or it was an event."""
        if target in self.withdrawn or target in self.ever:
            return True
        return self.is_forgetful and name_of_event(target) is not None

    def on_removed(self, id: str) -> None:
        """A finished procedure, or a whole tree, is not there any more; its buffered signals went with it."""
        self.removed.add(id)
        self.endings.pop(id, None)

    def on_poison_gone(self, path: str) -> None:
        self.cleared[path] = self.cleared.get(path, 0) + 1

    # ------------------------------------------------------------ the end
    def check_end(self, dump: StoreDump) -> None:
        for id in sorted(self.acknowledged - dump.heads.keys() - self.removed):
            self.say(1, f"{id} was acknowledged and is not in the store")
        # A submit without an answer may have been done.
        unanswered = {id for reply, ids in self.submits.items() if reply not in self.answered for id in ids}
        for id in sorted((self.refused - self.acknowledged - unanswered) & dump.heads.keys()):
            self.say(20, f"submit of {id} was refused, yet it is stored")
        for id, head in dump.heads.items():
            is_offered = any(tag == ENQUEUED_TAG or tag.startswith(FIRING_TAG) for tag in head.tags)
            if head.parent is None and id not in self.offered and not is_offered:
                self.say(2, f"{id} is stored and was never submitted")
            if head.state not in TERMINAL:
                self.say(15, f"{id} never ended: {_shown(head)}")
        waiting = {opened(row.payload)[1] for row in self.kept.values()} | self.let_go
        for target, payload in self.sent:
            is_known = payload in self.delivered or payload in waiting or target in self.fell
            if not is_known and target not in self.removed:
                self.say(20, f"the signal {payload!r} to {target} was acknowledged and is gone")
        if self.bystander is not None and self.bystander in dump.heads:
            head = dump.heads[self.bystander]
            if head.state is not ProcedureState.SUCCESS:
                self.say(17, f"the bystander is {head.state}: {head.error}")


def tokens_of(head: ProcedureRecord) -> list[bytes]:
    """Tokens of the submits that began the generations of a procedure, the newest first."""
    return [head.tokens[at : at + TOKEN] for at in range(0, len(head.tokens), TOKEN)]


def _shown(head: ProcedureRecord) -> str:
    first = ("state", "step", "attempt", "errors", "crashes", "rolling", "failing", "undoing")
    names = (*first, "locked", "pending", "due_at", "event", "parked")
    return ", ".join(f"{name}={getattr(head, name)}" for name in names)
