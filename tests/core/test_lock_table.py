"""The lock table against a plain model, and its promises one by one."""

from __future__ import annotations

from hypothesis import given, strategies as st

from actorproc.core.locks.table import CONFLICTS, LockRequest, LockTable, needs_of
from actorproc.model.policies import LockKey, LockMode

READ, WRITE = LockKey.read, LockKey.write


def _request(
    table: LockTable, name: str, *keys: LockKey, ticket: int, parents: tuple[str, ...] = (), privileged: bool = False
) -> bool:
    return table.request(
        LockRequest(name, parents[-1] if parents else name, keys, frozenset((name, *parents)), ticket, privileged)
    )


def test_readers_share_and_a_writer_excludes() -> None:
    table = LockTable()

    assert _request(table, "a", READ("t"), ticket=1)
    assert _request(table, "b", READ("t"), ticket=2)
    assert not _request(table, "c", WRITE("t"), ticket=3)

    table.release("a")
    assert table.drain() == []
    table.release("b")
    assert table.drain() == ["c"]


def test_a_write_of_an_ancestor_excludes_everything_below_it() -> None:
    table = LockTable()

    assert _request(table, "a", WRITE("cat/db"), ticket=1)
    assert not _request(table, "b", READ("cat/db/t1/region"), ticket=2)
    assert _request(table, "c", WRITE("cat/other"), ticket=3)


def test_a_lock_below_is_a_shared_intention_above() -> None:
    table = LockTable()

    assert _request(table, "a", WRITE("cat/db/t1"), ticket=1)
    assert _request(table, "b", WRITE("cat/db/t2"), ticket=2)
    assert not _request(table, "c", READ("cat/db"), ticket=3)
    assert _request(table, "d", READ("dog"), ticket=4)


def test_a_waiting_writer_is_not_overtaken_by_later_readers() -> None:
    table = LockTable()
    _request(table, "reader", READ("t"), ticket=1)
    _request(table, "writer", WRITE("t"), ticket=2)

    assert not _request(table, "late reader", READ("t"), ticket=3)

    table.release("reader")
    assert table.drain() == ["writer"]
    table.release("writer")
    assert table.drain() == ["late reader"]


def test_keys_are_granted_all_at_once_or_not_at_all() -> None:
    table = LockTable()
    _request(table, "a", WRITE("x"), ticket=1)

    assert not _request(table, "b", WRITE("x"), WRITE("y"), ticket=2)
    assert table.keys_of("b") == {}
    assert not _request(table, "c", WRITE("y"), ticket=3), "b came first and waits for y too"

    table.release("a")
    assert table.drain() == ["b"]


def test_an_ancestors_lock_is_no_obstacle_and_covers_whoever_waits() -> None:
    table = LockTable()
    _request(table, "parent", WRITE("cat"), ticket=1)
    _request(table, "stranger", WRITE("cat"), ticket=2)

    assert _request(table, "child", WRITE("cat/t"), ticket=3, parents=("parent",), privileged=True)


def test_trees_that_hold_locks_go_before_trees_that_hold_none() -> None:
    table = LockTable()
    _request(table, "holder", WRITE("x"), ticket=1)
    _request(table, "newcomer", WRITE("x"), ticket=2)
    _request(table, "privileged", WRITE("x"), ticket=3, privileged=True)

    table.release("holder")

    assert table.drain() == ["privileged"]


def test_withdrawing_a_waiter_lets_those_behind_it_pass() -> None:
    table = LockTable()
    _request(table, "a", READ("x"), ticket=1)
    _request(table, "b", WRITE("x"), ticket=2)
    _request(table, "c", READ("x"), ticket=3)

    table.withdraw("b")

    assert table.drain() == ["c"]


def test_promoting_a_waiter_moves_it_before_the_others() -> None:
    table = LockTable()
    _request(table, "a", WRITE("x"), ticket=1)
    _request(table, "b", WRITE("x"), ticket=2)
    _request(table, "c", WRITE("x"), ticket=3)

    table.promote("c")
    table.release("a")

    assert table.drain() == ["c"]


def test_a_finished_childs_lock_moves_to_its_parent_and_stays_closed_to_strangers() -> None:
    table = LockTable()
    _request(table, "child", WRITE("x"), ticket=1, parents=("parent",))
    _request(table, "stranger", WRITE("x"), ticket=2)
    _request(table, "sibling", WRITE("x"), ticket=3, parents=("parent",), privileged=True)

    table.hold("parent", "x", LockMode.WRITE)
    table.release("child")

    assert table.drain() == ["sibling"]
    table.release("sibling")
    assert table.drain() == []
    table.release("parent")
    assert table.drain() == ["stranger"]


PATHS = ["a", "a/b", "a/b/c", "a/d", "e", "e/f"]
KEYS = st.lists(
    st.builds(LockKey, st.sampled_from(PATHS), st.sampled_from([LockMode.READ, LockMode.WRITE])), min_size=1, max_size=3
).map(tuple)
OPERATIONS = st.lists(st.one_of(KEYS, st.integers(0, 12)), max_size=30)


@given(OPERATIONS)
def test_no_two_strangers_ever_hold_conflicting_modes_and_nobody_waits_for_nothing(operations: list[object]) -> None:
    table = LockTable()
    count = 0
    names: list[str] = []
    for operation in operations:
        if isinstance(operation, tuple):
            count += 1
            names.append(f"p{count}")
            _request(table, f"p{count}", *operation, ticket=count)
        elif names:
            name = names.pop(int(str(operation)) % len(names))
            table.withdraw(name)
            table.release(name)
        table.drain()
        _check(table)
    for name in names:
        table.withdraw(name)
        table.release(name)
    assert not table.holders()
    assert not table.waiting()
    assert not table._nodes, "an empty table keeps no nodes"


def _check(table: LockTable) -> None:
    needs = {
        name: needs_of(LockKey(path, mode) for path, mode in keys.items()) for name, keys in table.holders().items()
    }
    for name, row in needs.items():
        for other, other_row in needs.items():
            if name < other:
                assert not any(CONFLICTS[mask] & other_row.get(path, 0) for path, mask in row.items()), (name, other)
    waiting = sorted(table.waiting().values(), key=lambda request: request.ticket)
    for place, request in enumerate(waiting):
        ahead = [*needs.values(), *(earlier.needs for earlier in waiting[:place])]
        assert any(CONFLICTS[mask] & row.get(path, 0) for row in ahead for path, mask in request.needs.items()), (
            f"{request.procedure} waits although nothing before it conflicts"
        )
