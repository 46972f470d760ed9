"""Everything that can be done to the lock table, in any order: nobody overtakes, nobody waits for nothing."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings, strategies as st

from actorproc.core.locks.table import CONFLICTS, LockRequest, LockTable, needs_of
from actorproc.model.policies import LockBit, LockKey, LockMode
from tests.core.test_lock_table import KEYS

IS, IX, S, X = map(int, LockBit)
WHO = st.integers(0, 30)
ASK = st.tuples(st.just("ask"), KEYS, st.none() | WHO, st.booleans(), st.integers(0, 20))
MOVE = st.tuples(
    st.sampled_from(["end", "inherit", "promote", "demote", "leave_wait_lists", "join_wait_lists", "reduce"]), WHO, WHO
)
MOVES = st.lists(st.one_of(ASK, ASK, MOVE, MOVE), max_size=30)


class Scene:
    """A table, who is whose child in it, and what must be true of it."""

    def __init__(self) -> None:
        self.table = LockTable()
        self.lineages: dict[str, frozenset[str]] = {}
        self.parents: dict[str, str | None] = {}
        self.requests: dict[str, LockRequest] = {}
        self.held_before: dict[str, dict[str, int]] = {}
        self.newcomer = ""
        self.count = 0

    # ------------------------------------------------------------------ moves, as the core makes them
    def play(self, move: tuple[object, ...]) -> None:
        """Make this move, as far as it can be made, and check what it did."""
        before = set(self.table.waiting())
        self.held_before = self._needs()
        self.newcomer = ""
        getattr(self, "_" + str(move[0]))(*move[1:])
        granted = self._drain()
        assert set(granted) <= before | {self.newcomer}
        self._check_strangers()
        self._check_reasons()

    def _ask(self, keys: tuple[LockKey, ...], parent: int | None, privileged: bool, age: int) -> None:
        self.count += 1
        self.newcomer = name = f"p{self.count}"
        above = None if parent is None else self._one(parent, list(self.lineages))
        self.parents[name] = above
        self.lineages[name] = frozenset((name,)) | (self.lineages[above] if above else frozenset())
        # After a restart the waiters ask again in any order, with their old tickets.
        ticket = 100 * age + self.count
        tree = self.requests[above].tree if above else name
        goes_first = privileged or tree in self._trees_with_locks()
        request = self.requests[name] = LockRequest(
            name, tree, keys, self.lineages[name], ticket, goes_first, parent=above
        )
        assert self.table.request(request) is not self.table.is_waiting(name)
        if not self.table.is_waiting(name):
            self._check_order([name])
            self._go_on(name)

    def _end(self, who: int, _: int) -> None:
        name = self._one(who, self._leaves())
        if name:
            self.table.withdraw(name)
            self.table.withdraw(name)
            self.table.release(name)
            assert self.table.release(name) == []
            del self.lineages[name], self.parents[name]

    def _inherit(self, who: int, _: int) -> None:
        """A child ends, and leaves its locks to its parent."""
        name = self._one(who, [name for name in self._leaves() if self._may_inherit(name)])
        if name:
            parent = str(self.parents[name])
            for path, mode in self.table.keys_of(name).items():
                self.table.hold(parent, path, mode)
            self.held_before = self._needs()
            self.table.release(name)
            del self.lineages[name], self.parents[name]

    def _may_inherit(self, name: str) -> bool:
        return bool(self.parents[name] and self.table.keys_of(name)) and not self.table.is_waiting(name)

    def _promote(self, who: int, _: int) -> None:
        name = self._one(who, [*self.table.waiting()])
        if name:
            self.table.promote(name)
            assert not self.table.is_waiting(name) or self.table.waiting()[name].privileged

    def _demote(self, who: int, _: int) -> None:
        """Its tree holds nothing any more."""
        with_locks = self._trees_with_locks()
        privileged = [name for name, request in self.table.waiting().items() if request.privileged]
        name = self._one(who, [name for name in privileged if self.requests[name].tree not in with_locks])
        if name:
            self.table.demote(name)

    def _leave_wait_lists(self, who: int, _: int) -> None:
        """Who is in a circle of waiting, and so holds something itself."""
        name = self._one(who, [name for name, request in self.table.waiting().items() if request.privileged])
        if name:
            was_ahead = self.table.waiting()[name].ahead
            assert self.table.leave_wait_lists(name) is not was_ahead

    def _join_wait_lists(self, who: int, _: int) -> None:
        name = self._one(who, [name for name, request in self.table.waiting().items() if request.ahead])
        if name:
            self.table.join_wait_lists(name)
            assert not self.table.waiting()[name].ahead

    def _reduce(self, who: int, which: int) -> None:
        """Keep some keys, write locks perhaps for reading only."""
        name = self._one(who, [*self.table.holders()])
        if name:
            held = self.table.keys_of(name)
            kept = {
                path: mode if which >> place & 2 else LockMode.READ
                for place, (path, mode) in enumerate(held.items())
                if which >> place & 1
            }
            if kept:
                self.table.has_released = False
                self.table.reduce(name, kept)
                assert self.table.keys_of(name) == kept
                assert self.table.has_released

    def _one(self, number: int, names: list[str]) -> str:
        return names[number % len(names)] if names else ""

    def _leaves(self) -> list[str]:
        return [name for name in self.lineages if name not in self.parents.values()]

    def _go_on(self, holder: str) -> None:
        """Somebody was granted locks: its tree goes before others, and those below it may be covered."""
        for name in sorted(self.table.waiting(), key=lambda name: self.requests[name].ticket):
            if self.requests[name].tree == self.requests[holder].tree:
                self.table.promote(name)
        for name in sorted(self.table.waiting(), key=lambda name: self.requests[name].ticket):
            if holder in self.lineages[name] and name != holder:
                self.table.look_again(name)

    def _trees_with_locks(self) -> set[str]:
        return {self.requests[name].tree for name in self.table.holders()}

    def _drain(self) -> list[str]:
        """Those granted, until what they cover for those below them grants nobody else."""
        granted: list[str] = []
        while self.table.has_news:
            found = self.table.drain()
            self._check_order(found)  # before whoever is of their trees goes before others for it
            granted += found
            for name in found:
                self._go_on(name)
        assert self.table.drain() == []
        return granted

    # ------------------------------------------------------------------ what must be true
    def _needs(self) -> dict[str, dict[str, int]]:
        return {
            name: needs_of(LockKey(path, mode) for path, mode in keys.items())
            for name, keys in self.table.holders().items()
        }

    def _check_strangers(self) -> None:
        needs = self._needs()
        for name, row in needs.items():
            for other, other_row in needs.items():
                if name < other and name not in self.lineages[other] and other not in self.lineages[name]:
                    assert not _conflict(row, other_row), f"{name} and {other} hold what excludes each other"

    def _check_order(self, granted: list[str]) -> None:
        """Nobody was granted what somebody in front of it waits for, unless it had that from its ancestors."""
        for name in granted:
            request = self.requests[name]
            for other in () if request.ahead else self.table.waiting().values():
                if _place(other) < _place(request):
                    had = self._lent(request)
                    assert not self._in_conflict(other, request, had), f"{name} overtook {other.procedure}"

    def _check_reasons(self) -> None:
        for name, request in self.table.waiting().items():
            assert any(self._reasons(request)), f"{name} waits although nothing is in its way"

    def _reasons(self, request: LockRequest) -> Iterator[bool]:
        needs = self._needs()
        for name, row in needs.items():
            yield name not in request.lineage and _conflict(row, request.needs)
        had = [needs.get(name, {}) for name in request.lineage]
        for other in () if request.ahead else self.table.waiting().values():
            yield _place(other) < _place(request) and self._in_conflict(other, request, had)

    def _lent(self, request: LockRequest) -> list[dict[str, int]]:
        """What the ancestors of a request hold, and what it held itself before it was granted."""
        needs = self._needs()
        above = [needs.get(name, {}) for name in request.lineage if name != request.procedure]
        return [*above, self.held_before.get(request.procedure, {})]

    @staticmethod
    def _in_conflict(other: LockRequest, request: LockRequest, had: list[dict[str, int]]) -> bool:
        """Whether a waiter conflicts with a request on a node that nothing covers which the request has."""
        return any(
            CONFLICTS[mask] & other.needs.get(path, 0) and not any(_covers(row, path, mask) for row in had)
            for path, mask in request.needs.items()
        )


def _covers(row: dict[str, int], path: str, asked: int) -> bool:
    held = row.get(path, 0)
    if held and (held | IS) & asked == asked:
        return True
    places = ("/".join(path.split("/")[:end]) for end in range(1, path.count("/") + 2))
    return any(row.get(place, 0) & X or (row.get(place, 0) & S and not asked & (IX | X)) for place in places)


def _place(request: LockRequest) -> tuple[bool, int]:
    return not request.privileged, request.ticket


def _conflict(row: dict[str, int], other: dict[str, int]) -> bool:
    return any(CONFLICTS[mask] & other.get(path, 0) for path, mask in row.items())


@settings(max_examples=300)
@given(MOVES)
def test_nobody_overtakes_and_nobody_waits_for_nothing_whatever_is_done_in_which_order(
    moves: list[tuple[object, ...]],
) -> None:
    scene = Scene()
    for move in moves:
        scene.play(move)
    for name in sorted(scene.lineages, key=lambda name: len(scene.lineages[name]), reverse=True):
        scene.table.withdraw(name)
        scene.table.release(name)
        scene.table.drain()
    assert not scene.table.holders()
    assert not scene.table.waiting()
    assert not scene.table._nodes, "an empty table keeps no nodes"
