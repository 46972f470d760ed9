"""Does a grant cost more when many wait?

    python bench/locks.py [--waiters 1000 10000 100000]

The lock table alone, without a store. For each number of waiters: all of them ask, then whoever holds releases and the
table says who is next, until nobody waits. "same key": every procedure writes one key. "different keys": each writes a
key of its own under one common parent, and every key is held by somebody else. "siblings": children of one tree, which
holds locks, write the same key. "readers and writers": one key, every tenth a writer. Seconds are CPU time. The default
takes about 40 s.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable

from common import report

from actorproc.core.locks.table import LockRequest, LockTable
from actorproc.model.policies import LockKey, LockMode

_HOT = "shop/orders/hot"
_TOTAL = 20_000


def ask(table: LockTable, number: int, key: LockKey, *, parent: str | None = None) -> bool:
    """The request of one procedure."""
    name = f"p{number}"
    tree = parent or name
    lineage = frozenset({name, tree})
    return table.request(LockRequest(name, tree, (key,), lineage, number, privileged=parent is not None, parent=parent))


def same_key(table: LockTable, count: int) -> Callable[[], list[str]]:
    """Everybody writes one key."""
    for number in range(count + 1):
        ask(table, number, LockKey.write(_HOT))
    return lambda: ["p0"]


def different_keys(table: LockTable, count: int) -> Callable[[], list[str]]:
    """Each waiter waits for a holder of its own."""
    holders = [f"h{number}" for number in range(count)]
    for number, holder in enumerate(holders):
        table.hold(holder, f"shop/orders/{number}", LockMode.WRITE)
        ask(table, number, LockKey.write(f"shop/orders/{number}"))
    return lambda: holders


def siblings(table: LockTable, count: int) -> Callable[[], list[str]]:
    """Children of one tree write the same key."""
    table.hold("root", "shop/carts", LockMode.READ)
    for number in range(count + 1):
        ask(table, number, LockKey.write(_HOT), parent="root")
    return lambda: ["p0"]


def readers_and_writers(table: LockTable, count: int) -> Callable[[], list[str]]:
    """Every tenth writes what the others read."""
    for number in range(count + 1):
        ask(table, number, LockKey.read(_HOT) if number % 10 else LockKey.write(_HOT))
    return lambda: ["p0"]


SHAPES: dict[str, Callable[[LockTable, int], Callable[[], list[str]]]] = {
    "same key": same_key,
    "different keys": different_keys,
    "siblings": siblings,
    "readers and writers": readers_and_writers,
}


def measure(shape: str, count: int) -> tuple[float, float]:
    """CPU seconds per request that queues, and per grant."""
    table = LockTable()
    gc.collect()
    start = time.process_time()
    first = SHAPES[shape](table, count)
    asked = time.process_time() - start
    start = time.process_time()
    granted = 0
    holders = first()
    while holders:
        following: list[str] = []
        for holder in holders:
            table.release(holder)
            following += table.drain()
        granted += len(following)
        holders = following
    if granted != count or table.waiting():
        raise SystemExit(f"{shape}: {granted} of {count} were granted")
    return asked / count, (time.process_time() - start) / count


def middle_of(shape: str, count: int) -> tuple[float, float]:
    """The middle of as many runs as make `_TOTAL` grants, at least three: a thousand take some ten milliseconds."""
    runs = [measure(shape, count) for _ in range(max(3, _TOTAL // count))]
    asked, granted = zip(*runs, strict=True)
    return statistics.median(asked), statistics.median(granted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiters", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    options = parser.parse_args()
    figures: dict[str, object] = {}
    lines = []
    for shape in SHAPES:
        measured = {count: middle_of(shape, count) for count in options.waiters}
        smallest, largest = (measured[count][1] for count in (min(measured), max(measured)))
        figures[shape] = {
            "request_us": {count: asked * 1e6 for count, (asked, _) in measured.items()},
            "grant_us": {count: grant * 1e6 for count, (_, grant) in measured.items()},
            "largest_to_smallest": largest / smallest,
        }
        texts = (f"{grant * 1e6:6.1f} us at {count:,}" for count, (_, grant) in measured.items())
        lines.append(f"grant, {shape:20} {', '.join(texts)}   (x {largest / smallest:.2f})")
    report("locks", {"shapes": figures}, lines)


if __name__ == "__main__":
    main()
