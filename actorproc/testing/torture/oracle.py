"""The judge of an episode: what was written down, the store at the end and the world, as one pure function.

It begins with `check_journal` and adds what the host's own lines make visible. By the numbers of
`tests.simulator.rules.invariants`:

1 nothing is acknowledged before it is durable · 4 what is durable is never gone, nor goes back · 5 no step begins
before the attempt it was handed out in is durable · 6 none begins when its result is durable · 9 `remember` gives what
it gave before · 11 nothing is left in the world of what was rolled back · 12 a parent goes on when its children's ends
are durable · 13 a tree that succeeded has the members its orders say · 14 each end is one that the orders allow, with
the output they say, told only when it is durable · 15 everything ends when the faults stop · 16 a recovery that is
repeated leads to the same · 18 no process outlives its host · 20 what was refused is not there, and each ask has one
reply ·
22 a running step is told within a second that its undo is decided, or killed within its grace and a second ·
26 an attempt is given the heartbeat of an earlier one of its step, and what a last step showed is stored with its end ·
27 fences of the attempts of a procedure grow ·
33 of debounced submits the last one runs, once · 35 lists by tags and searchable fields are what heads say.

Restarts, and attempts that operators kill, have judges of their own (`operating`).

Seen elsewhere, or not from outside: 0, 17 (`14` for neighbours of a procedure that kills workers), 19 and 21.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from actorproc.model.states import TERMINAL
from actorproc.testing.histories.evidence import StoreDump, Violation
from actorproc.testing.histories.real_histories import check_journal
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.orders.asking import judge_asks
from actorproc.testing.torture.orders.cancelling import CancelJudge
from actorproc.testing.torture.orders.debouncing import judge_debounces, runs_of
from actorproc.testing.torture.orders.operating import AGAIN, KillJudge, RestartJudge
from actorproc.testing.torture.orders.reporting import judge_reports
from actorproc.testing.torture.orders.tagging import judge_lists
from actorproc.testing.torture.plan import Plan, Root, Spec, work_of

__all__ = ["EpisodeHistory", "judge", "judge_root", "judge_submits"]

_TERMINAL = frozenset(state.value for state in TERMINAL)
_FOUND = {"stalled": 15, "orphan": 18, "unsound": 16, "fenced": 27}


def judge(plan: Plan, lines: Iterable[JournalLine], dump: StoreDump, world: frozenset[str]) -> list[Violation]:
    """All violations of an episode. Pure. `world` has the files the procedures left, as ``id/order``."""
    lines = list(lines)
    found = [*_judge_operators(plan, lines, dump, world), *judge_lists(plan.roots, dump)]
    found += judge_debounces(lines, dump, world)
    lines, dump = _without_generations_and_runs(lines, dump)
    found += check_journal(lines, dump)
    if not any(line.kind == "enter" for line in lines):
        # A user's own procedures, which keep no journal: what ran cannot be compared with what is stored.
        found = [violation for violation in found if violation.number not in {3, 11}]
    history = EpisodeHistory(dump)
    for line in lines:
        history.read(line)
    found += history.found
    cancelling = CancelJudge(lambda number, text: found.append(Violation(number, text)))
    for line in lines:
        cancelling.read(line)
    found += judge_submits(lines, dump)
    found += judge_reports(lines, dump)
    found += judge_asks(plan.roots, lines, dump)
    for root in plan.roots:
        if not root.restarts:
            found += judge_root(root, lines, dump, world)
    return found


def _judge_operators(plan: Plan, lines: list[JournalLine], dump: StoreDump, world: frozenset[str]) -> list[Violation]:
    found: list[Violation] = []

    def say(number: int, text: str) -> None:
        found.append(Violation(number, text))

    judges = {root.id: RestartJudge(root.id, root.spec, root.restarts, say) for root in plan.roots if root.restarts}
    kills = KillJudge(dump.attempts, say)
    for line in lines:
        kills.read(line)
        if line.procedure in judges:
            judges[line.procedure].read(line)
    for judge_ in judges.values():
        judge_.end({id: head for id, head in dump.heads.items() if head.root == judge_.id}, world)
    return found


def _without_generations_and_runs(lines: list[JournalLine], dump: StoreDump) -> tuple[list[JournalLine], StoreDump]:
    """Leave out restarted trees, whose generations the other rules would take for one, and what was debounced."""
    runs = runs_of(dump)
    heads = {id: head for id, head in dump.heads.items() if not head.root.startswith(AGAIN) and id not in runs}
    kept = [
        line
        for line in lines
        if line.kind in _FOUND or not (line.procedure.startswith(AGAIN) or line.procedure in runs)
    ]
    steps = {id: dump.steps[id] for id in heads}
    return kept, msgspec.structs.replace(dump, heads=heads, steps=steps)


class _Head(msgspec.Struct):
    """Last state of a procedure that was seen to be durable."""

    parent: str | None
    root: str
    epoch: int
    step: int
    attempt: int
    state: str
    records: int
    rolling: bool


def _after(head: _Head) -> set[str]:
    """States that may follow an end: a member of a tree that fails later is undone."""
    return {head.state} if head.parent is None or head.state != "SUCCESS" else {head.state, "ROLLEDBACK", "FAILED"}


class EpisodeHistory:
    """One walk over the journal with what is durable at each line."""

    def __init__(self, dump: StoreDump) -> None:
        self.dump = dump
        self.found: list[Violation] = []
        self.heads: dict[str, _Head] = {}
        self.children: dict[str, list[str]] = {}
        self.in_doubt = False
        """A commit was begun, and its host died before it could say that it was done."""
        self.remembered: dict[tuple[str, int], str] = {}

    def say(self, number: int, text: str) -> None:
        self.found.append(Violation(number, text))

    def read(self, line: JournalLine) -> None:
        match line.kind:
            case "durable":
                self._durable(line)
            case "loaded":
                self._loaded(line)
            case "writing" | "written":
                self.in_doubt = line.kind == "writing"
            case "enter":
                self._enter(line)
            case "acknowledged":
                if line.procedure not in self.heads:
                    self.say(1, f"{line.procedure} is acknowledged before it is durable")
            case "resolved":
                head = self.heads.get(line.procedure)
                if head is None or head.state != line.text:
                    self.say(14, f"{line.procedure} is told to have ended as {line.text}; durable is {head}")
            case "noted":
                value = self.remembered.setdefault((line.procedure, line.step), line.text)
                if value != line.text:
                    self.say(9, f"step {line.step} of {line.procedure} remembers {line.text} and {value}")
            case "stalled" | "orphan" | "unsound" | "fenced":
                self.say(_FOUND[line.kind], f"{line.procedure} {line.text}".strip())

    def _durable(self, line: JournalLine) -> None:
        id = line.procedure
        head = _Head(
            parent=line.parent,
            root=line.root,
            epoch=line.epoch,
            step=line.step,
            attempt=line.attempt,
            state=line.mode,
            records=int(line.state),
            rolling=line.text == "rolling",
        )
        before = self.heads.get(id)
        if before is None:
            if line.parent is not None:
                self.children.setdefault(line.parent, []).append(id)
        elif head.records < before.records or head.epoch < before.epoch:
            self.say(4, f"{id} goes back from {before} to {head}")
        elif before.state in _TERMINAL and head.state not in _after(before):
            self.say(14, f"{id} was {before.state} and is {head.state}")
        self.heads[id] = head

    def _loaded(self, line: JournalLine) -> None:
        """All that had not finished must have been read back, unless the commit in doubt was its end."""
        ended: list[tuple[_Head, str]] = []
        for id, head in self.heads.items():
            top = self.heads.get(head.root)
            is_open = head.state not in _TERMINAL and top is not None and top.state not in _TERMINAL
            if is_open and head.epoch < line.epoch:
                final = self.dump.heads.get(id)
                if self.in_doubt and final is not None and final.state in TERMINAL:
                    ended.append((head, final.state.value))
                else:
                    self.say(4, f"{id} was durable ({head}) and is gone from the store in epoch {line.epoch}")
        for head, state in ended:
            head.state = state
        self.in_doubt = False

    def _enter(self, line: JournalLine) -> None:
        head = self.heads.get(line.procedure)
        if head is None:
            self.say(5, f"{_shown(line)} runs and is not durable")
        elif line.mode == "execute":
            self._enter_forward(line, head)
        elif line.mode == "rollback" and not any(
            other.rolling for other in self.heads.values() if other.root == head.root
        ):
            self.say(5, f"{_shown(line)} is undone, and no failure of its tree is durable")

    def _enter_forward(self, line: JournalLine, head: _Head) -> None:
        if head.step > line.step:
            self.say(6, f"{_shown(line)} runs although its result is durable: {head}")
        elif head.step < line.step or (head.attempt < line.attempt and not head.rolling):
            self.say(5, f"{_shown(line)} runs before that is durable: {head}")
        parent = self.dump.heads.get(line.procedure)
        if parent is not None and parent.wait == "all":
            open_ = [
                child for child in self.children.get(line.procedure, ()) if self.heads[child].state not in _TERMINAL
            ]
            if open_ and not head.rolling:
                self.say(12, f"{_shown(line)} goes on before the end of {open_[0]} is durable")


def judge_submits(lines: list[JournalLine], dump: StoreDump) -> list[Violation]:
    """A submit whose last attempt was refused, and none before it left in doubt, was not done."""
    last: dict[str, str] = {}
    doubtful: set[str] = set()
    for line in lines:
        if line.kind == "submitted" and last.get(line.procedure) == "submitted":
            doubtful.add(line.procedure)  # the host died in it
        if line.kind in {"submitted", "acknowledged", "refused", "unknown"}:
            last[line.procedure] = line.kind
            if line.kind == "unknown":
                doubtful.add(line.procedure)
    return [
        Violation(20, f"the submit of {id} was refused, and it is in the store")
        for id, what in last.items()
        if what == "refused" and id not in doubtful and id in dump.heads
    ]


def judge_root(root: Root, lines: list[JournalLine], dump: StoreDump, world: frozenset[str]) -> list[Violation]:
    head = dump.heads.get(root.id)
    if head is None:
        return []  # never acknowledged, or `check_journal` has said so
    if head.state not in TERMINAL:
        return [Violation(15, f"{root.id} is {head.state} at the end")]
    if head.state.value not in root.ends:
        error = "" if head.error is None else f": {head.error.kind} {head.error.message}"
        return [Violation(14, f"{root.id} is {head.state}, its orders allow {' or '.join(root.ends)}{error}")]
    members = {id: other for id, other in dump.heads.items() if other.root == root.id}
    left = {name for name in world if name.partition("/")[0] in members}
    found = [
        Violation(11, f"{name.partition('/')[0]} is rolled back, and there is still {name}")
        for name in sorted(left)
        if members[name.partition("/")[0]].state.value == "ROLLEDBACK"
    ]
    if head.state.value == "SUCCESS":
        found += _judge_success(root, len(members), len(left), lines)
    return found


def _judge_success(root: Root, members: int, left: int, lines: list[JournalLine]) -> list[Violation]:
    found = []
    if root.exact and members != work_of(root.spec):
        found.append(Violation(13, f"{root.id} has {members} members, its orders say {work_of(root.spec)}"))
    if root.exact and left != _files_of(root.spec):
        found.append(Violation(3, f"{root.id} left {left} files, its orders say {_files_of(root.spec)}"))
    outputs = {line.text for line in lines if line.kind == "output" and line.procedure == root.id}
    wanted = {_output_of(root.spec)}
    if outputs and outputs != wanted:
        found.append(Violation(14, f"{root.id} gave {outputs}, its orders say {wanted}"))
    return found


def _files_of(spec: Spec) -> int:
    return len(spec["orders"]) + sum(
        _files_of(child) for order in spec["orders"] for child in order.get("children", ())
    )


def _output_of(spec: Spec) -> str:
    # A circuit ends without an output.
    return "None" if spec["type"] == "circuit" else str(len(spec["orders"]))


def _shown(line: JournalLine) -> str:
    return f"{line.procedure} step {line.step} attempt {line.attempt} ({line.mode}, epoch {line.epoch})"
