"""Catalogue row 58: a real failover at each step of many shapes of work, and the same end every time."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from actorproc import LockKey, Procedure, RetryPolicy, Saga, Status, step
from actorproc.errors import RetryLater
from actorproc.store.memory import MemoryStore
from tests.catalogue.kit import crash_at_every_commit, ending_of, live_through_crashes, note, noted, on_threads
from tests.kit.waiting import BOUND

pytestmark = pytest.mark.processes

QUICK = RetryPolicy(max_attempts=3, base=0.001, jitter=0.0, retry_on=(ValueError, RetryLater))


@dataclass
class Part(Procedure):
    """Some steps under a lock, or fewer and then a failure."""

    folder: str
    name: str
    steps: int = 1
    fails: bool = False
    key: str = ""
    at: int = 0

    def lock_keys(self):
        return [LockKey.write(self.key)] if self.key else []

    def execute(self, ctx):
        self.at += 1
        note(self.folder, "do", self.name, self.at)
        if self.at < self.steps:
            return Status.executing()
        if self.fails:
            raise LookupError(self.name)
        return Status.done(self.name)

    def rollback(self, ctx):
        note(self.folder, "undo", self.name)


class StepLocked(Part):
    lock_scope = "step"


@dataclass
class Group(Procedure):
    """Starts parts and ends with what became of them. The options are those of `Status.suspended`."""

    folder: str
    parts: list[Part] = field(default_factory=list)
    options: dict = field(default_factory=dict)
    key: str = ""
    uses = (Part, StepLocked)

    def lock_keys(self):
        return [LockKey.write(self.key)] if self.key else []

    def execute(self, ctx):
        if not ctx.children:
            return Status.suspended([(part.name, part) for part in self.parts], **self.options)
        return Status.done(sorted((str(child.state), child.output) for child in ctx.children.values()))

    def rollback(self, ctx):
        note(self.folder, "undo", "group")


class Forgiving(Group):
    on_child_failure = "resume"


class Compensating(Group):
    """Undoes its finished children itself."""

    undo_children = False

    def execute(self, ctx):
        done = super().execute(ctx)
        if ctx.children:
            raise LookupError("after the children")
        return done


class Waiting(Saga):
    """Sleeps, takes another lock, remembers, retries, and fails in the end when told so."""

    folder: str
    fails: bool
    token: str = ""
    retry = QUICK

    @step
    def rest(self, ctx):
        note(self.folder, "do", "rest")
        return Status.sleep(0.003)

    @rest.undo
    def unrest(self, ctx):
        note(self.folder, "undo", "rest")

    @step
    def decide(self, ctx):
        self.token = ctx.remember("token", lambda: "made once")
        note(self.folder, "do", "decide", self.token)
        if ctx.attempt == 1:
            raise RetryLater("not at once", after=0.002)

    @decide.undo
    def undecide(self, ctx):
        note(self.folder, "undo", "decide", self.token)

    @step
    def finish(self, ctx):
        note(self.folder, "do", "finish")
        if self.fails:
            raise LookupError("in the end")
        return self.token


class Beyond(Saga):
    """Fails twice past the point of no return, and goes on."""

    folder: str
    retry = QUICK

    @step
    def before(self, ctx):
        note(self.folder, "do", "before")

    @before.undo
    def unbefore(self, ctx):
        note(self.folder, "undo", "before")

    @step(no_return=True)
    def beyond(self, ctx):
        if ctx.attempt <= 2:
            raise ValueError("try again")
        return "arrived"


def four(folder, **options):
    return [Part(folder, f"part-{n}", steps=1 + n % 2, **options) for n in range(4)]


SHAPES = {
    "parts that share one lock": lambda f: Group(f, four(f, key="k")),
    "parts that lock below their parent": lambda f: Group(f, four(f, key="k/below"), key="k"),
    "two at a time": lambda f: Group(f, four(f), {"max_parallel": 2}),
    "one at a time, the last fails": lambda f: Group(f, [*four(f), Part(f, "bad", fails=True)], {"max_parallel": 1}),
    "step locks and a failure": lambda f: Group(
        f, [StepLocked(f, "a", 2, key="k"), StepLocked(f, "b", 2, fails=True, key="k")], {"max_parallel": 1}
    ),
    "a failure that the parent takes": lambda f: Forgiving(f, [*four(f, key="k"), Part(f, "bad", 2, fails=True)]),
    "a parent that compensates": lambda f: Compensating(f, four(f)),
    "sleep, note, retry": lambda f: Waiting(f, fails=False),
    "sleep, note, retry, failure": lambda f: Waiting(f, fails=True),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_hbase_58_a_failover_at_any_commit_does_not_change_the_end(folder, shape):
    """Same states of all members, same output, no lock and no poison left, nothing left out."""

    def judge(manager, handle):
        end = ending_of(handle)
        return end, sorted((info.id, str(info.state)) for info in manager.list()), manager.locks()

    assert crash_at_every_commit(SHAPES[shape](folder), folder, judge) >= 4


@pytest.mark.parametrize("shape", SHAPES)
def test_hbase_58_a_failover_before_each_record_does_not_change_the_end(folder, shape):
    """One history in which the host dies before every single record: undone is exactly what is to be undone."""
    procedure = SHAPES[shape](folder)
    with on_threads(MemoryStore(), (type(procedure), *type(procedure).uses)) as manager:
        wanted = ending_of(manager.submit(procedure, "root"))
        states = sorted((info.id, str(info.state)) for info in manager.list())
    undisturbed = set(noted(folder))

    store, lives = live_through_crashes(SHAPES[shape](folder))

    with on_threads(store.next_life(), (type(procedure), *type(procedure).uses)) as manager:
        assert ending_of(manager.get("root")) == wanted
        assert sorted((info.id, str(info.state)) for info in manager.list()) == states
    assert set(noted(folder)) == undisturbed
    assert lives >= 4


def test_hbase_58_past_the_point_of_no_return_a_failover_only_goes_forward(folder):
    """Wherever the host dies, the procedure arrives and nothing is ever undone."""

    def judge(_, handle):
        return handle.result(BOUND), [line for line in noted(folder) if line.startswith("undo")]

    assert crash_at_every_commit(Beyond(folder), folder, judge) >= 3
