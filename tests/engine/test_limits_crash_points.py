"""The host dies before every commit: dedicated and threaded procedures, and given limits, are taken up again."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from actorproc import Limits, Procedure, RetryPolicy, Saga, Status, step
from tests.catalogue.kit import crash_at_every_commit, ending_of, note, on_threads


@dataclass
class Alone(Saga):
    """Three steps in a worker of its own; the last may fail, and then all is undone there."""

    folder: str
    fails: bool
    limits = Limits(dedicated=True)
    rollback_retry = RetryPolicy(max_attempts=1)

    @step
    def first(self, ctx):
        note(self.folder, "first")

    @first.undo
    def undo_first(self, ctx):
        note(self.folder, "undo first")

    @step
    def second(self, ctx):
        note(self.folder, "second")
        return Status.sleep(0.001)

    @second.undo
    def undo_second(self, ctx):
        note(self.folder, "undo second")

    @step
    def third(self, ctx):
        note(self.folder, "third")
        if self.fails:
            raise ValueError("no")
        return "done"


@dataclass
class Both(Procedure):
    """A parent with children that run beside each other, one of them in a worker of its own."""

    folder: str
    suspended: bool = False
    uses = ()

    def execute(self, ctx):
        note(self.folder, "parent", int(self.suspended))
        if not self.suspended:
            self.suspended = True
            return Status.suspended(
                [("io-1", Beside(self.folder)), ("io-2", Beside(self.folder)), ("own", Alone(self.folder, False))]
            )
        return Status.done(sorted(ctx.children))


@dataclass
class Beside(Procedure):
    folder: str
    limits = Limits(threads=2)

    def execute(self, ctx):
        note(self.folder, ctx.id)
        return Status.done(ctx.id)


Both.uses = (Beside, Alone)


@pytest.mark.parametrize("fails", [False, True], ids=["ends well", "is undone"])
def test_a_dedicated_procedure_goes_on_after_a_crash_before_any_commit(tmp_path, fails):
    folder = str(tmp_path)

    assert crash_at_every_commit(Alone(folder, fails), folder, lambda _, handle: ending_of(handle)) >= 4


def test_children_with_and_without_workers_of_their_own_go_on_after_a_crash_before_any_commit(tmp_path):
    folder = str(tmp_path)

    assert crash_at_every_commit(Both(folder), folder, lambda _, handle: ending_of(handle), workers=2) >= 4


def test_a_dedicated_worker_that_cannot_boot_is_tried_again(tmp_path):
    from actorproc.store.memory import MemoryStore

    with on_threads(MemoryStore(), (Alone,)) as manager:
        pool = manager._tree.pool
        pool._boot_failures = 2
        handle = manager.submit(Alone(str(tmp_path), False))

        assert handle.result(30) == "done"
