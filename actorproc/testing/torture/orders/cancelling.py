"""Steps that are told of an abort, or are deaf to it, and the judge of how soon they hear and how soon they are killed.

A listening step runs until `Context.aborting` is true; a deaf one ticks on, through SIGTERM as well. Both give up after
`CAP` seconds, so that an engine that tells no step is found out and does not stand still.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from random import Random
from typing import Any

from actorproc.procedure.authoring.context import Context
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.record import EpisodeJournal

__all__ = ["ABORT_GRACE", "CAP", "GRACE", "WAITS", "CancelJudge", "draw_cancelled"]

CAP = 2.5
"""Seconds after which a step that is not stopped goes on by itself."""
ABORT_GRACE = 0.2
"""`Limits.abort_grace` of the class of deaf steps, in seconds."""
GRACE = 0.1
"""`Limits.grace` of that class, in seconds."""
_BOUND = 1.0
"""Seconds within which a step is told, or dead after its grace, on a machine that does its part."""
_TICK = 0.05


# ------------------------------------------------------------ steps
def listen(journal: EpisodeJournal, ctx: Context) -> None:
    """Run until an abort is heard of."""
    _note(journal, "listening", ctx)
    end = time.monotonic() + CAP
    while time.monotonic() < end:
        if ctx.aborting:
            _note(journal, "heard", ctx)
            return
        time.sleep(0.005)


def go_on_deaf(journal: EpisodeJournal, ctx: Context) -> None:
    """Run on, whatever is said or signalled."""
    end = time.monotonic() + CAP
    while time.monotonic() < end:
        with contextlib.suppress(BaseException):  # what SIGTERM raises in the step
            _note(journal, "tick", ctx)
            time.sleep(_TICK)


def _note(journal: EpisodeJournal, kind: str, ctx: Context) -> None:
    journal.note(kind, procedure=ctx.id, root=ctx.root_id, step=ctx.step, attempt=ctx.attempt)


WAITS: dict[str, Callable[[EpisodeJournal, Context], None]] = {"listen": listen, "deaf": go_on_deaf}
"""Orders that wait to be cancelled."""


# ------------------------------------------------------------ plans
def draw_cancelled(chance: Random, id: str) -> tuple[dict[str, Any], float | None, bool]:
    """A tree that is cancelled while steps run: its spec, when it is aborted (None: a race), and if by force."""
    way = chance.choice(("race", "race", "abort", "force"))
    is_race = way == "race"
    children = [_loser(chance) for _ in range(chance.randint(1, 2))]
    if is_race:
        children.insert(chance.randrange(len(children) + 1), _errand([_work(chance), _work(chance)]))
    if chance.random() < 0.4:
        children.append(
            _errand([_work(chance), {"do": "fan", "children": [_loser(chance)], "named": True}, _work(chance)])
        )
    yard = f"lane/{id}"
    for number, child in enumerate(children):
        if chance.random() < 0.5:
            child["keys"] = [["w", f"{yard}/{number}"]]
    fan = {"do": "fan", "children": children, "named": chance.random() < 0.5, "wait": "any" if is_race else "all"}
    spec = _errand([_work(chance), fan, _work(chance)])
    return spec, None if is_race else round(chance.uniform(0.1, 0.8), 2), way == "force"


def _loser(chance: Random) -> dict[str, Any]:
    if chance.random() < 0.5:
        return _errand([_work(chance), {"do": "listen"}, _work(chance)])
    return {"type": "brief", "orders": [_work(chance), {"do": "deaf"}, _work(chance)], "keys": []}


def _errand(orders: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "errand", "orders": orders, "keys": []}


def _work(chance: Random) -> dict[str, Any]:
    return {"do": "work", "seconds": round(chance.uniform(0.001, 0.03), 4)}


# ------------------------------------------------------------ judging
class CancelJudge:
    """Promise 22 in real time: told within a second of the commit that decides the undo, killed within grace and that.

    Time in which nothing could be done does not count: the host came late to its own clock (``lag``), a commit failed
    or was slow, a process was stopped.
    """

    def __init__(self, say: Callable[[int, str], None]) -> None:
        self._say = say
        self._running: dict[str, JournalLine] = {}
        """The last line of each step that listens, or ticks."""
        self._decided: dict[str, int] = {}
        """Time at which the undo of such a procedure was durable."""
        self._forced: dict[str, int] = {}
        """Time at which the abort by force of its root was acknowledged."""
        self._late = 0
        """Nanoseconds of trouble so far."""
        self._late_at: dict[str, int] = {}

    def read(self, line: JournalLine) -> None:
        """The next line of an episode."""
        match line.kind:
            case "listening" | "tick" | "heard" | "exit" | "raised":
                self._step(line)
            case "durable" if line.text == "rolling" and line.mode == "RUNNABLE" and line.procedure in self._running:
                self._note(self._decided, line.procedure, line)
            case "forced":
                for name in [name for name, running in self._running.items() if running.root == line.procedure]:
                    self._note(self._forced, name, line)
            case "lag":
                self._late += int(float(line.text) * 1e9)
            case "fault":
                self._late += int(_TROUBLE.get(line.mode, 0.0) * 1e9)
            case "loaded" | "killing":
                self._death(line)

    def _step(self, line: JournalLine) -> None:
        name = line.procedure
        if line.kind in {"listening", "tick"}:
            self._running[name] = line
        if line.kind == "tick":
            self._judge(line, ABORT_GRACE + GRACE, "still runs")
        elif line.kind == "heard":
            self._judge(line, 0.0, "heard of it")
        elif line.kind != "listening" and name in self._running and self._running[name].kind == "listening":
            self._judge(line, 0.0, "was never told")
        if line.kind not in {"listening", "tick"}:
            self._over(name)

    def _death(self, line: JournalLine) -> None:
        """A host has begun anew, or a process is being killed: a deaf step in it must stop ticking."""
        for name, running in list(self._running.items()):
            if line.kind == "loaded" or (running.pid == line.pid and running.kind == "listening"):
                self._over(name)

    def _note(self, times: dict[str, int], name: str, line: JournalLine) -> None:
        if name not in times:
            times[name] = line.at
            self._late_at.setdefault(name, self._late)

    def _over(self, name: str) -> None:
        for times in (self._running, self._decided, self._forced, self._late_at):
            times.pop(name, None)

    def _judge(self, line: JournalLine, grace: float, what: str) -> None:
        name = line.procedure
        excused = (self._late - self._late_at.get(name, self._late)) / 1e9
        for times, given in ((self._decided, grace), (self._forced, GRACE)):
            if name not in times:
                continue
            waited = (line.at - times[name]) / 1e9
            if waited > given + _BOUND + excused:
                how = "was aborted by force" if times is self._forced else "has its undo decided"
                self._say(22, f"step {line.step} of {name} {how}, and {what} after {waited:.2f} s")
                self._over(name)
                return


_TROUBLE = {
    "commit fails, not applied": 2.0,
    "commit fails, yet applied": 2.0,
    "disk full for a while": 3.0,
    "slow disk": 2.0,
    "worker stopped, continued": 1.0,
    "host stopped, continued": 1.0,
}
"""Seconds that a fault may cost, by its kind."""
