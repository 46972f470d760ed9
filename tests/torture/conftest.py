"""A short episode that meets many faults within seconds."""

from __future__ import annotations

import pytest

from actorproc.testing.torture.faults import IN_TROUBLE, Fault, TortureFault
from actorproc.testing.torture.orders.roots import Debounced
from actorproc.testing.torture.plan import Life, Plan, Root

_TREE = {
    "type": "errand",
    "keys": [["w", "town/a"]],
    "orders": [
        {"do": "work", "die": ["do:mid", "do:late"]},
        {
            "do": "fan",
            "named": True,
            "children": [
                {
                    "type": "journey",
                    "keys": [["w", "town/a/1"]],
                    "orders": [{"do": "note", "die": ["do:half-answer"]}] * 4,
                },
                {"type": "circuit", "keys": [], "orders": [{"do": "work", "die": ["do:twice"]}] * 3},
            ],
        },
        {"do": "flaky", "times": 2},
    ],
}
_BAD = {
    "type": "journey",
    "keys": [["w", "town/a"]],
    "orders": [{"do": "work", "die": ["undo:begin"]}, {"do": "sleep", "for": 0.01}, {"do": "work"}, {"do": "fail"}],
}


@pytest.fixture(scope="session")
def short() -> Plan:
    """Two lives, two trees, and a good dozen of faults, at places that the order of steps makes sure of."""
    faults = (
        Fault(TortureFault.SLOW_DISK, nth=1, seconds=0.05, times=3),
        Fault(TortureFault.EIO_APPLIED, nth=4),
        Fault(TortureFault.EIO_LOST, nth=5),
        Fault(TortureFault.EIO_LOST, nth=7),
        Fault(TortureFault.EIO_READ, nth=1),
        Fault(TortureFault.EIO_READ, nth=2),
        Fault(TortureFault.HOST_POINT, point="after-commit", nth=9),
        Fault(TortureFault.RELOAD, after=0.02),
    )
    return Plan(
        seed=7,
        roots=(Root("root-0", _TREE, ("SUCCESS",)), Root("root-1", _BAD, ("ROLLEDBACK",))),
        lives=(Life("killed", 30.0, faults), Life("quiet", 0.0)),
    )


@pytest.fixture(scope="session")
def troubled() -> Plan:
    """A disk that is full for so long that a worker's death in a step, and its successor, fall into that time."""
    work = {"type": "errand", "keys": [], "orders": [{"do": "work", "seconds": 0.1}] * 3}
    roots = tuple(Root(f"root-{number}", work, ("SUCCESS",)) for number in range(2))
    faults = (
        Fault(TortureFault.DISK_FULL, nth=2, seconds=1.5),
        Fault(TortureFault.WORKER_KILL, point=IN_TROUBLE, draw=0.1),
    )
    return Plan(seed=9, roots=roots, lives=(Life("quiet", 0.0, faults),))


@pytest.fixture(scope="session")
def refusing() -> Plan:
    """Callers who take a refusal for an answer, and a disk that refuses the first commits."""
    work = {"type": "errand", "keys": [], "orders": [{"do": "work"}] * 2}
    roots = tuple(Root(f"root-{number}", work, ("SUCCESS",), insists=False) for number in range(6))
    faults = tuple(Fault(TortureFault.EIO_LOST, nth=nth) for nth in (1, 2, 3))
    return Plan(seed=8, roots=roots, lives=(Life("stopped", 1.0, faults), Life("quiet", 0.0)))


@pytest.fixture(scope="session")
def cancelled() -> Plan:
    """Two races with losers that listen and that are deaf, and no fault that would excuse an engine."""
    quick = {"type": "errand", "keys": [], "orders": [{"do": "work", "seconds": 0.3}]}
    listening = {"type": "errand", "keys": [], "orders": [{"do": "listen"}, {"do": "work"}]}
    deaf = {"type": "brief", "keys": [], "orders": [{"do": "deaf"}, {"do": "work"}]}
    fan = {"do": "fan", "named": True, "wait": "any", "children": [quick, listening, deaf]}
    race = {"type": "errand", "keys": [], "orders": [fan, {"do": "work"}]}
    roots = tuple(Root(f"root-{number}", race, ("SUCCESS",), exact=False) for number in range(2))
    return Plan(seed=11, roots=roots, lives=(Life("quiet", 0.0),), workers=6)


@pytest.fixture(scope="session")
def operated() -> Plan:
    """A root that is restarted three times, steps that run for a while, and an operator who ends attempts of them."""
    child = {"type": "echo", "keys": [], "orders": [{"do": "work", "seconds": 0.01}] * 2}
    echo = {**child, "orders": [{"do": "work", "seconds": 0.01, "children": [child]}, {"do": "work", "seconds": 0.01}]}
    slow = {"type": "errand", "keys": [], "orders": [{"do": "work", "seconds": 0.4}, {"do": "work", "seconds": 0.4}]}
    roots = (
        Root("again-0", echo, ("SUCCESS",), restarts=3),
        Root("root-0", slow, ("SUCCESS",)),
        Root("root-1", slow, ("SUCCESS",)),
    )
    kills = tuple(Fault(TortureFault.OPERATOR_KILL, after=after, draw=0.9) for after in (0.1, 0.3, 0.5, 0.7))
    return Plan(seed=12, roots=roots, lives=(Life("quiet", 0.0, kills),))


@pytest.fixture(scope="session")
def asked() -> Plan:
    """Two roots that are asked in both lives, with workers that die in replies, and commits that fail.

    The second ask of a name comes late: until then the copies of the first one are there, however often a disk in
    trouble has refused them. So an engine that takes them for two gives both replies to the first ask.
    """
    orders = [
        {"do": "ask", "name": "price"},
        {"do": "flaky", "times": 1, "die": ["do:mid"]},
        {"do": "ask", "name": "price"},
        {"do": "ask", "name": "place", "die": ["do:half-answer"]},
        {"do": "work"},
    ]
    orders = [{**order, "tag": True} for order in orders]
    asks = (("price", "ask-0", 0.0), ("price", "ask-1", 1.0), ("place", "ask-2", 0.0))
    desk = {"type": "asked", "keys": [], "orders": orders}
    roots = tuple(Root(f"asked-{number}", desk, ("SUCCESS",), asks=asks) for number in range(2))
    faults = (
        Fault(TortureFault.EIO_LOST, nth=5),
        Fault(TortureFault.EIO_APPLIED, nth=8),
        Fault(TortureFault.HOST_POINT, point="after-commit", nth=12),
    )
    return Plan(seed=13, roots=roots, lives=(Life("killed", 10.0, faults), Life("quiet", 0.0)))


@pytest.fixture(scope="session")
def debounced() -> Plan:
    """Two keys that are submitted quickly and slowly in three lives, and commits that fail."""
    calm = {"type": "calm", "keys": [], "orders": [{"do": "work"}] * 2}
    quick = Debounced(0.2, None, (0.0, 0.02, 0.02, 0.02))
    slow = Debounced(0.05, 0.15, (0.0, 0.04, 0.04, 0.04, 0.2, 0.04))
    roots = (Root("calm-0", calm, ("SUCCESS",), debounce=quick), Root("calm-1", calm, ("SUCCESS",), debounce=slow))
    faults = (Fault(TortureFault.EIO_LOST, nth=3), Fault(TortureFault.EIO_APPLIED, nth=5))
    lives = (
        Life("killed", 10.0, (*faults, Fault(TortureFault.HOST_POINT, point="after-commit", nth=7))),
        Life("killed", 10.0, (*faults, Fault(TortureFault.HOST_POINT, point="before-commit", nth=9))),
        Life("quiet", 0.0),
    )
    return Plan(seed=14, roots=roots, lives=lives)
