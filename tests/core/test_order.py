"""The order of work: priorities that age, turns between trees, begun work before new roots, nobody left behind."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from actorproc.core.queues.run_queue import RunQueue
from actorproc.model.messages.outcomes import Advanced, Finished, Suspended
from tests.core.harness import CoreHarness

AGEING = 10.0


def _queue() -> RunQueue:
    return RunQueue(AGEING, place_of=int)


def _push(queue: RunQueue, name: str, now: float, *, priority: int = 0, root: str = "", new: bool = False) -> None:
    queue.push(name, root=root or name, priority=priority, is_new_root=new, now=now)


def _pop(queue: RunQueue, now: float) -> str | None:
    found = queue.peek()
    if found is None:
        return None
    queue.take(found[1], now)
    return found[1]


def _drain(queue: RunQueue, now: float = 0.0) -> list[str]:
    names = []
    while (name := _pop(queue, now)) is not None:
        names.append(name)
    return names


def test_a_higher_priority_goes_first() -> None:
    queue = _queue()
    _push(queue, "low", 0.0)
    _push(queue, "high", 1.0, priority=1)

    assert _drain(queue) == ["high", "low"]


def test_who_has_waited_a_level_of_ageing_goes_before_newcomers_of_the_higher_priority() -> None:
    queue = _queue()
    _push(queue, "low", 0.0)
    _push(queue, "soon", AGEING - 1, priority=1)
    _push(queue, "late", AGEING + 1, priority=1)

    assert _drain(queue, AGEING + 1) == ["soon", "low", "late"]


def test_a_clock_that_is_set_back_neither_ages_nor_overtakes() -> None:
    queue = _queue()
    _push(queue, "first", 1000.0)
    _push(queue, "second", 0.0)
    _push(queue, "third", 1.0)

    assert _drain(queue, 2.0) == ["first", "second", "third"]


def test_trees_take_turns_however_many_children_one_of_them_has() -> None:
    queue = _queue()
    for number in range(10_000):
        _push(queue, f"big:{number}", 0.0, root="big")
    _push(queue, "small:0", 1.0, root="small")
    _push(queue, "small:1", 1.0, root="small")

    assert [_pop(queue, 2.0) for _ in range(5)] == ["big:0", "small:0", "big:1", "small:1", "big:2"]


def test_begun_work_goes_before_new_roots_and_cannot_keep_them_out_for_ever() -> None:
    queue = _queue()
    _push(queue, "new", 0.0, new=True)
    _push(queue, "begun", 1.0)
    assert _pop(queue, 1.0) == "begun"

    order = []
    for now in range(1, 20):
        _push(queue, "begun", float(now))
        order.append(_pop(queue, float(now)))

    assert "new" not in order[:4]
    assert "new" in order[:6]


def test_what_is_taken_out_is_not_handed_out_and_may_come_back() -> None:
    queue = _queue()
    for name in ("a", "b", "c"):
        _push(queue, name, 0.0, root="r")
    queue.discard("a")
    queue.discard("c")
    _push(queue, "a", 0.0, root="r")

    assert _drain(queue) == ["b", "a"]
    assert len(queue) == 0


def test_what_lost_its_worker_goes_first_in_its_old_order() -> None:
    queue = _queue()
    _push(queue, "waiting", 0.0)
    for name in ("second", "first"):
        queue.put_back(name, root="r", priority=0, is_new_root=False, now=1.0)

    assert _drain(queue) == ["first", "waiting", "second"]


def test_many_priorities_are_served_in_their_order() -> None:
    queue = _queue()
    for number in range(200):
        _push(queue, f"p{number}", 0.0, priority=(number * 37) % 200)

    assert _drain(queue) == [f"p{number}" for number in sorted(range(200), key=lambda n: -((n * 37) % 200))]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["push", "pop", "discard", "back"]),
            st.integers(0, 15),  # which procedure
            st.integers(-3, 3),  # priority
            st.integers(0, 3),  # root
            st.booleans(),
            st.floats(0, 5, allow_nan=False),
        ),
        max_size=80,
    )
)
def test_nobody_is_lost_doubled_or_starved(moves: list[tuple[str, int, int, int, bool, float]]) -> None:
    queue = _queue()
    inside: set[str] = set()
    now = 0.0
    for kind, number, priority, root, new, pause in moves:
        now += pause
        name = f"p{number}"
        if kind == "pop":
            popped = _pop(queue, now)
            assert (popped in inside) if inside else popped is None
            inside.discard(popped or "")
        elif kind == "discard":
            queue.discard(name)
            inside.discard(name)
        else:
            put = queue.push if kind == "push" else queue.put_back
            put(name, root=f"r{root}", priority=priority, is_new_root=new, now=now)
            inside.add(name)
        assert queue.members() == inside

    # A stream of the highest priority arrives for ever; everybody who waited has a turn all the same.
    waiting = set(inside)
    bound = now + (AGEING * 7 + 1) * (len(waiting) + 1)
    served: set[str] = set()
    stream = 0
    while now < bound and not waiting <= served:
        now += 0.5
        stream += 1
        queue.push(f"s{stream}", root=f"s{stream}", priority=3, is_new_root=False, now=now)
        served.add(_pop(queue, now) or "")
    assert waiting <= served


# ---------------------------------------------------------------------- the same through the coordinator
def test_a_low_priority_root_runs_under_a_stream_of_urgent_ones() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("blocker"))
    harness.submit(harness.new("low"))
    for number in range(10):
        harness.submit(harness.new(f"urgent{number}", priority=1))
    started = []
    for number in range(10, 120):
        harness.now += 1.0
        (running,) = harness.inbox
        started.append(running)
        harness.submit(harness.new(f"urgent{number}", priority=1))
        harness.answer(running, Finished(state=b"", elapsed=1.0))

    assert "low" in started
    assert started.index("low") > 60  # and not before it has waited for its level


def test_a_tree_with_many_children_does_not_starve_the_child_of_another() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("big"))
    harness.submit(harness.new("small"))
    harness.answer(
        "big", Suspended(state=b"", children=tuple(harness.new(f"big.{n}") for n in range(1000)), elapsed=1.0)
    )
    started = []
    for _ in range(6):
        (running,) = harness.inbox
        started.append(running)
        if running == "small":
            harness.answer("small", Suspended(state=b"", children=(harness.new("small.0"),), elapsed=1.0))
        else:
            harness.answer(running, Finished(state=b"", elapsed=1.0))

    # Children before new roots; once half a level of ageing has passed the new root goes too, and then they alternate.
    assert started == [f"big.{n}" for n in range(6)]
    harness.now += 40.0
    for _ in range(4):
        (running,) = harness.inbox
        started.append(running)
        children = (harness.new("small.0"),)
        outcome = Suspended(state=b"", children=children, elapsed=1.0) if running == "small" else None
        harness.answer(running, outcome or Finished(state=b"", elapsed=1.0))
    assert "small" in started
    assert "small.0" in [*started, *harness.inbox]


def test_children_inherit_the_priority_of_their_parent() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("parent", priority=5))
    harness.submit(harness.new("other", priority=4))
    harness.answer("parent", Suspended(state=b"", children=(harness.new("child"),), elapsed=1.0))

    assert list(harness.inbox) == ["child"]


def test_a_yield_lets_begun_work_go_first() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("a"), harness.new("b"))
    harness.answer("a", Advanced(state=b"", yield_=True, elapsed=1.0))

    assert list(harness.inbox) == ["b"]
