"""Wait-for graph of locks: keys, their holders, and the procedures that wait, with what goes round in a circle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from actorproc.report.info import LockInfo

__all__ = ["WaitEdge", "WaitGraph", "graph_lines", "wait_graph_of"]

_DEEPEST = 40


class WaitEdge(msgspec.Struct, frozen=True, kw_only=True):
    """A procedure and a key."""

    procedure: str
    key: str
    mode: str
    held: bool
    """It holds the key; else it waits for it."""
    place: int = 0
    """Place in the queue, from 1; 0 for a holder."""
    since: float = 0.0
    """Of a holder, epoch seconds."""
    in_cycle: bool = False


class WaitGraph(msgspec.Struct, frozen=True, kw_only=True):
    """All keys that are held, and who waits."""

    keys: tuple[str, ...]
    procedures: tuple[str, ...]
    edges: tuple[WaitEdge, ...]
    cycles: tuple[tuple[str, ...], ...] = ()
    """Procedures that wait for each other, in their order."""

    @property
    def roots(self) -> tuple[str, ...]:
        """Holders that others wait for and that wait for nothing: the ones to look at first."""
        waiting = {edge.procedure for edge in self.edges if not edge.held}
        waited = {edge.key for edge in self.edges if not edge.held}
        found = [edge.procedure for edge in self.edges if edge.held and edge.key in waited]
        return tuple(dict.fromkeys(name for name in found if name not in waiting))


def wait_graph_of(locks: Iterable[LockInfo]) -> WaitGraph:
    """The graph of a lock table."""
    held: list[WaitEdge] = []
    waits: dict[tuple[str, str], WaitEdge] = {}
    blocked: dict[str, dict[str, None]] = {}
    for lock in locks:
        held.append(WaitEdge(procedure=lock.holder, key=lock.path, mode=lock.mode, held=True, since=lock.since))
        for place, waiter in enumerate(lock.waiters, 1):
            edge = WaitEdge(procedure=waiter.procedure, key=lock.path, mode=waiter.mode, held=False, place=place)
            waits.setdefault((waiter.procedure, lock.path), edge)
            if waiter.procedure != lock.holder:
                blocked.setdefault(waiter.procedure, {})[lock.holder] = None
    cycles = _cycles({name: list(holders) for name, holders in blocked.items()})
    circled = {name for cycle in cycles for name in cycle}
    edges = [
        msgspec.structs.replace(edge, in_cycle=True)
        if edge.procedure in circled and _concerns(edge, held, waits, circled)
        else edge
        for edge in (*held, *waits.values())
    ]
    return WaitGraph(
        keys=tuple(dict.fromkeys(edge.key for edge in held)),
        procedures=tuple(dict.fromkeys(edge.procedure for edge in edges)),
        edges=tuple(edges),
        cycles=tuple(cycles),
    )


def _concerns(
    edge: WaitEdge, held: Sequence[WaitEdge], waits: dict[tuple[str, str], WaitEdge], circled: set[str]
) -> bool:
    """True if the other end of a key is in a circle too."""
    if edge.held:
        return any(name in circled for name, key in waits if key == edge.key)
    return any(other.procedure in circled for other in held if other.key == edge.key)


def _cycles(graph: dict[str, list[str]]) -> list[tuple[str, ...]]:
    """One circle through each group of procedures that wait for each other. Iterative: chains may be long."""
    done: set[str] = set()
    found: list[tuple[str, ...]] = []
    for start in graph:
        if start in done:
            continue
        path: list[str] = []
        places: dict[str, int] = {}
        stack: list[Iterator[str]] = [iter((start,))]
        while stack:
            name = next(stack[-1], None)
            if name is None:
                stack.pop()
                if path:
                    left = path.pop()
                    del places[left]
                    done.add(left)
            elif name in places:
                found.append(tuple(path[places[name] :]))
            elif name not in done:
                places[name] = len(path)
                path.append(name)
                stack.append(iter(graph.get(name, ())))
    return found


def graph_lines(graph: WaitGraph) -> Iterator[tuple[str, str]]:
    """The graph as a tree of text, each line with the procedure it is about: holders first, below them who waits."""
    by_key: dict[str, list[WaitEdge]] = {}
    holds: dict[str, list[WaitEdge]] = {}
    for edge in graph.edges:
        (holds.setdefault(edge.procedure, []) if edge.held else by_key.setdefault(edge.key, [])).append(edge)
    circled = dict.fromkeys(name for cycle in graph.cycles for name in cycle)
    waiting = {edge.procedure for edge in graph.edges if not edge.held}
    tops = dict.fromkeys((*graph.roots, *circled, *(name for name in holds if name not in waiting)))
    shown: set[str] = set()
    for cycle in graph.cycles:
        yield f"circle: {' → '.join((*cycle, cycle[0]))}", cycle[0]
    for top in tops:
        if top not in shown:
            yield from _below(top, "", "", holds, by_key, shown)


def _below(
    name: str,
    first: str,
    rest: str,
    holds: dict[str, list[WaitEdge]],
    by_key: dict[str, list[WaitEdge]],
    shown: set[str],
) -> Iterator[tuple[str, str]]:
    keys = holds.get(name, [])
    words = ", ".join(f"{edge.key} ({edge.mode})" for edge in keys[:3]) + (", …" if len(keys) > 3 else "")
    again = name in shown and bool(keys)
    shown.add(name)
    yield first + name + (f"  holds {words}" if words else "") + ("  (see above)" if again else ""), name
    if again or len(rest) >= 3 * _DEEPEST:
        return
    below = [edge for key in keys for edge in by_key.get(key.key, ())]
    for place, edge in enumerate(below):
        is_last = place == len(below) - 1
        mark = f"{edge.place}. for {edge.key} ({edge.mode}): "
        yield from _below(
            edge.procedure,
            rest + ("└─ " if is_last else "├─ ") + mark,
            rest + ("   " if is_last else "│  "),
            holds,
            by_key,
            shown,
        )
