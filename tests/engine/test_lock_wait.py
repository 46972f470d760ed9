"""`Limits.lock_wait` on the real engine."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from actorproc import Limits, LockKey, LockTimeout, Procedure, ProcedureFailed, ProcedureManager, Status, UsageError
from tests.kit.managers import LIGHT
from tests.kit.waiting import BOUND


@dataclass
class Holds(Procedure):
    def lock_keys(self):
        return [LockKey.write("disk")]

    def execute(self, ctx):
        return Status.done(ctx.event) if ctx.event is not None else Status.wait("go")


class Hurries(Holds):
    limits = Limits(lock_wait=0.05)


def test_a_wait_for_a_lock_ends_with_its_own_error(tmp_path):
    with ProcedureManager(tmp_path / "s", workers=2, **LIGHT) as manager:
        holder = manager.submit(Holds())
        with pytest.raises(ProcedureFailed) as failed:
            manager.run(Hurries(), timeout=BOUND)
        assert isinstance(failed.value.cause, LockTimeout)
        assert f"held by {holder.id}" in str(failed.value)
        with pytest.raises(ProcedureFailed, match=r"waits for write of .disk. held by"):
            manager.run(Holds(), limits=Limits(lock_wait=0.05), timeout=BOUND)
        manager.signal(holder.id, "now")
        assert holder.result(BOUND) == "now"
        done = manager.submit(Hurries())
        manager.signal(done.id, "then")
        assert done.result(BOUND) == "then"


@pytest.mark.parametrize("value", [0, -1, "soon", True])
def test_a_limit_that_is_none_is_told(value):
    with pytest.raises(UsageError, match="lock_wait"):
        Limits(lock_wait=value)
