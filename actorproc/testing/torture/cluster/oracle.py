"""The judge of an episode of several processes. It is that of an episode of one host, with what several may do.

A host that stood still may go on with a step that its leader has given to another one. Such *ghosts* are left out,
and their effects on the world are for fences to keep off. All other copies of a step are a violation.

Beside the numbers of `actorproc.testing.torture.oracle`:

8 two copies of a step run at a time only if the host of one of them stood still, or if it ran on the own workers of a
leader that was succeeded, for as long as that may take to learn of it ·
28 epochs never fall, in the order of the commits, and a takeover raises them ·
29 no commit of an older epoch comes after one of a newer · 30 a parent is woken once for each suspend ·
34 what an application enqueued is a procedure, once, if its transaction was committed, and else it is none.

Answers that were given are not lost with a leader (6): the host keeps them. Promise 22 is not judged: to be told of
its undo a step waits for the next leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from actorproc.model.states import TERMINAL
from actorproc.testing.histories.evidence import StoreDump, Violation
from actorproc.testing.histories.real_histories import JournalHistory
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.cluster.plan import LEASE
from actorproc.testing.torture.oracle import EpisodeHistory, judge_root, judge_submits
from actorproc.testing.torture.orders.enqueueing import judge_enqueued
from actorproc.testing.torture.orders.reporting import judge_reports
from actorproc.testing.torture.orders.tagging import judge_lists
from actorproc.testing.torture.plan import Plan

__all__ = ["judge_cluster", "merged"]

_THAWS = 3_000_000_000
"""Nanoseconds from the moment when a host goes on until its workers are killed, on a machine that is overloaded."""
_STEPS_DOWN = int((LEASE + 3.0) * 1e9)
"""Nanoseconds from a takeover until the former leader has ended its own workers, unless it stood still."""
_OF_STEPS = {"enter", "effect", "exit", "raised"}
_BY_STEPS = {"given", "noted", "fenced", "conflict"}
_LOST_WITH_HOSTS = "host"
"""Kind of the error of a step that was lost with too many hosts in a row."""


def merged(lines: Iterable[JournalLine], testimony: Sequence[JournalLine]) -> list[JournalLine]:
    """The journal in its order, with what the database has seen at its times."""
    found: list[JournalLine] = []
    place = 0
    for line in lines:
        while place < len(testimony) and testimony[place].at <= line.at:
            found.append(testimony[place])
            place += 1
        found.append(line)
    return [*found, *testimony[place:]]


def judge_cluster(plan: Plan, lines: Iterable[JournalLine], dump: StoreDump, world: frozenset[str]) -> list[Violation]:
    """All violations of an episode. Pure.

    Args:
        plan: The plan.
        lines: Lines of the journal and of the witness, as `merged` gives them.
        dump: The store at the end.
        world: The files the procedures left, as ``id/order``.

    Returns:
        The violations.
    """
    everything = list(lines)
    found = _judge_commits(everything)
    frozen = _Frozen(everything)
    lines = _without_ghosts(everything, frozen)
    history = _ClusterHistory(dump, frozen)
    for line in lines:
        history.read(line)
    history.judge_end()
    stored = EpisodeHistory(dump)
    for line in lines:
        stored.read(line)
    found += history.found + stored.found
    found += judge_submits(lines, dump)
    found += judge_reports(lines, dump)
    found += judge_lists(plan.roots, dump)
    found += judge_enqueued(plan.roots, everything, dump)
    for root in plan.roots:
        if not _was_lost_with_hosts(root.id, dump):
            found += judge_root(root, lines, dump, world)
    return found


def _was_lost_with_hosts(root: str, dump: StoreDump) -> bool:
    """True if a step of the tree was given up because its hosts were lost with it, as four faults in a row may do."""
    return any(
        head.root == root and head.error is not None and _LOST_WITH_HOSTS in head.error.kind
        for head in dump.heads.values()
    )


# ------------------------------------------------------------ what stood still
class _Freeze(NamedTuple):
    pid: int
    start: int
    end: int


class _Frozen:
    """Times in which processes stood still, or led without knowing that others did."""

    def __init__(self, lines: Sequence[JournalLine]) -> None:
        self.times: list[_Freeze] = []
        self.takeovers = {line.epoch: line.at for line in lines if line.kind == "takeover"}
        self.candidates = {line.pid for line in lines if line.kind in {"leads", "follows"}}
        since: dict[int, tuple[int, int]] = {}
        """By process, since when, and how many faults keep it: they may strike at the same time."""
        for line in lines:
            if line.kind == "frozen":
                at, count = since.get(line.pid, (line.at, 0))
                since[line.pid] = at, count + 1
            elif line.kind == "thawed" and line.pid in since:
                at, count = since.pop(line.pid)
                if count > 1:
                    since[line.pid] = at, count - 1
                else:
                    self.times.append(_Freeze(line.pid, at, line.at))
        self.times += [_Freeze(pid, at, 1 << 62) for pid, (at, _) in since.items()]

    def has(self, line: JournalLine, until: int) -> bool:
        """True if the host of a step stood still at a time between its line and another one."""
        return any(one.pid == line.host and one.start <= until and one.end >= line.at for one in self.times)

    def has_ghost(self, line: JournalLine) -> bool:
        """True if the host of a line stands still, or has just begun to go on, or is a leader that was just succeeded.

        The own workers of a leader are no host: the next one does not wait for them, nor do they wait to be told.
        """
        taken = self.takeovers.get(line.epoch + 1)
        if line.host in self.candidates and taken is not None and taken <= line.at <= taken + _STEPS_DOWN:
            return True
        return any(one.pid == line.host and one.start <= line.at <= one.end + _THAWS for one in self.times)

    def has_any(self, at: int) -> bool:
        """True if any host stood still, or has just begun to go on."""
        return any(one.start <= at <= one.end + _THAWS for one in self.times)


def _without_ghosts(lines: Sequence[JournalLine], frozen: _Frozen) -> list[JournalLine]:
    """Leave out what copies of steps do on hosts that stood still, when a newer one has begun elsewhere."""
    kept: list[JournalLine] = []
    newest: dict[str, JournalLine] = {}
    ghosts: set[int] = set()
    for line in lines:
        if line.kind == "enter":
            before = newest.get(line.procedure)
            if before is not None and frozen.has_ghost(line) and _is_older(line, before):
                ghosts.add(line.pid)
                continue
            ghosts.discard(line.pid)
            newest[line.procedure] = line
        elif line.kind in _OF_STEPS:
            last = newest.get(line.procedure)
            is_other = last is not None and last.pid != line.pid
            if (line.pid in ghosts or is_other) and frozen.has_ghost(line):
                continue
        elif line.kind in _BY_STEPS and (frozen.has_any(line.at) if line.kind != "given" else line.pid in ghosts):
            continue
        kept.append(line)
    return kept


def _is_older(line: JournalLine, other: JournalLine) -> bool:
    if line.epoch != other.epoch:
        return line.epoch < other.epoch
    if line.mode != other.mode:
        return line.mode == "execute"
    if line.mode == "execute" and line.step != other.step:
        return line.step < other.step
    return line.step == other.step and line.attempt < other.attempt


class _ClusterHistory(JournalHistory):
    """Walk over the journal with hosts that are lost, stand still, or are given up."""

    def __init__(self, dump: StoreDump, frozen: _Frozen) -> None:
        super().__init__(dump)
        self._frozen = frozen
        self._lost: dict[int, int] = {}
        """Time at which a leader gave up a host, by its process; 0: one that it had not met."""
        self._candidates: set[int] = set()
        self._epoch = 0
        """Epoch of the newest leader."""
        self._now = 0

    def read(self, line: JournalLine) -> None:
        """As for one host; beside that, hosts that are given up."""
        self._now = line.at
        if line.kind == "host-lost":
            self._lost[line.pid] = line.at
        elif line.kind in {"leads", "follows"}:
            self._candidates.add(line.pid)
        elif line.kind == "takeover":
            self._epoch = line.epoch
        super().read(line)

    def _is_doomed(self, line: JournalLine) -> bool:
        """True if its process is killed, or its host, or if that stood still, or has lost the lead."""
        is_killed = line.pid in self.killed or line.host in self.killed
        is_former = line.host in self._candidates and line.epoch < self._epoch
        return line.host == 1 or is_killed or is_former or self._frozen.has(line, self._now)

    def _may_be_lost(self, exited: JournalLine, again: JournalLine) -> bool:
        """True if its host is lost with the answer, or if a leader has lost the lead with those of its own workers."""
        if exited.host in self._candidates and again.epoch > exited.epoch:
            return True
        given_up = max(self._lost.get(exited.host, 0), self._lost.get(0, 0))
        return given_up >= exited.at or self._is_doomed(exited)


# ------------------------------------------------------------ what the database has seen
def _judge_commits(lines: Iterable[JournalLine]) -> list[Violation]:
    found: list[Violation] = []
    epoch = 0
    waiting: dict[str, int] = {}
    woken: dict[tuple[str, int], int] = {}
    for line in lines:
        match line.kind:
            case "takeover":
                if line.epoch <= epoch:
                    found.append(Violation(28, f"the epoch {line.epoch} is taken after {epoch}"))
                epoch = max(epoch, line.epoch)
            case "committed" if line.epoch < epoch:
                found.append(Violation(29, f"commit {line.step} of epoch {line.epoch} comes after the epoch {epoch}"))
            case "durable":
                _judge_waking(line, waiting, woken, found)
    return found


def _judge_waking(
    line: JournalLine, waiting: dict[str, int], woken: dict[tuple[str, int], int], found: list[Violation]
) -> None:
    id, records = line.procedure, int(line.state)
    if line.mode.startswith("WAITING"):
        waiting[id] = records
    elif waiting.pop(id, None) == records and line.text == "" and line.mode not in TERMINAL:
        woken[id, records] = woken.get((id, records), 0) + 1
        if woken[id, records] > 1:
            found.append(Violation(30, f"{id} was woken {woken[id, records]} times at record {records}"))
