"""Goals that histories must reach sometimes: a checker that finds nothing proves something only for what did happen.

Each `Goal` is something random histories must show now and then ("sometimes" assertions, as Antithesis calls them). A
sight counts only where it took effect, so it is read from commits and answers, never from the scenario.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

from actorproc.errors import KeyPoisoned, ManagerBusy, NotAllowed, UnknownProcedure
from actorproc.model.ids import Mode, name_of_event
from actorproc.model.messages.outcomes import Advanced, Refused
from actorproc.model.names import LAST_HEARTBEAT
from actorproc.model.rows.records import WITH_RUNNING, WITH_SLOT, ProcedureRecord
from actorproc.model.rows.writes import (
    DeleteEvent,
    DeletePoison,
    DeleteProcedure,
    PutAcknowledgement,
    PutEvent,
    PutExposed,
    PutNote,
    PutPoison,
    PutProcedure,
    PutRemoval,
    PutReply,
    PutStart,
    PutSwitch,
)
from actorproc.model.states import TERMINAL, ProcedureState
from tests.simulator.rules.judge import Entry

__all__ = ["Goal", "goals_in"]


class Goal(StrEnum):
    """Something worth seeing."""

    RESUMED_BY_ANY = "a parent went on while children were outstanding (any)"
    RESUMED_BY_EACH = "a parent went on for one child after another (each)"
    WAITED_AGAIN = "a parent waited for the next of the same children"
    JOINED = "further children joined those that a parent had not seen the end of"
    GROUP_AFTER_GROUP = "a parent had other children when all before them had ended"
    WENT_STRAIGHT_ON = "a parent that was to wait for children went on at once, as one had ended meanwhile"
    LEFT_BEHIND = "a child outlived its parent"
    TAKEN_ALONG = "a parent that was done had its outstanding children undone behind it"
    KEPT_BACK = "max_parallel kept a child back"
    SAW_A_FAILURE = "a parent resumed with a failed child"
    POISONED_FOR_A_STEP = "poison_keys() poisoned a key"
    TOOK_POISON_BACK = "a step took its poison key back"
    CLEARED = "clear_poison() cleared a key"
    ENDED_POISONED = "Status.poisoned ended a procedure"
    SUBMIT_REFUSED = "a submit was refused for a poisoned key"
    WAITER_REFUSED = "a procedure that waited for a key failed when it was poisoned"
    GAVE_UP = "a rollback gave up and left poison keys"
    TOO_DEEP = "the quota of depth was exceeded"
    TOO_MANY_CHILDREN = "the quota of children was exceeded"
    TOO_MANY_IN_TREE = "the quota of a tree was exceeded"
    WAITED_FOR_LOCKS = "a procedure waited for locks"
    DEADLOCK = "a cycle of lock waiting was broken"
    ACQUIRED = "a step got locks that the one before had asked for"
    LOCKED_TO_UNDO = "an undo asked for its step's locks anew"
    WITHDRAWN = "a signal that none had taken was withdrawn"
    EVENT_EXPIRED = "an event that none had taken was removed for its age"
    UNKNOWN_RECEIVER = "a signal was refused, as its procedure was not there"
    SIGNALLED_BY_ID = "a signal to an id was delivered"
    SIGNAL_KEPT = "a signal was kept until a procedure waited for it"
    TIMED_OUT = "a wait timed out and failed"
    ASKED_ON_TIMEOUT = "on_timeout() was called"
    ASKED_TO_ABORT = "abort() was asked"
    ABORTED = "a procedure was aborted"
    KILLED_BY_FORCE = "a forced abort killed a running step"
    TOLD_OF_UNDO = "a running step was told that its undo is decided"
    OUTSTAYED = "a step that was told of its undo was killed when its time was over"
    DEADLINE_MISSED = "a deadline passed"
    CRASHED = "a step was charged with the death of its worker"
    STUCK = "a step past the point of no return failed and was repeated"
    RAN_UNSAVED = "several steps were saved as one"
    NOTED = "a step made a note"
    EXPOSED = "a step showed a value"
    HEARTBEAT = "a step sent a heartbeat with details"
    RAN_WARM = "a step went on with the live object"
    TWO_SCOPES = "two branches of a tree failed at once"
    PARKED = "a procedure was parked"
    RETRIED = "a failed root was retried with the step it failed in"
    UNDONE_FURTHER = "a rollback that had given up was retried"
    RETRY_REFUSED = "a retry was refused"
    SAVED = "a retried root succeeded"
    BYPASSED = "a procedure was bypassed"
    BYPASSED_PARENT = "a parent that waited for children was bypassed"
    BYPASSED_UNDO = "a procedure that was being undone was bypassed"
    BYPASSED_FAILED = "a failed root was bypassed"
    ROLLED_BACK = "an unfinished root was rolled back on request"
    PAUSED = "a procedure was paused"
    PAUSED_ALL = "the manager was paused"
    ENDED_PAUSED = "a paused procedure ended all the same"
    GOT_SLOTS = "a procedure got slots of its limit keys"
    LENT_SLOTS = "a procedure gave its slots back before its end"
    COUNTED = "a rate limit counted a start"
    KEPT_OUT = "a root waited until fewer others ran"
    BUSY = "a submit was refused because too many were unfinished"
    LET_GO = "a worker left in order"
    ACKNOWLEDGED = "a result was acknowledged"
    DELETED = "a tree was deleted by hand"
    EXPIRED = "a tree was removed by the clock"
    IN_PARTS = "a tree was removed in several commits"
    USED_ANEW = "the id of a removed procedure was used again"
    REPEATED = "a signal that had come before was recognized"
    ANSWERED = "a step replied to an ask"
    UNANSWERED = "a step that took an ask gave no reply"
    ASKED_AGAIN = "an ask that had its reply came once more"
    BEGAN_AGAIN = "a procedure ended a generation and began anew"
    RESTARTED = "an ended root began anew with a submit"
    SENT_AGAIN = "a submit that had restarted a root came once more"
    SHED = "children of an earlier generation were removed"
    SHARED_POISON = "several procedures had poisoned one key"
    RELOADED = "workers were replaced while a procedure was unfinished"
    STAYED_NEW = "what new code had run went on with new code while there were workers with old"
    PLACED = "a saga was placed before another step"
    UNBEGUN = "a saga found no place in new code"
    TAKEN = "the result of a call was taken and its record removed"
    TAKEN_EARLY = "a result was to be taken that was not there yet"


_BY_ERROR = {
    "poisoned": Goal.ENDED_POISONED,
    "deadlock": Goal.DEADLOCK,
    "wait-timeout": Goal.TIMED_OUT,
    "aborted": Goal.ABORTED,
    "deadline": Goal.DEADLINE_MISSED,
    "crash": Goal.CRASHED,
}
_BY_MESSAGE = {
    "nested deeper than": Goal.TOO_DEEP,
    "one procedure may have": Goal.TOO_MANY_CHILDREN,
    "would have more than": Goal.TOO_MANY_IN_TREE,
    "it needs a poisoned key": Goal.WAITER_REFUSED,
}


def goals_in(journal: Iterable[Entry]) -> Counter[Goal]:
    """Number of times each goal was reached; the same thing of one procedure may count again."""
    watcher = _Watcher()
    for kind, *fields in journal:
        handler = watcher.handlers.get(kind)
        if handler is not None:
            handler(*fields)
    return watcher.seen


class _Watcher:
    def __init__(self) -> None:
        self.seen: Counter[Goal] = Counter()
        self.handlers: dict[str, Callable[..., None]] = {
            "commit": self._commit,
            "sent": self._sent,
            "exit": self._exit,
            "children": self._children,
            "call": self._call,
            "reply": self._reply,
            "resubmit": self._resubmit,
            "kill": self._kill,
            "ask-abort": self._ask_abort,
            "worker-left": self._worker_left,
            "worker-died": self._worker_died,
            "reload": self._reload,
        }
        self.heads: dict[str, ProcedureRecord] = {}
        self.old: set[Any] = set()
        self.renewed: set[str] = set()
        """Workers with old code while a reload lasts, and what was sent to those with new code."""
        self.clearing: dict[int, str] = {}
        self.signalling: dict[int, str] = {}
        self.kept: dict[tuple[str, int], bytes] = {}
        """Payloads of signals that none has taken, by target and number."""
        self.verbs: dict[int, tuple[str, str]] = {}
        """Other calls: what was asked for, and of whom."""
        self.removed: set[str] = set()
        self.granted: set[bytes] = set()
        """Signals with ids that were acknowledged."""
        self.sent_ids: dict[int, bytes] = {}
        self.replied: set[tuple[str, str]] = set()

    # ------------------------------------------------------------ executions and calls
    def _sent(self, token: Any, record: int, warm: bool) -> None:
        del record
        if warm:
            self.seen[Goal.RAN_WARM] += 1
        if token.mode is Mode.ON_TIMEOUT:
            self.seen[Goal.ASKED_ON_TIMEOUT] += 1
        elif token.mode is Mode.ASK_ABORT:
            self.seen[Goal.ASKED_TO_ABORT] += 1

        if self.old and token.worker not in self.old:
            self.seen[Goal.STAYED_NEW] += token.procedure in self.renewed
            self.renewed.add(token.procedure)

    def _reload(self, old: tuple[Any, ...]) -> None:
        unfinished = any(head.state not in TERMINAL for head in self.heads.values())
        self.seen[Goal.RELOADED] += bool(old) and unfinished
        self.old = set(old)
        self.renewed.clear()

    def _exit(self, token: Any, unit: str | None, outcome: Any) -> None:
        del token, unit
        self.seen[Goal.RAN_UNSAVED] += outcome.steps > 1
        self.seen[Goal.PLACED] += isinstance(outcome, Advanced) and outcome.placed
        self.seen[Goal.UNBEGUN] += isinstance(outcome, Refused) and outcome.is_unbegun

    def _children(self, token: Any, since: int, rows: tuple[Any, ...]) -> None:
        del since
        head = self.heads[token.procedure]
        if head.wait == "each" and rows:
            self.seen[Goal.RESUMED_BY_EACH] += 1
        if any(state is not ProcedureState.SUCCESS for _, state, _ in rows):
            self.seen[Goal.SAW_A_FAILURE] += 1

    def _call(self, reply: int, kind: str, target: str, payload: bytes) -> None:
        if kind == "clear":
            self.clearing[reply] = target
        elif kind in {"signal", "publish"}:
            if kind == "signal":
                self.signalling[reply] = target
            if payload.startswith(b"signal id "):
                self.sent_ids[reply] = payload
            asked = target, payload.rpartition(b" ")[2].decode()
            self.seen[Goal.ASKED_AGAIN] += payload.startswith(b"signal ask ") and asked in self.replied
        else:
            self.verbs[reply] = (kind, target)

    def _resubmit(self, reply: int, id: str, token: bytes) -> None:
        del reply
        self.seen[Goal.SENT_AGAIN] += id in self.heads and token in self.heads[id].tokens

    def _reply(self, reply: int, value: object, error: object) -> None:
        verb, target = self.verbs.get(reply, ("", ""))
        if isinstance(error, KeyPoisoned) and not verb:
            self.seen[Goal.SUBMIT_REFUSED] += 1
        if verb == "taken" and error is None and target in self.heads | dict.fromkeys(self.removed):
            self.seen[Goal.TAKEN_EARLY] += bool(value)
            self.seen[Goal.TAKEN] += not value and target in self.removed
            self.seen[Goal.EXPIRED] -= not value and target in self.removed
        self.seen[Goal.BUSY] += isinstance(error, ManagerBusy)
        self.seen[Goal.RETRY_REFUSED] += verb == "retry" and isinstance(error, (NotAllowed, KeyPoisoned))
        if value and verb == "delete":
            self.seen[Goal.DELETED] += 1
            self.seen[Goal.EXPIRED] -= target in self.removed
        elif value and verb == "rollback":
            self.seen[Goal.ROLLED_BACK] += 1
        self.seen[Goal.WITHDRAWN] += verb == "withdraw" and bool(value)
        self.seen[Goal.UNKNOWN_RECEIVER] += isinstance(error, UnknownProcedure) and reply in self.signalling
        payload = self.sent_ids.get(reply)
        if error is None and value is not False and payload is not None:
            self.seen[Goal.REPEATED] += payload in self.granted
            self.granted.add(payload)
        if self.clearing.pop(reply, None) is not None and value:
            self.seen[Goal.CLEARED] += 1
        if self.signalling.get(reply) in self.heads and value:
            self.seen[Goal.SIGNALLED_BY_ID] += 1

    def _kill(self, token: Any, reason: str) -> None:
        del token
        if "force" in reason:
            self.seen[Goal.KILLED_BY_FORCE] += 1
        elif "abort_grace" in reason:
            self.seen[Goal.OUTSTAYED] += 1

    def _ask_abort(self, token: Any) -> None:
        head = self.heads.get(token.procedure)
        self.seen[Goal.TOLD_OF_UNDO] += head is not None and head.rolling

    def _worker_died(self, worker: Any) -> None:
        self.old.discard(worker)

    def _worker_left(self, worker: Any) -> None:
        self.old.discard(worker)
        self.seen[Goal.LET_GO] += 1

    # ------------------------------------------------------------ commits
    def _commit(self, epoch: int, writes: list[Any]) -> None:
        del epoch
        gone: list[tuple[str, bytes]] = []
        for write in writes:
            match write:
                case PutProcedure(record=record):
                    self._head(record, self.heads.get(record.id))
                    self._operation(record, self.heads.get(record.id))
                    self.heads[record.id] = record
                case PutPoison(record=poison):
                    self.seen[Goal.SHARED_POISON] += bool(poison.others)
                    gave_up = poison.reason.startswith("rollback of")
                    if gave_up or "poison_keys()" in poison.reason:
                        self.seen[Goal.GAVE_UP if gave_up else Goal.POISONED_FOR_A_STEP] += 1
                case DeletePoison() if write.path not in self.clearing.values():
                    self.seen[Goal.TOOK_POISON_BACK] += 1
                case PutReply(record=reply):
                    self.seen[Goal.ANSWERED if reply.value else Goal.UNANSWERED] += 1
                    self.replied.add((reply.procedure, reply.ask))
                case PutEvent(record=event) if not event.taken:
                    self.kept[event.target, event.seq] = event.payload
                case DeleteEvent():
                    gone.append((write.target, self.kept.pop((write.target, write.seq), b"")))
                case _:
                    self._read_other(write)
        taken = {write.record.payload for write in writes if isinstance(write, PutProcedure)} if gone else set()
        for target, payload in gone:
            self.seen[Goal.SIGNAL_KEPT] += payload in taken
            is_left = name_of_event(target) is not None and payload not in taken
            self.seen[Goal.EVENT_EXPIRED] += is_left and ("withdraw", target) not in self.verbs.values()
        failing = Counter(head.root for head in self.heads.values() if head.failing)
        if any(count > 1 for count in failing.values()):
            self.seen[Goal.TWO_SCOPES] += 1

    def _head(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        seen = self.seen
        if before is not None and before.state is ProcedureState.WAITING:
            goes_on = record.state is ProcedureState.RUNNABLE and not record.rolling
            seen[Goal.RESUMED_BY_ANY] += goes_on and record.wait == "any" and record.pending > 0
        if before is not None:
            self._waiting(record, before)
        if record.parent is not None and record.state in TERMINAL:
            above = self.heads[record.parent]
            is_over = above.state is ProcedureState.SUCCESS
            seen[Goal.LEFT_BEHIND] += is_over and above.on_parent_end == "leave"
            seen[Goal.TAKEN_ALONG] += is_over and above.on_parent_end == "abort"
        seen[Goal.KEPT_BACK] += bool(record.pending) and record.started < record.width
        seen[Goal.PARKED] += record.parked is not None
        seen[Goal.WAITED_FOR_LOCKS] += bool(record.ticket) and not record.locked and not record.rolling
        seen[Goal.LOCKED_TO_UNDO] += bool(record.undoing) and not record.locked
        if before is not None:
            added = set(record.locks) - set(before.locks)
            seen[Goal.ACQUIRED] += bool(added) and not record.rolling
        self._error(record, before)

    def _waiting(self, record: ProcedureRecord, before: ProcedureRecord) -> None:
        seen = self.seen
        has_more = record.children > before.children > 0
        seen[Goal.JOINED] += has_more and record.group == before.group
        seen[Goal.GROUP_AFTER_GROUP] += has_more and record.group > before.group > 0
        if record.step == before.step or record.rolling or not record.awaiting:
            return
        waits = record.state is ProcedureState.WAITING and record.pending > 0
        seen[Goal.WAITED_AGAIN] += waits and record.children == before.children
        seen[Goal.WENT_STRAIGHT_ON] += record.state is ProcedureState.RUNNABLE and record.seen > before.seen

    def _read_other(self, write: Any) -> None:
        match write:
            case PutNote(record=note):
                self.seen[Goal.HEARTBEAT if note.key.endswith(LAST_HEARTBEAT) else Goal.NOTED] += 1
            case PutExposed():
                self.seen[Goal.EXPOSED] += 1
            case PutSwitch(paused=paused):
                self.seen[Goal.PAUSED_ALL] += paused is not None
            case PutStart():
                self.seen[Goal.COUNTED] += 1
            case PutAcknowledgement():
                self.seen[Goal.ACKNOWLEDGED] += 1
            case PutRemoval(record=removal):
                self.seen[Goal.IN_PARTS] += 1
                self._gone(removal.root)
            case DeleteProcedure(record=record):
                self._gone(record.id)
                self.heads.pop(record.id, None)

    def _gone(self, id: str) -> None:
        head = self.heads.get(id)  # a part of a tree may be removed twice in one commit
        is_root = head is not None and head.parent is None
        root = None if head is None else self.heads.get(head.root)
        self.seen[Goal.SHED] += not is_root and root is not None and root.state not in TERMINAL
        # Until it is answered, a removal by hand looks like one by the clock.
        self.seen[Goal.EXPIRED] += is_root and id not in self.removed
        self.removed.add(id)

    def _operation(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        seen = self.seen
        if before is None:
            seen[Goal.USED_ANEW] += record.id in self.removed
            seen[Goal.RESTARTED] += record.generation > 1
            return
        has_ended = record.state in TERMINAL and before.state not in TERMINAL
        seen[Goal.BEGAN_AGAIN] += record.generation > before.generation
        if record.run > before.run and record.parent is None:
            if record.bypassed:
                seen[Goal.BYPASSED_FAILED] += 1
            else:
                seen[Goal.UNDONE_FURTHER if record.rolling else Goal.RETRIED] += 1
        seen[Goal.SAVED] += has_ended and record.state is ProcedureState.SUCCESS and record.run > 1
        if record.bypassed and not before.bypassed:
            seen[Goal.BYPASSED] += 1
            seen[Goal.BYPASSED_UNDO] += before.rolling
            seen[Goal.BYPASSED_PARENT] += before.children > 0 and before.state is ProcedureState.WAITING
        seen[Goal.PAUSED] += record.paused is not None and before.paused is None
        seen[Goal.ENDED_PAUSED] += has_ended and before.paused is not None
        slots = before.admitted in WITH_SLOT, record.admitted in WITH_SLOT
        seen[Goal.GOT_SLOTS] += slots[1] > slots[0]
        seen[Goal.LENT_SLOTS] += slots[1] < slots[0] and record.state not in TERMINAL and not record.rolling
        was_let_in = record.admitted in WITH_RUNNING and before.admitted not in WITH_RUNNING
        seen[Goal.KEPT_OUT] += was_let_in and record.step == 1 and not record.attempt

    def _error(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        error = record.error
        if error is None or (before is not None and before.error == error):
            return
        sight = _BY_ERROR.get(error.kind)
        if sight is not None:
            self.seen[sight] += 1
        for text, meaning in _BY_MESSAGE.items():
            self.seen[meaning] += text in error.message
        self.seen[Goal.STUCK] += record.errors > 0 and self.heads.get(record.root, record).no_return
