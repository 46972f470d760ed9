"""Orders of random trees of procedures, and what follows from them."""

from __future__ import annotations

from random import Random
from typing import Any

from actorproc.testing.torture.faults import WORKER_POINTS

__all__ = ["TreeDraw"]

Spec = dict[str, Any]


class TreeDraw:
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
