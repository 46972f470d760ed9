"""Promises about locks and poison keys: who runs together, who gets a key, and what is left at the end (10)."""

from __future__ import annotations

from actorproc.model.ids import Mode, StepToken
from actorproc.model.policies import LockKey, LockMode
from actorproc.model.rows.records import LockRecord, PoisonRecord, ProcedureRecord, StepRecord
from actorproc.model.slots import host_of
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.testing.histories.evidence import StoreDump, Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["LockRules"]


class LockRules(Judge):
    """Judges by declared keys, not by the engine's lock table: a procedure that runs has its keys and keeps them."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.running: dict[str, StepToken] = {}
        self.holds: dict[str, dict[str, LockMode]] = {}
        """Keys that a tree took and keeps, by procedure."""
        self.locks: dict[tuple[str, str], LockRecord] = {}
        """Durable grants by (path, holder)."""
        self.given: dict[str, dict[str, LockMode]] = {}
        """By root, what it held at the beginning of this commit and was given in it."""
        self.poisons: dict[str, PoisonRecord] = {}
        self.suspects: list[tuple[LockRecord, PoisonRecord]] = []
        """Grants of this commit against a poison key."""

    # ------------------------------------------------------------ exclusion
    def on_enter(self, token: StepToken, *_: object) -> None:
        head = self.facts.heads.get(token.procedure)
        if head is None:
            return
        if token.mode is not Mode.ASK_ABORT:  # asked without locks
            self._check_exclusion(head)
        self.running[head.id] = token

    def on_exit(self, token: StepToken, *_: object) -> None:
        self.running.pop(token.procedure, None)

    def on_cut(self, token: StepToken) -> None:
        self.running.pop(token.procedure, None)

    def on_host_died(self) -> None:
        """Steps of the manager's own machine end with it."""
        self.running = {id: token for id, token in self.running.items() if host_of(token.worker.slot)}

    def _check_exclusion(self, head: ProcedureRecord) -> None:
        if not head.locks:
            return
        heads = self.facts.heads
        for other, token in self.running.items():
            # One that is asked `abort` may be waiting for its keys.
            is_apart = other != head.id and not self.facts.are_related(head.id, other)
            if is_apart and token.mode is not Mode.ASK_ABORT:
                self._compare(head, other, {key.path: key.mode for key in heads[other].locks})
        for other, held in self.holds.items():
            if heads[other].root != head.root and self._is_kept(other):
                self._compare(head, other, held)
        if head.lock_scope == "procedure":
            self.holds[head.id] = {key.path: key.mode for key in head.locks}

    def _compare(self, head: ProcedureRecord, other: str, held: dict[str, LockMode]) -> None:
        for path, mode in held.items():
            for key in head.locks:
                if _conflict(key, path, mode):
                    self.say(10, f"{head.id} runs with {key.mode.name} {key.path} while {other} has {mode.name} {path}")

    def _is_kept(self, holder: str) -> bool:
        """True while a lock stays taken: its holder, or an ancestor it was passed to, has not ended."""
        return any(self.facts.heads[name].state not in TERMINAL for name in self.facts.line(holder))

    def on_record(self, record: StepRecord, before: StepRecord | None) -> None:
        """A new generation keeps what it names itself, which is seen when it runs; the rest is let go."""
        if before is None and record.outcome == "again":
            for other in [other for other in self.holds if record.procedure in self.facts.line(other)]:
                del self.holds[other]

    def on_head(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        del before
        if record.state not in TERMINAL:
            return
        # A retried root takes its locks again, so what it had before does not come back by itself.
        for other in [other for other in self.holds if not self._is_kept(other)]:
            del self.holds[other]
        if record.parent is None:
            return  # those of children that outlive a root stay: see `_is_kept`
        if not self._is_passed_on(record):
            # What its own children had passed to it goes with it.
            for other in [other for other in self.holds if record.id in self.facts.line(other)]:
                del self.holds[other]

    def _is_passed_on(self, record: ProcedureRecord) -> bool:
        """A member that has not ended, or the root, has what an ended child leaves; ancestors may have ended before."""
        heads = self.facts.heads
        while record.parent is not None and record.state in TERMINAL:
            parent = heads[record.parent]
            if record.state is not ProcedureState.SUCCESS or not parent.undo_children:
                return False
            record = parent
        return True

    # ------------------------------------------------------------ poison keys
    def on_lock(self, lock: LockRecord) -> None:
        mine = self._given_to(lock.root)  # before this one is among the locks
        self.locks[lock.path, lock.holder] = lock
        if mine.get(lock.path, 0) >= lock.mode:
            return  # it passes within the tree
        mine[lock.path] = lock.mode
        for poison in self.poisons.values():
            poisoners = {poison.root, *(root for _, root in poison.others)}
            if lock.root not in poisoners and _overlap(poison.path, lock.path):
                self.suspects.append((lock, poison))

    def on_lock_gone(self, path: str, holder: str) -> None:
        gone = self.locks.get((path, holder))
        if gone is not None:
            self._given_to(gone.root)
            del self.locks[path, holder]

    def _given_to(self, root: str) -> dict[str, LockMode]:
        mine = self.given.get(root)
        if mine is None:
            mine = self.given[root] = {}
            for lock in self.locks.values():
                if lock.root == root:
                    mine[lock.path] = max(lock.mode, mine.get(lock.path, lock.mode))
        return mine

    def on_poison(self, poison: PoisonRecord) -> None:
        self.poisons[poison.path] = poison

    def on_poison_gone(self, path: str) -> None:
        self.poisons.pop(path, None)

    def on_removed(self, gone: str) -> None:
        """It had ended; another one may be submitted under its id in the same commit."""
        self.suspects = [suspect for suspect in self.suspects if gone not in {suspect[0].root, suspect[0].holder}]

    def on_committed(self) -> None:
        for lock, poison in self.suspects:
            head, root = self.facts.heads[lock.holder], self.facts.heads[lock.root]
            # Who undoes, or has no way back, needs its keys whatever happened to them.
            if not (head.rolling or head.undoing or head.state in TERMINAL or root.no_return):
                self.say(10, f"{lock.holder} was given {lock.path}, which {poison.by} had poisoned as {poison.path}")
        self.suspects.clear()
        self.given.clear()

    # ------------------------------------------------------------ the end
    def check_end(self, dump: StoreDump) -> None:
        if all(head.state in TERMINAL for head in dump.heads.values()):
            self.found += [Violation(10, f"still held at the end: {lock}") for lock in dump.locks]
        if {poison.path for poison in dump.poisons} != self.poisons.keys():
            self.say(10, f"the store has the poison keys {dump.poisons}, the commits left {list(self.poisons)}")


def _conflict(key: LockKey, path: str, mode: LockMode) -> bool:
    return (mode is LockMode.WRITE or key.mode is LockMode.WRITE) and _overlap(path, key.path)


def _overlap(one: str, other: str) -> bool:
    """True if two lock paths are the same or one lies below the other."""
    return one == other or one.startswith(other + "/") or other.startswith(one + "/")
