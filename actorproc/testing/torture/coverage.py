"""Coverage of faults by phase: counted from the lines of an episode, effective ones only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from actorproc.model.states import TERMINAL
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.faults import ClusterFault, FaultPhase, TortureFault

__all__ = ["Tally", "count", "table"]

_TERMINAL = frozenset(state.value for state in TERMINAL)


class Tally(msgspec.Struct):
    """Counts of one episode or of many."""

    hits: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """Effective faults by kind and phase."""
    wasted: Counter[str] = msgspec.field(default_factory=Counter)
    """Faults that struck when nothing was in flight, by kind."""
    violations: Counter[str] = msgspec.field(default_factory=Counter)
    """Episodes with violations, by the kinds of faults that struck in them."""
    episodes: int = 0
    failed: int = 0
    procedures: int = 0
    steps: int = 0
    """Executions of steps and undos, repeated ones included."""
    worker_kills: int = 0
    host_kills: int = 0
    commits_failed: int = 0
    broken: int = 0
    """Episodes in which the episode runner or the judge itself raised; they are in no other number."""

    def add(self, other: Tally) -> None:
        """Count another one in."""
        self.hits += other.hits
        self.wasted += other.wasted
        self.violations += other.violations
        for name in (
            "episodes",
            "failed",
            "procedures",
            "steps",
            "worker_kills",
            "host_kills",
            "commits_failed",
            "broken",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def faults(self) -> int:
        """Effective faults in all."""
        return self.hits.total()


_HOST_KILLS = {
    TortureFault.HOST_KILL,
    TortureFault.HOST_POINT,
    TortureFault.BOTH_KILL,
    TortureFault.STORM,
    TortureFault.RESTARTS,
    ClusterFault.LEADER_KILL,
    ClusterFault.FOLLOWER_KILL,
    ClusterFault.AGENT_KILL,
}
_WORKER_KILLS = {TortureFault.WORKER_KILL, TortureFault.WORKER_POINT, ClusterFault.WORKER_KILL}
_FAILED_COMMITS = {TortureFault.EIO_LOST, TortureFault.EIO_APPLIED, TortureFault.DISK_FULL}


def count(lines: Sequence[JournalLine], *, procedures: int, failed: bool) -> Tally:
    """The tally of one episode."""
    tally = Tally(episodes=1, failed=int(failed), procedures=procedures)
    open_: set[str] = set()
    for place, line in enumerate(lines):
        if line.kind == "enter":
            tally.steps += 1
        elif line.kind in {"submitted", "refused"}:
            (open_.add if line.kind == "submitted" else open_.discard)(line.procedure)
        elif line.kind == "durable":
            (open_.discard if line.mode in _TERMINAL else open_.add)(line.procedure)
        elif line.kind == "fault":
            phase = _phase_of(line, lines, place)
            if phase is FaultPhase.IDLE or not open_:
                tally.wasted[line.mode] += 1
            else:
                tally.hits[line.mode, phase.value] += 1
    for (kind, _), hits in tally.hits.items():
        tally.host_kills += hits if kind in _HOST_KILLS else 0
        tally.worker_kills += hits if kind in _WORKER_KILLS else 0
        tally.commits_failed += hits if kind in _FAILED_COMMITS else 0
    if failed:
        tally.violations.update({kind for kind, _ in tally.hits})
    return tally


def _phase_of(line: JournalLine, lines: Sequence[JournalLine], place: int) -> FaultPhase:
    """A worker that was killed when its step had ended took the answer along, if the step runs again."""
    phase = FaultPhase(line.state)
    if phase is not FaultPhase.ANSWERING or line.mode != TortureFault.WORKER_KILL:
        return phase
    for later in lines[place:]:
        if later.kind == "enter" and later.procedure == line.procedure and later.epoch == line.epoch:
            is_same = (later.step, later.mode) == (line.step, line.text)
            return FaultPhase.ANSWERING if is_same else FaultPhase.IDLE
    return FaultPhase.IDLE


def table(tally: Tally, kinds: type[TortureFault | ClusterFault] = TortureFault) -> str:
    """The table of faults by phases, and the totals below it."""
    phases = [phase for phase in FaultPhase if phase is not FaultPhase.IDLE]
    width = max(len(kind.value) for kind in kinds)
    head = " ".join(f"{phase.value:>10}" for phase in phases)
    rows = [f"{'fault':<{width}} {head} {'effective':>10} {'wasted':>7} {'violations':>10}"]
    for kind in kinds:
        cells = [tally.hits[kind.value, phase.value] for phase in phases]
        shown = " ".join(f"{cell or '.':>10}" for cell in cells)
        rows.append(
            f"{kind.value:<{width}} {shown} {sum(cells):>10} {tally.wasted[kind.value]:>7} "
            f"{tally.violations[kind.value]:>10}"
        )
    totals = (
        f"{tally.episodes} episodes, {tally.procedures} procedures, {tally.steps} steps run, "
        f"{tally.worker_kills} workers killed, {tally.host_kills} hosts killed, "
        f"{tally.commits_failed} failures of the disk, {tally.faults} effective faults in all"
    )
    broken = [f"{tally.broken} episodes could not be played or judged"] if tally.broken else []
    return "\n".join([*rows, "", totals, f"{tally.failed} episodes with violations", *broken])
