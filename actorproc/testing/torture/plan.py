"""Plan of an episode, drawn from its seed: procedures, callers, and the faults of each life of the host."""

from __future__ import annotations

from random import Random
from typing import Any, Literal

import msgspec

from actorproc.testing.torture.faults import (
    HOST_POINTS,
    IN_TROUBLE,
    LOG_POINTS,
    WORKER_POINTS,
    ClusterPlan,
    Fault,
    TortureFault,
)
from actorproc.testing.torture.orders.cancelling import draw_cancelled
from actorproc.testing.torture.orders.operating import AGAIN, draw_echo
from actorproc.testing.torture.orders.padding import draw_padding

__all__ = ["Life", "Plan", "Root", "draw_plan", "draw_root", "with_padding", "work_of"]

Spec = dict[str, Any]

End = Literal["killed", "stopped", "quiet"]
"""End of a life: by a kill, in order, or when all work is done."""

_QUIET: End = "quiet"
_STORMS = 0.2
"""The share of episodes with a storm of restarts."""
_CARRIERS = {"errand", "lenient", "hasty", "deadly"}
"""Types of procedures whose states can be made long."""


class Root(msgspec.Struct, frozen=True, omit_defaults=True):
    """One procedure that is submitted."""

    id: str
    spec: Spec
    ends: tuple[str, ...]
    """Final states that are right."""
    after: float = 0.0
    """Seconds after the host is up."""
    deadline: float | None = None
    abort_after: float | None = None
    force: bool = False
    """The abort is one by force."""
    signals: tuple[tuple[str, float], ...] = ()
    """Events to send, and when."""
    insists: bool = True
    """The caller submits again what was refused."""
    restarts: int = 0
    """The root is submitted again so many times, each time when it has ended."""
    exact: bool = True
    """True if the remains of a success are known: no part of the tree may fail on the way."""


class Life(msgspec.Struct, frozen=True, omit_defaults=True):
    """One start of the host."""

    ends: End
    seconds: float
    """Length, counted from when the host is up."""
    faults: tuple[Fault, ...] = ()
    clock: float = 0.0
    """Seconds by which its wall clock is off when it starts."""


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """One episode."""

    seed: int
    roots: tuple[Root, ...]
    lives: tuple[Life, ...]
    workers: int = 2
    durability: Literal["power", "process"] = "process"
    module: str = ""
    """A user's module in place of `roots`."""
    bug: str = ""
    """A bug that is built in, to test the episode runner."""
    patience: float = 60.0
    """Seconds everything may take to end once the faults have stopped."""
    cluster: ClusterPlan | None = None
    """Several processes on a database in place of `lives`."""


def work_of(spec: Spec) -> int:
    """Number of procedures that a spec makes, itself included."""
    return 1 + sum(work_of(child) for order in spec["orders"] for child in order.get("children", ()))


def draw_plan(seed: int, *, module: str = "", bug: str = "", patience: float = 60.0) -> Plan:
    """The plan of a seed, always the same."""
    chance = Random(seed)
    is_crowd = chance.random() < 0.2
    many = chance.randint(30, 60) if is_crowd else chance.randint(4, 8)
    roots = () if module else tuple(draw_root(chance, number, is_small=is_crowd) for number in range(many))
    # Drawn apart, and from this text: so a plan stays what its seed gave before.
    roots = with_padding(Random(f"ballast of {seed}"), roots)
    if not module:
        roots += _cancelled(Random(f"cancelled trees of {seed}"))
        roots += _restarted(Random(f"restarted roots of {seed}"))
    lives = [_life(chance, first=number == 0) for number in range(chance.randint(2, 4))]
    # Drawn apart, so that all else in a plan is what its seed gave before there were such faults.
    lives = [_with_failing_reads(Random(f"reads of life {place} of {seed}"), life) for place, life in enumerate(lives)]
    lives = [_with_log_point(Random(f"log of life {place} of {seed}"), life) for place, life in enumerate(lives)]
    lives = _with_storm(Random(f"restart storm of {seed}"), lives)
    jumps = [fault.seconds for life in lives for fault in life.faults if fault.kind is TortureFault.CLOCK]
    # A clock that was set back makes stored times lie far ahead; the last life must live to see them.
    latest = sum(jump for jump in jumps if jump > 0)
    clocks = _clocks(lives)
    lives = [msgspec.structs.replace(life, clock=clock) for life, clock in zip(lives, clocks, strict=True)]
    # Drawn apart, so that all else in a plan is what its seed gave when the last life met no faults.
    lives = [*lives, _last_life(Random(f"last life of {seed}"), clock=latest)]
    return Plan(
        seed=seed,
        roots=roots,
        lives=tuple(_with_kills(Random(f"operator kills of {seed}"), lives)),
        workers=chance.randint(2, 4),
        durability=chance.choice(("power", "process")),
        module=module,
        bug=bug,
        patience=patience,
    )


def with_padding(chance: Random, roots: tuple[Root, ...]) -> tuple[Root, ...]:
    """Some of the roots with states of hundreds of kilobytes."""
    sizes = [draw_padding(chance) for _ in roots]
    return tuple(
        msgspec.structs.replace(root, spec=root.spec | {"padding": [size, root.id]})
        if size and root.spec["type"] in _CARRIERS
        else root
        for root, size in zip(roots, sizes, strict=True)
    )


def _cancelled(chance: Random) -> tuple[Root, ...]:
    """Trees that are cancelled while their steps run; also drawn apart."""
    roots = []
    for number in range(chance.choice((0, 1, 1, 2))):
        id = f"cut-{number}"
        spec, abort_after, force = draw_cancelled(chance, id)
        ends = ("SUCCESS",) if abort_after is None else ("SUCCESS", "ROLLEDBACK")
        after = round(chance.uniform(0.0, 0.3), 3)
        roots.append(Root(id, spec, ends, after, abort_after=abort_after, force=force, exact=False))
    return tuple(roots)


def _restarted(chance: Random) -> tuple[Root, ...]:
    """Roots that are restarted when they have ended; also drawn apart."""
    roots = []
    for number in range(chance.choice((0, 1, 1, 2))):
        spec, restarts = draw_echo(chance)
        roots.append(
            Root(f"{AGAIN}{number}", spec, ("SUCCESS",), round(chance.uniform(0.0, 0.3), 3), restarts=restarts)
        )
    return tuple(roots)


def _with_kills(chance: Random, lives: list[Life]) -> list[Life]:
    """Attempts that an operator ends, in half of the lives that are no part of a storm; also drawn apart."""
    return [
        msgspec.structs.replace(life, faults=(*life.faults, *_kills(chance, life)))
        if (life.seconds or life.ends == _QUIET) and chance.random() < 0.5
        else life
        for life in lives
    ]


def _kills(chance: Random, life: Life) -> list[Fault]:
    times = sorted(round(chance.uniform(0.0, life.seconds or 1.0), 3) for _ in range(chance.randint(1, 4)))
    return [Fault(TortureFault.OPERATOR_KILL, after=after, draw=chance.random()) for after in times]


def _clocks(lives: list[Life]) -> list[float]:
    clocks, at = [], 0.0
    for life in lives:
        clocks.append(at)
        at += sum(fault.seconds for fault in life.faults if fault.kind is TortureFault.CLOCK)
    return clocks


# ------------------------------------------------------------ procedures
class _Draw:
    """Draws the orders of one tree, and keeps what follows from them."""

    def __init__(self, chance: Random, id: str, *, is_small: bool) -> None:
        self.chance = chance
        self.id = id
        self.is_small = is_small
        self.fails = False
        self.may_fail = False
        self.deadly = False
        self.fans = 0
        self.contained = False
        self.signals: list[tuple[str, float]] = []

    def spec(self, depth: int, keys: list[list[str]], *, bad: bool) -> Spec:
        """One procedure and those below it; with `bad` something in it goes wrong for good."""
        chance = self.chance
        kind = chance.choices(("errand", "journey", "circuit"), (5, 3, 2))[0]
        if self.is_small:
            kind = "errand"
        length = {"errand": chance.randint(2, 2 if self.is_small else 5), "journey": 4, "circuit": 3}[kind]
        # Locks on the way are for roots only: their members would wait for each other.
        grabs = 2 if kind == "errand" and depth == 0 else 0
        orders = [self._order(grabs) for _ in range(length)]
        if depth < 2 and not self.is_small and chance.random() < (0.6 if depth == 0 else 0.3):
            orders[chance.randrange(length - 1)] = self._fan(depth, keys, bad=bad and chance.random() < 0.5)
            if kind == "errand" and self.fails and chance.random() < 0.4:
                kind, self.contained = "lenient", True
                bad = self.fails = self.deadly = False
        if bad and not self.fails:
            kind, orders = self._spoil(kind, orders)
        for order in orders:
            self._arm(order)
        return {"type": kind, "orders": orders, "keys": keys}

    def _order(self, grabs: int) -> Spec:
        chance = self.chance
        what = chance.choices(("work", "sleep", "wait", "flaky", "note", "grab"), (8, 2, 2, 2, 2, grabs))[0]
        order: Spec = {"do": what}
        if chance.random() < 0.6:
            order["seconds"] = round(chance.uniform(0.001, 0.03), 4)
        if what == "sleep":
            order["for"] = round(chance.uniform(0.01, 0.2), 3)
        elif what == "flaky":
            order["times"] = chance.randint(1, 3)
        elif what == "grab":
            order["key"] = f"market/{chance.choice('ab')}"
            self.may_fail = True  # as the victim of a deadlock
        elif what == "wait":
            order["event"] = f"{self.id}/{len(self.signals)}"
            self.signals.append((order["event"], round(chance.uniform(0.0, 0.8), 3)))
            if chance.random() < 0.2:
                order["timeout"] = round(chance.uniform(0.1, 0.6), 3)
                self.may_fail = True
        return order

    def _fan(self, depth: int, keys: list[list[str]], *, bad: bool) -> Spec:
        chance = self.chance
        written = [path for mode, path in keys if mode == "w"]
        children = []
        count = chance.randint(2, 4)
        self.fans += 1
        yard = f"yard/{self.id}/{self.fans}"
        for number in range(count):
            # Below what the parent has for itself, or among siblings only: so no two can wait for each other.
            above = chance.choice(written) if written and chance.random() < 0.5 else yard
            child_keys = [["w", f"{above}/{chance.randint(0, 2)}"]] if chance.random() < 0.5 else []
            children.append(self.spec(depth + 1, child_keys, bad=bad and number == count - 1))
        fan: Spec = {"do": "fan", "children": children, "named": chance.random() < 0.5}
        if chance.random() < 0.3:
            fan["parallel"] = chance.randint(1, 2)
        return fan

    def _spoil(self, kind: str, orders: list[Spec]) -> tuple[str, list[Spec]]:
        chance = self.chance
        self.fails = True
        at = chance.randrange(len(orders))
        if any("children" in order for order in orders[at : at + 1]):
            at = len(orders) - 1
        way = chance.choices(("fail", "hang", "crash"), (6, 1, 1))[0]
        if kind != "errand":
            way = "fail"
        orders[at] = {"do": way}
        if way == "crash":
            self.deadly = True
        return {"fail": kind, "hang": "hasty", "crash": "deadly"}[way], orders

    def _arm(self, order: Spec) -> None:
        chance = self.chance
        die = [f"do:{point}" for point in WORKER_POINTS if chance.random() < 0.03]
        die += [f"undo:{point}" for point in WORKER_POINTS if chance.random() < 0.03]
        die += [f"do:{trick}" for trick in ("twice", "late") if chance.random() < 0.03]
        if die:
            order["die"] = die
        if chance.random() < 0.1:
            order["undo_errors"] = 2


def draw_root(chance: Random, number: int, *, is_small: bool) -> Root:
    draw = _Draw(chance, f"root-{number}", is_small=is_small)
    places = chance.sample(("town/a", "town/b", "town/c"), chance.choice((0, 1, 1, 2)))
    keys = [[chance.choice("rww"), place] for place in places]
    # A reader of a place lets no child write below it; `_fan` looks at that.
    spec = draw.spec(0, keys, bad=chance.random() < 0.35)
    deadline = round(chance.uniform(0.3, 2.0), 2) if chance.random() < 0.1 else None
    abort_after = round(chance.uniform(0.0, 1.0), 2) if chance.random() < 0.12 else None
    return Root(
        id=draw.id,
        spec=spec,
        ends=_ends(draw, loose=deadline is not None or abort_after is not None),
        after=round(chance.uniform(0.0, 0.4), 3),
        deadline=deadline,
        abort_after=abort_after,
        signals=tuple(draw.signals),
        insists=chance.random() < 0.5,
        exact=not draw.contained,
    )


def _ends(draw: _Draw, *, loose: bool) -> tuple[str, ...]:
    if draw.deadly:
        # Its undo may take three workers along as well, when kills hit it: then it is given up.
        return ("ROLLEDBACK", "FAILED")
    if draw.fails:
        return ("ROLLEDBACK",)
    return ("SUCCESS", "ROLLEDBACK") if loose or draw.may_fail else ("SUCCESS",)


# ------------------------------------------------------------ faults
def _life(chance: Random, *, first: bool) -> Life:
    seconds = round(chance.uniform(0.1, 1.0), 3)
    faults = [_disturbance(chance, seconds) for _ in range(chance.randint(2, 6))]
    # Many lives are short: what is to strike in most of them strikes at one of the first commits.
    faults += [_failed_commit(chance, latest=12) for _ in range(chance.randint(1, 3))]
    if chance.random() < 0.1:
        return Life("stopped", seconds, tuple(faults))
    ending = _ending(chance, seconds, first=first)
    if ending.point == "reopening":
        # There must be something to open again.
        faults = [fault for fault in faults if fault.kind is not TortureFault.EIO_LOST]
        faults.append(Fault(TortureFault.EIO_LOST, nth=chance.randint(1, 8)))
    return Life("killed", seconds, (*faults, ending))


def _last_life(chance: Random, *, clock: float) -> Life:
    """A life whose host is not killed. It shows what stands still because of another fault, as no restart mends it."""
    if chance.random() < 0.5:
        return Life(_QUIET, 0.0, clock=clock)
    full = Fault(TortureFault.DISK_FULL, nth=chance.randint(1, 12), seconds=round(chance.uniform(0.05, 0.5), 3))
    kill = Fault(TortureFault.WORKER_KILL, point=IN_TROUBLE, draw=chance.random())
    others = [_disturbance(chance, 1.0) for _ in range(chance.randint(1, 5))]
    others = [fault for fault in others if fault.kind is not TortureFault.CLOCK]  # no later life would live to see it
    return Life(_QUIET, 0.0, (full, kill, *others), clock)


def _failed_commit(chance: Random, latest: int) -> Fault:
    return Fault(chance.choice((TortureFault.EIO_LOST, TortureFault.EIO_APPLIED)), nth=chance.randint(1, latest))


def _with_failing_reads(chance: Random, life: Life) -> Life:
    reads = tuple(Fault(TortureFault.EIO_READ, nth=chance.randint(1, 6)) for _ in range(chance.choice((0, 0, 1, 2))))
    return msgspec.structs.replace(life, faults=(*reads, *life.faults)) if reads else life


def _with_log_point(chance: Random, life: Life) -> Life:
    if life.ends != "killed" or chance.random() < 0.7:
        return life
    point = chance.choice(LOG_POINTS)
    nth = chance.randint(1, 40 if point == LOG_POINTS[0] else 4)
    return msgspec.structs.replace(life, faults=(*life.faults, Fault(TortureFault.HOST_POINT, point=point, nth=nth)))


def _disturbance(chance: Random, seconds: float) -> Fault:
    kinds = (
        (TortureFault.WORKER_KILL, 8),
        (TortureFault.WORKER_STOP, 2),
        (TortureFault.HOST_STOP, 1),
        (TortureFault.EIO_LOST, 3),
        (TortureFault.EIO_APPLIED, 3),
        (TortureFault.DISK_FULL, 2),
        (TortureFault.SLOW_DISK, 2),
        (TortureFault.CLOCK, 2),
        (TortureFault.RELOAD, 1),
    )
    kind = chance.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
    after = round(chance.uniform(0.0, seconds), 3)
    nth = chance.randint(1, 30)
    match kind:
        case TortureFault.WORKER_STOP | TortureFault.HOST_STOP:
            return Fault(kind, after=after, seconds=round(chance.uniform(0.02, 0.4), 3), draw=chance.random())
        case TortureFault.DISK_FULL:
            return Fault(kind, nth=nth, seconds=round(chance.uniform(0.05, 0.5), 3))
        case TortureFault.SLOW_DISK:
            return Fault(kind, nth=nth, seconds=round(chance.uniform(0.01, 0.1), 3), times=chance.randint(1, 8))
        case TortureFault.CLOCK:
            return Fault(kind, after=after, seconds=chance.choice((-86400.0, -3600.0, -5.0, 5.0, 3600.0, 86400.0)))
        case TortureFault.EIO_LOST | TortureFault.EIO_APPLIED:
            return Fault(kind, nth=nth)
    return Fault(kind, after=after, draw=chance.random())


def _with_storm(chance: Random, lives: list[Life]) -> list[Life]:
    """Now and then the host is killed again and again, each time it has hardly begun to recover."""
    if chance.random() >= _STORMS:
        return lives
    storm = [_short_life(chance) for _ in range(chance.randint(3, 6))]
    after = chance.randint(1, len(lives))
    return [*lives[:after], *storm, *lives[after:]]


def _short_life(chance: Random) -> Life:
    kill = Fault(TortureFault.RESTARTS, after=round(chance.expovariate(15.0), 4))
    trouble = (_failed_commit(chance, latest=3),) if chance.random() < 0.3 else ()
    return Life("killed", 0.0, (kill, *trouble))


def _ending(chance: Random, seconds: float, *, first: bool) -> Fault:
    """Fault that kills the host. The first one has nothing to recover."""
    way = chance.random()
    if way < 0.45:
        point = chance.choice(HOST_POINTS[2:] if first else HOST_POINTS)
        nth = (
            1
            if point in {"owned", "loaded", "reopening", "stopping"}
            else chance.choice((1, 2, 3, chance.randint(1, 40)))
        )
        return Fault(TortureFault.HOST_POINT, point=point, nth=nth)
    if way < 0.6 and not first:
        return Fault(TortureFault.STORM, after=round(chance.expovariate(10.0), 4))
    kind = TortureFault.BOTH_KILL if way < 0.75 else TortureFault.HOST_KILL
    return Fault(kind, after=seconds)
