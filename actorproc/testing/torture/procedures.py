"""Procedures under torture, which do as their orders say. Loaded by workers, so nothing here loads the store.

An order is plain data: ``do`` is work, sleep, wait, ask, fan, grab, flaky, fail, hang, crash, listen, deaf or note.
``die`` names the points at which the worker kills itself, each once in an episode. Each order leaves a file in the
world, and its undo removes it. At the end the files of what succeeded are there, and none of what was rolled back.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Literal

from actorproc.errors import RetryLater, StepTimeout
from actorproc.model.policies import LockKey
from actorproc.procedure.authoring.context import Context
from actorproc.procedure.authoring.machine import StateMachineProcedure
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.authoring.saga import Saga, step
from actorproc.procedure.authoring.status import Status
from actorproc.procedure.declaring.policies import Limits, RetryPolicy
from actorproc.testing.journal import Referee
from actorproc.testing.torture.faults import FaultPhase, TortureFault
from actorproc.testing.torture.orders.asking import reply_to_ask
from actorproc.testing.torture.orders.cancelling import ABORT_GRACE, GRACE, WAITS
from actorproc.testing.torture.orders.debouncing import Calm
from actorproc.testing.torture.orders.operating import Echo
from actorproc.testing.torture.orders.padding import check_padding, padding_of
from actorproc.testing.torture.orders.sturdy import PATIENT, STURDY
from actorproc.testing.torture.orders.tagging import set_tags
from actorproc.testing.torture.record import SHOWN_KEY, EpisodeJournal
from actorproc.testing.torture.seeded_bugs import SEEDED_BUGS, VARIABLE
from actorproc.workers.child.runtime.step_line import StepLine
from actorproc.workers.protocol.frames import Ended, FromWorker

__all__ = ["CLASSES", "Circuit", "Deadly", "Errand", "Hasty", "Journey", "Lenient", "Replying", "made_of"]

Order = dict[str, Any]

_UNDO = RetryPolicy(max_attempts=100_000, base=0.005, cap=0.02, jitter=0.0, retry_on=(Exception, RetryLater))
_HANG_SECONDS = 30.0


def made_of(spec: Order, folder: str) -> Procedure:
    """The procedure of a spec: ``type``, ``orders``, ``keys``, and of some ``padding``, with its owner."""
    procedure = CLASSES[spec["type"]](folder, spec["orders"], spec["keys"])
    if spec.get("padding"):
        procedure.weight = spec["padding"]  # type: ignore[attr-defined]
        procedure.padding = padding_of(*spec["padding"])  # type: ignore[attr-defined]
    return procedure


class _Scene:
    """Acts of a step beside its work: lines in the journal, canary locks, and dying where its order says."""

    def __init__(self, procedure: Any, ctx: Context, order: Order) -> None:
        self.procedure = procedure
        self.ctx = ctx
        self.order = order
        self.folder = Path(procedure.folder)
        self.journal = EpisodeJournal(self.folder / "journal")

    @contextlib.contextmanager
    def played(self) -> Iterator[None]:
        """Around the whole body of a step or an undo."""
        self.at("before")
        referee = Referee(self.folder / "canaries", self.journal)
        with self.journal.step(self.ctx, self.procedure), contextlib.ExitStack() as held:
            if not self.ctx.mode:  # an undo may begin before a key that was asked for is granted
                self.procedure.keys += self.procedure.grabbed
                self.procedure.grabbed = []
            for mode, path in self.procedure.keys:
                held.enter_context(referee.hold(path, shared=mode == "r", ctx=self.ctx))
            self._report()
            self.at("begin")
            yield
        self.at("end")
        self._bewitch_answer()

    def at(self, point: str) -> None:
        """Die here, if the order says so and it was not done yet."""
        if self._is_due(point):
            self._die(point)

    def _report(self) -> None:
        """Show how far the procedure is, and tell the next attempt; note what this one was told."""
        ctx = self.ctx
        if (given := ctx.last_heartbeat) is not None:
            place: dict[str, Any] = {
                "procedure": ctx.id,
                "step": ctx.step,
                "attempt": ctx.attempt,
                "mode": ctx.mode.name.lower(),
            }
            self.journal.note("given", unit=ctx.unit, text=json.dumps(given), **place)
        ctx.expose(SHOWN_KEY, [ctx.mode.name.lower(), ctx.step, ctx.attempt])
        ctx.heartbeat(0.5, "at work", details=[ctx.mode.name.lower(), ctx.unit, ctx.step, ctx.attempt])

    def leave(self, name: object) -> None:
        """Change the world."""
        place = self.folder / "world" / self.ctx.id
        place.mkdir(parents=True, exist_ok=True)
        with self._fenced():
            (place / str(name)).touch()
        self.journal.effect(self.ctx, f"left {name}")
        self.at("mid")

    def remove(self, name: object) -> None:
        """Change it back."""
        with self._fenced():
            (self.folder / "world" / self.ctx.id / str(name)).unlink(missing_ok=True)
        self.journal.effect(self.ctx, f"removed {name}")
        self.at("mid")

    @contextlib.contextmanager
    def _fenced(self) -> Iterator[None]:
        """Storage that compares: a change is refused once one with a higher fence was made for the procedure."""
        fences = self.folder / "fences"
        fences.mkdir(exist_ok=True)
        fd = os.open(fences / self.ctx.id, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            highest = int(os.read(fd, 32) or b"0")
            if self.ctx.fence < highest:
                self.journal.note("fenced", procedure=self.ctx.id, text=f"{self.ctx.fence:x} is below {highest:x}")
                msg = "a later attempt has changed the world"
                raise RuntimeError(msg)
            os.pwrite(fd, b"%020d" % self.ctx.fence, 0)
            yield
        finally:
            os.close(fd)

    # ------------------------------------------------------------ dying, and answering badly
    def _is_due(self, point: str) -> bool:
        way = "undo" if self.ctx.mode else "do"
        if f"{way}:{point}" not in self.order.get("die", ()):
            return False
        spent = self.folder / "spent"
        spent.mkdir(exist_ok=True)
        name = f"{self.ctx.id}.{self.ctx.step}.{self.ctx.unit}.{way}.{point}"
        try:
            os.close(os.open(spent / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True

    def _die(self, point: str) -> None:
        is_over = point in {"end", "half-answer", "answered"}
        phase = FaultPhase.ANSWERING if is_over else FaultPhase.UNDOING if self.ctx.mode else FaultPhase.EXECUTING
        self.journal.struck(TortureFault.WORKER_POINT, phase, text=point, procedure=self.ctx.id)
        self.journal.killing(os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)

    def _bewitch_answer(self) -> None:
        """Let the answer of this step be cut short, come twice, or bring an older one along."""
        line = self.ctx._channel
        if not isinstance(line, StepLine):
            return
        channel: Any = line._worker_runtime.channel
        honest = type(channel).send.__get__(channel)
        for point, send in (
            ("half-answer", self._half),
            ("answered", self._then_die),
            ("twice", self._twice),
            ("late", self._late),
        ):
            if self._is_due(point):
                channel.send = _once(channel, honest, send)

    def _half(self, channel: Any, honest: _Send, messages: Sequence[FromWorker]) -> None:
        write = channel._write

        def half(frame: bytes) -> None:
            write(frame[: len(frame) // 2])
            self._die("half-answer")

        channel._write = half
        honest(messages)

    def _then_die(self, _channel: Any, honest: _Send, messages: Sequence[FromWorker]) -> None:
        honest(messages)
        self._die("answered")

    def _twice(self, _channel: Any, honest: _Send, messages: Sequence[FromWorker]) -> None:
        self.journal.struck(TortureFault.ANSWER_TWICE, FaultPhase.ANSWERING, procedure=self.ctx.id)
        honest(messages)
        honest(messages)

    def _late(self, channel: Any, honest: _Send, messages: Sequence[FromWorker]) -> None:
        honest(messages)
        channel.send = _once(channel, honest, lambda _channel, send, later: self._again(send, messages, later))

    def _again(self, honest: _Send, old: Sequence[FromWorker], messages: Sequence[FromWorker]) -> None:
        self.journal.struck(TortureFault.ANSWER_LATE, FaultPhase.ANSWERING, procedure=self.ctx.id)
        honest([*old, *messages])


_Send = Callable[[Sequence[FromWorker]], None]


def _once(channel: Any, honest: _Send, instead: Callable[[Any, _Send, Sequence[FromWorker]], None]) -> _Send:
    """A `send` for the next answer of a step; everything else goes the usual way."""

    def send(messages: Sequence[FromWorker]) -> None:
        if not any(isinstance(message, Ended) for message in messages):
            honest(messages)
            return
        channel.send = honest
        instead(channel, honest, messages)

    return send


class _Ordered:
    """Common base of the classes below; not a procedure."""

    folder: str
    orders: list[Order]
    keys: list[list[str]]
    done: list[int]
    grabbed: list[list[str]]
    """Keys that the next step has beside `keys`."""

    def lock_keys(self) -> list[LockKey]:
        return [(LockKey.read if mode == "r" else LockKey.write)(path) for mode, path in self.keys]

    def _follow(self, scene: _Scene, at: int, *, last: bool) -> Status | None:
        """Do one order; None: go on."""
        order, ctx = scene.order, scene.ctx
        reply_to_ask(ctx)
        set_tags(order, ctx, at)
        self.done.append(at)  # before it can fail: a repeated step must not see it
        if order["do"] == "flaky" and ctx.attempt <= order["times"]:
            raise RetryLater(after=0.002)
        scene.leave(at)
        if order.get("seconds"):
            time.sleep(order["seconds"])
        if (waits := WAITS.get(order["do"])) is not None:
            waits(scene.journal, ctx)
        return self._answer(scene, at, last=last)

    def _answer(self, scene: _Scene, at: int, *, last: bool) -> Status | None:
        order, ctx = scene.order, scene.ctx
        match order["do"]:
            case "fail":
                raise RuntimeError("as ordered")
            case "hang":
                time.sleep(_HANG_SECONDS)
            case "crash":
                scene._die("crash")
            case "note":
                value = ctx.remember("dice", time.monotonic_ns)
                scene.journal.note("noted", procedure=ctx.id, step=ctx.step, text=str(value))
            case "grab" if not last:
                if ["w", order["key"]] not in self.keys:
                    self.grabbed = [["w", order["key"]]]
                return Status.executing(acquire=[LockKey.write(order["key"])])
            case "sleep" if not last:
                return Status.sleep(order["for"])
            case "wait" if not last:
                return Status.wait(order["event"], timeout=order.get("timeout"))
            case "ask" if not last:
                return Status.wait(order["name"])
            case "fan" if not last:
                made = [made_of(spec, self.folder) for spec in order["children"]]
                named = [(f"{ctx.id}-{at}-{number}", child) for number, child in enumerate(made)]
                parallel, wait = order.get("parallel"), order.get("wait", "all")
                return Status.suspended(named if order["named"] else made, wait=wait, max_parallel=parallel)
        return None

    def _take_back(self, scene: _Scene, at: int) -> None:
        if scene.order.get("undo_errors", 0) >= scene.ctx.attempt:
            raise RuntimeError("the undo does not work yet")
        scene.remove(at)


class Errand(_Ordered, Procedure):
    """Orders one after the other; undone as a whole, newest first, one step each."""

    limits: ClassVar[Limits] = STURDY
    retry: ClassVar[RetryPolicy] = PATIENT
    rollback_retry: ClassVar[RetryPolicy] = _UNDO

    def __init__(self, folder: str, orders: list[Order], keys: list[list[str]]) -> None:
        self.folder = folder
        self.orders = orders
        self.keys = keys
        self.done: list[int] = []
        self.grabbed: list[list[str]] = []
        self.undone = 0
        self.weight: list[Any] = [0, ""]
        self.padding = b""

    def execute(self, ctx: Context) -> Status:
        check_padding(self.padding, *self.weight)
        at = len(self.done)
        last = at + 1 == len(self.orders)
        scene = _Scene(self, ctx, self.orders[at])
        with scene.played():
            status = self._follow(scene, at, last=last)
            if status is None:
                status = Status.done(len(self.done)) if last else Status.executing()
        return status

    def rollback(self, ctx: Context) -> Status | None:
        # The step that failed may have done half its work, so it is undone as well.
        at = min(len(self.done), len(self.orders) - 1) - self.undone
        scene = _Scene(self, ctx, self.orders[max(at, 0)])
        with scene.played():
            if at >= 0:
                self._take_back(scene, at)
            self.undone += 1
        return Status.executing() if at > 0 else None


class Lenient(Errand):
    """Goes on when its children fail."""

    on_child_failure: ClassVar[Literal["fail", "resume"]] = "resume"


class Hasty(Errand):
    """May not take long, and its order to hang takes for ever."""

    limits: ClassVar[Limits] = Limits(crashes=100_000, wall_time=1.0, grace=0.05)
    retry: ClassVar[RetryPolicy] = RetryPolicy(max_attempts=2, base=0.005, retry_on=(RetryLater, StepTimeout))


class Brief(Errand):
    """Is given little time once its undo is decided."""

    limits: ClassVar[Limits] = Limits(crashes=100_000, grace=GRACE, abort_grace=ABORT_GRACE)


class Replying(Errand):
    """Errand that is asked, and replies."""


class Deadly(Errand):
    """Kills every worker that touches it, until it is given up."""

    limits: ClassVar[Limits] = Limits(crashes=3)


class Journey(_Ordered, Saga, searchable=("place",)):
    """Four orders, each with an undo of its own."""

    limits: ClassVar[Limits] = STURDY
    retry: ClassVar[RetryPolicy] = PATIENT
    rollback_retry: ClassVar[RetryPolicy] = _UNDO
    folder: str
    orders: list[dict[str, Any]]
    keys: list[list[str]]
    done: list[int]
    grabbed: list[list[str]]
    place: int

    def __init__(self, folder: str, orders: list[Order], keys: list[list[str]]) -> None:
        self.folder = folder
        self.orders = orders
        self.keys = keys
        self.done = []
        self.grabbed = []
        self.place = 0

    def _go(self, ctx: Context, at: int) -> Any:
        scene = _Scene(self, ctx, self.orders[at])
        with scene.played():
            status = self._follow(scene, at, last=at == 3)
            self.place = at + 1
        return (len(self.done) if at == 3 else None) if status is None else status

    def _return(self, ctx: Context, at: int) -> None:
        scene = _Scene(self, ctx, self.orders[at])
        with scene.played():
            self._take_back(scene, at)

    @step
    def leave_home(self, ctx: Context) -> Any:
        return self._go(ctx, 0)

    @leave_home.undo
    def come_home(self, ctx: Context) -> None:
        self._return(ctx, 0)

    @step
    def cross_river(self, ctx: Context) -> Any:
        return self._go(ctx, 1)

    @cross_river.undo
    def cross_back(self, ctx: Context) -> None:
        self._return(ctx, 1)

    @step
    def climb_hill(self, ctx: Context) -> Any:
        return self._go(ctx, 2)

    @climb_hill.undo
    def climb_down(self, ctx: Context) -> None:
        self._return(ctx, 2)

    @step
    def arrive(self, ctx: Context) -> Any:
        return self._go(ctx, 3)

    @arrive.undo
    def depart(self, ctx: Context) -> None:
        self._return(ctx, 3)


class Lamp(Enum):
    """States of a `Circuit`."""

    RED = 0
    AMBER = 1
    GREEN = 2


class Circuit(_Ordered, StateMachineProcedure):
    """Three states with an order each; the middle one runs twice."""

    limits: ClassVar[Limits] = STURDY
    retry: ClassVar[RetryPolicy] = PATIENT
    rollback_retry: ClassVar[RetryPolicy] = _UNDO
    initial_state = Lamp.RED

    def __init__(self, folder: str, orders: list[Order], keys: list[list[str]]) -> None:
        self.folder = folder
        self.orders = orders
        self.keys = keys
        self.done: list[int] = []
        self.grabbed: list[list[str]] = []
        self.turns = 0

    def execute_from_state(self, ctx: Context, state: Lamp) -> Enum | Status | None:
        at = state.value
        scene = _Scene(self, ctx, self.orders[at])
        with scene.played():
            # A state that sleeps or waits is entered again afterwards, so its order is followed at the first turn.
            status = self._follow(scene, at, last=self.turns > 0 or at == 2)
            self.turns = 0 if status is None and (at != 1 or self.turns > 0) else self.turns + 1
        if status is not None:
            return status
        if at == 1 and self.turns:
            return Status.executing()
        return None if at == 2 else Lamp(at + 1)

    def rollback_state(self, ctx: Context, state: Lamp) -> None:
        scene = _Scene(self, ctx, self.orders[state.value])
        with scene.played():
            self._take_back(scene, state.value)


CLASSES: dict[str, Callable[[str, list[Order], list[list[str]]], Procedure]] = {
    "errand": Errand,
    "lenient": Lenient,
    "hasty": Hasty,
    "brief": Brief,
    "deadly": Deadly,
    "asked": Replying,
    "journey": Journey,
    "circuit": Circuit,
    "echo": Echo,
    "calm": Calm,
}

if _SEEDED := os.environ.get(VARIABLE):
    SEEDED_BUGS[_SEEDED].in_worker()
