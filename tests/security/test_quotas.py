"""S15: every quota at one below, at the limit and at one above; and a host that is asked for too much stays small."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace

import psutil
import pytest

import actorproc
from actorproc import (
    Config,
    InvalidId,
    Limits,
    LockKey,
    ManagerBusy,
    NotAllowed,
    Procedure,
    ProcedureFailed,
    StateNotEncodable,
    StateTooLarge,
    Status,
    UsageError,
)
from actorproc.core.lifecycle.signals import MAX_BUFFERED
from actorproc.engine.arguments import MAX_TAGS
from actorproc.procedure.values.codec import MAX_DEPTH
from actorproc.testing.inline import FAST, InlineManager


@dataclass
class Fan(Procedure):
    """Starts so many children, one after the other or at once, or a child that starts a child …"""

    children: int = 0
    depth: int = 0
    one_by_one: bool = False
    started: int = 0

    def execute(self, ctx):
        if self.depth and not self.started:
            self.started = 1
            return Status.suspended([Fan(depth=self.depth - 1)])
        if self.depth or self.started == self.children:
            return Status.done("ok")
        count = 1 if self.one_by_one else self.children
        self.started += count
        return Status.suspended([Fan() for _ in range(count)])


@dataclass
class Text(Procedure):
    text: str = ""
    output: int = 0
    nested: object = None

    def execute(self, ctx):
        return Status.done("x" * self.output if self.output else len(self.text))


class Waiter(Procedure):
    def execute(self, ctx):
        return Status.wait(f"news of {ctx.id}")


class Keyed(Waiter):
    def __init__(self, count=0, length=1):
        self.count, self.length = count, length

    def lock_keys(self):
        return [LockKey.write("k" * self.length)]

    def limit_keys(self):
        return [f"key {number}" for number in range(self.count)]


class Alone(Waiter):
    limits = Limits(dedicated=True)


def nested(levels):
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def run(config, procedure):
    with InlineManager([Fan, Text], config=config) as manager:
        return manager.finish(manager.submit(procedure)).result()


def accepts(config, *calls):
    """Whether the last of these is accepted; those before it are."""
    with InlineManager([Fan, Text, Waiter, Keyed, Alone], config=config) as manager:
        for call in calls[:-1]:
            call(manager)
        calls[-1](manager)
    return True


def overhead():
    """Bytes of the state of a `Text` beside its text."""
    with InlineManager([Text]) as manager:
        return len(manager._types.runtime_of(Text("x" * 700)).describe(Text("x" * 700)).state) - 700


def submit(procedure, **options):
    return lambda manager: manager.submit(procedure, **options)


LIMIT = 5
QUOTAS = {
    "children of one step": (
        lambda n: run(replace(FAST, max_children=LIMIT), Fan(children=n)),
        ProcedureFailed,
        r"max_children\); let some of them start the others",
    ),
    "children of several steps": (
        lambda n: run(replace(FAST, max_children=LIMIT), Fan(children=n, one_by_one=True)),
        ProcedureFailed,
        r"max_children\); let some of them start the others",
    ),
    "depth of a tree": (
        lambda n: run(replace(FAST, max_depth=LIMIT), Fan(depth=n)),
        ProcedureFailed,
        r"max_depth\); nest fewer",
    ),
    "procedures of a tree": (
        lambda n: run(replace(FAST, max_tree=LIMIT), Fan(children=n - 1)),
        ProcedureFailed,
        r"max_tree\); start fewer",
    ),
    "queued procedures": (
        lambda n: accepts(replace(FAST, max_queued=LIMIT), *[submit(Waiter()) for _ in range(n)]),
        ManagerBusy,
        "max_queued",
    ),
    "queued beside running ones": (
        lambda n: accepts(replace(FAST, max_running=2, max_queued=LIMIT - 2), *[submit(Waiter()) for _ in range(n)]),
        ManagerBusy,
        "max_queued",
    ),
    "procedures of one call": (
        lambda n: accepts(
            replace(FAST, max_queued=LIMIT), lambda manager: manager.submit_many([Waiter() for _ in range(n)])
        ),
        ManagerBusy,
        "max_queued",
    ),
    "bytes of a state": (
        lambda n: run(replace(FAST, max_state=700 + overhead()), Text("x" * (700 + n - LIMIT))),
        StateTooLarge,
        "max_state",
    ),
    "bytes of a signal": (  # three of them say how long the text is
        lambda n: accepts(replace(FAST, max_state=703), lambda manager: manager.publish("w", "x" * (700 + n - LIMIT))),
        StateTooLarge,
        "max_state",
    ),
    "nesting of a state": (
        lambda n: run(FAST, Text("x", nested=nested(MAX_DEPTH - 1 + n - LIMIT))),
        StateNotEncodable,
        "levels",
    ),
    "length of an id": (
        lambda n: accepts(FAST, submit(Waiter(), id="i" * (128 + n - LIMIT))),
        InvalidId,
        "128",
    ),
    "length of a lock key": (
        lambda n: accepts(FAST, submit(Keyed(length=255 + n - LIMIT))),
        ValueError,
        "255",
    ),
    "length of a tag": (
        lambda n: accepts(FAST, submit(Waiter(), tags=("t" * (256 + n - LIMIT),))),
        ValueError,
        "256",
    ),
    "tags": (
        lambda n: accepts(FAST, submit(Waiter(), tags=[f"tag {number}" for number in range(MAX_TAGS + n - LIMIT)])),
        ValueError,
        "100",
    ),
    "length of an owner": (
        lambda n: accepts(FAST, submit(Waiter(), owner="o" * (1024 + n - LIMIT))),
        ValueError,
        "1024",
    ),
    "limit keys": (lambda n: accepts(FAST, submit(Keyed(count=16 + n - LIMIT))), UsageError, "16"),
    "signals that wait": (
        lambda n: accepts(
            FAST, *[lambda manager: manager.publish("nobody yet", 1) for _ in range(MAX_BUFFERED + n - LIMIT)]
        ),
        NotAllowed,
        "1000 .* send it again",
    ),
}


@pytest.mark.parametrize("name", QUOTAS)
def test_s15_every_quota_holds_at_its_edge(name):
    use, refusal, words = QUOTAS[name]

    assert use(LIMIT - 1)
    assert use(LIMIT)
    with pytest.raises(refusal, match=words):
        use(LIMIT + 1)


@pytest.mark.parametrize(
    ("beyond", "refusal"),
    [
        (lambda: [(f"w{number}", Waiter()) for number in range(LIMIT + 1)], ManagerBusy),
        (lambda: [("first", Waiter()), ("large", Text("x" * (700 + overhead())))], StateTooLarge),
        (lambda: [("first", Waiter()), ("i" * 129, Waiter())], InvalidId),
        (lambda: [("first", Waiter()), ("keyed", Keyed(length=256))], ValueError),
    ],
    ids=["queued", "state", "id", "lock key"],
)
def test_s15_of_a_call_in_which_one_is_beyond_a_quota_nothing_is_stored(beyond, refusal):
    config = replace(FAST, max_queued=LIMIT, max_state=700)
    with InlineManager([Waiter, Text, Keyed], config=config) as manager:
        with pytest.raises(refusal):
            manager.submit_many(beyond())
        assert manager.list() == []
        assert manager.submit(Waiter(), "first").info().id == "first"


def test_s15_children_beyond_a_quota_are_not_stored():
    with InlineManager([Fan], config=replace(FAST, max_children=LIMIT)) as manager:
        manager.finish(manager.submit(Fan(children=LIMIT + 1), "root"))
        assert [info.id for info in manager.list()] == ["root"]


def test_s15_workers_of_ones_own_beyond_the_limit_wait(tmp_path):
    with InlineManager([Alone], config=replace(FAST, max_dedicated=1), workers=1) as manager:
        first = manager.submit(Alone(), id="first")
        second = manager.submit(Alone(), id="second")
        assert not second.wait(0.2)
        assert manager.info("second").phase in ("queued", "waiting")
        manager.abort("first")
        assert first.wait(20)


def resident():
    gc.collect()
    return psutil.Process().memory_info().rss


def test_s15_the_memory_of_a_host_stays_flat_while_it_is_abused():
    config = replace(FAST, max_queued=20, max_children=50, max_tree=100, max_depth=10, max_state=1 << 20)
    with InlineManager([Fan, Text, Waiter], config=config) as manager:

        def abuse(rounds):
            for number in range(rounds):
                with pytest.raises(StateTooLarge):
                    manager.submit(Text("x" * (2 << 20)))
                with pytest.raises(ManagerBusy):
                    manager.submit_many([Waiter() for _ in range(200)])
                with pytest.raises(InvalidId):
                    manager.submit(Waiter(), id="i" * 1_000_000)
                bomb = manager.submit(Fan(children=1000) if number % 2 else Fan(depth=1000))
                with pytest.raises(ProcedureFailed):
                    manager.finish(bomb).result(30)
                manager.delete(bomb.id)

        abuse(10)
        before = resident()
        abuse(60)
        grown = resident() - before

    assert grown < 24 << 20, f"{grown >> 20} MiB more after 60 rounds"


@pytest.mark.processes
def test_s15_an_answer_beyond_the_longest_frame_costs_its_procedure_only(tmp_path):
    config = Config(spares=0, max_frame=1 << 20, max_state=1 << 19, max_call=1 << 19)
    with actorproc.ProcedureManager(tmp_path / "store", workers=1, config=config) as manager:
        pid = manager.workers()[0].pid
        with pytest.raises(ProcedureFailed, match="bytes"):
            manager.run(Text(output=2 << 20))
        assert len(manager.run(Text(output=1 << 19))) == 1 << 19
        assert manager.workers()[0].pid == pid
