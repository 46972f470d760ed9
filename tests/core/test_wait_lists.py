"""The line on a node, compared with a sorted list."""

from __future__ import annotations

import random
from bisect import insort

from actorproc.core.locks.table import LockRequest, LockTable
from actorproc.core.locks.wait_list import WaitList
from actorproc.model.policies import LockKey


def test_a_line_does_what_a_sorted_list_does():
    chance = random.Random(5)
    line, wanted = WaitList(), []
    for number in range(6000):
        if wanted and chance.random() < 0.35:
            place = chance.choice(wanted)
            wanted.remove(place)
            line.leave(place)
        else:
            place = (number if chance.random() < 0.7 else chance.randrange(number + 1), f"p{number}")
            insort(wanted, place)
            line.join(place)
        assert bool(line) == bool(wanted)
        if wanted:
            assert line.last == wanted[-1]
    assert list(line.places()) == list(line.walk()) == wanted
    for place in (wanted[0], wanted[len(wanted) // 2], wanted[-1], (10**9, ""), (-1, "")):
        assert list(line.before(place)) == [other for other in reversed(wanted) if other < place]


def test_whoever_walks_along_a_line_may_send_away_whom_it_meets():
    line = WaitList()
    for number in range(2000):
        line.join((number, "p"))

    met = []
    for place in line.walk():
        met.append(place)
        if place[0] % 3:
            line.leave(place)

    assert met == [(number, "p") for number in range(2000)]
    assert list(line.places()) == [(number, "p") for number in range(0, 2000, 3)]


class _Counting(LockTable):
    """Counts the waiters that are looked at."""

    looked = 0

    def _is_free(self, request: LockRequest) -> bool:
        self.looked += 1
        return super()._is_free(request)


def _looks_per_grant(waiters: int, *, same_key: bool, parent: str | None) -> float:
    table = _Counting()
    keys = [LockKey.write("shop/hot" if same_key else f"shop/{number}") for number in range(waiters)]
    if not same_key:
        for number, key in enumerate(keys):
            table.hold(f"h{number}", key.path, key.mode)
    for number, key in enumerate(keys):
        name = f"p{number}"
        lineage = frozenset({name, parent or name})
        table.request(LockRequest(name, parent or name, (key,), lineage, number, parent is not None, parent=parent))
    table.looked = 0
    holders, granted = (["p0"] if same_key else [f"h{number}" for number in range(waiters)]), 0
    while holders:
        for holder in holders:
            table.release(holder)
        holders = table.drain()
        granted += len(holders)
    assert not table.waiting()
    return table.looked / max(granted, 1)


def test_a_grant_looks_at_as_many_waiters_among_thousands_as_among_ten():
    for same_key in (True, False):
        for parent in (None, "root"):
            few = _looks_per_grant(10, same_key=same_key, parent=parent)
            many = _looks_per_grant(3000, same_key=same_key, parent=parent)
            assert many <= 1.2 * few, (same_key, parent, few, many)
