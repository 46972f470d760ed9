"""Chains of causes over small worlds that are only data."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actorproc.errors import UnknownProcedure
from actorproc.model.names import no_class_registered
from actorproc.model.policies import LockKey
from actorproc.model.rows.records import ErrorInfo, NewProcedure
from actorproc.model.rows.schedules import ScheduleRecord
from actorproc.model.states import Phase, ProcedureState
from actorproc.report.info import LockInfo, LockWaiterInfo, PoisonInfo, ProcedureInfo, schedule_info_of
from actorproc.report.why import Cause, EngineFacts, RunningStep, explain, explain_schedule

NOW = 1000.0


def info(name: str, phase: Phase, **fields: Any) -> ProcedureInfo:
    given = {
        "state": ProcedureState.RUNNABLE,
        "reason": None,
        "parent_id": None,
        "root_id": name,
        "children": {},
        "locks": (),
        "due_at": None,
        "error": None,
        "errors": 0,
        "finished_at": None,
    } | fields
    return ProcedureInfo(
        id=name,
        type_name="jobs.Job",
        version=1,
        phase=phase,
        run=1,
        step=2,
        attempt=1,
        crashes=0,
        owner=None,
        tags=(),
        priority=0,
        created_at=900.0,
        updated_at=940.0,
        deadline=None,
        progress=None,
        **given,
    )


class World:
    """Procedures, locks and a manager."""

    def __init__(self, *infos: ProcedureInfo, **facts: Any) -> None:
        self.infos = {each.id: each for each in infos}
        self.table: list[LockInfo] = []
        self.poisoned: list[PoisonInfo] = []
        self.engine = EngineFacts(**({"running": True} | facts))

    def lock(self, path: str, holder: str, *waiters: str, mode: str = "write") -> World:
        rows = tuple(LockWaiterInfo(name, "write", n) for n, name in enumerate(waiters))
        self.table.append(
            LockInfo(
                path=path, mode=mode, holder=holder, root=holder, kind="procedure", since=940.0, age=60.0, waiters=rows
            )
        )
        return self

    def info(self, id: str) -> ProcedureInfo:
        if id not in self.infos:
            raise UnknownProcedure(id)
        return self.infos[id]

    def unfinished(self, *, parent=None, root=None, limit: int) -> list[ProcedureInfo]:
        found = [
            each
            for each in self.infos.values()
            if (parent is None or each.parent_id == parent)
            and (root is None or each.root_id == root)
            and each.finished_at is None
        ]
        return found[:limit]

    def locks(self) -> list[LockInfo]:
        return self.table

    def poisons(self) -> list[PoisonInfo]:
        return self.poisoned

    def facts(self) -> EngineFacts:
        return self.engine

    def why(self, name: str) -> Cause:
        return explain(self, name, NOW)


def waiting(name: str, path: str, **fields: Any) -> ProcedureInfo:
    return info(name, Phase.LOCKED_OUT, locks=(LockKey.write(path),), **fields)


def kinds(cause: Cause) -> list[str]:
    """The kinds along the first branch."""
    return [cause.kind, *(kinds(cause.causes[0]) if cause.causes else [])]


def test_a_lock_leads_to_its_holder_and_to_the_step_that_runs_in_it():
    step = RunningStep(slot=4, pid=77, age=180.0)
    world = World(waiting("b", "k"), info("a", Phase.RUNNING), steps={"a": step}).lock("k", "a", "b")

    cause = world.why("b")

    assert cause.says == "b (Job) waits for write of 'k' held by a for 1 m"
    assert cause.causes[0].says == "a (Job) runs step 2 for 3 m on worker 4 (pid 77)"
    assert cause.causes[0].repairs == ("actorproc stack a", "actorproc kill a", "actorproc abort a --force")


def test_locks_with_different_waiters_are_not_mixed_up():
    world = World(
        waiting("w1", "k1"), waiting("w2", "k2"), info("a", Phase.RUNNING), info("b", Phase.WAITING, event="e")
    )
    world.lock("k1", "a", "w1").lock("k2", "b", "w2")

    assert [cause.procedure for cause in world.why("w1").causes] == ["a"]
    assert [cause.procedure for cause in world.why("w2").causes] == ["b"]


def test_a_key_above_names_the_lock_below_it():
    world = World(waiting("b", "db"), info("a", Phase.RUNNING)).lock("db/t1", "a", "b")

    assert "write of 'db' (against write of 'db/t1') held by a" in world.why("b").says


def test_one_who_stands_in_line_waits_for_those_before_it():
    world = World(
        info("c", Phase.LOCKED_OUT, locks=(LockKey.read("k"),)), waiting("b", "k"), info("a", Phase.RUNNING)
    ).lock("k", "a", "b", "c", mode="read")

    cause = world.why("c")

    assert "behind b, first come first served" in cause.says
    assert kinds(cause) == ["lock", "lock", "running"]


def test_a_parent_leads_to_the_child_that_stands_still():
    world = World(
        info("p", Phase.SUSPENDED, state=ProcedureState.WAITING, children={"RUNNABLE": 2}),
        info("p.0", Phase.RUNNING, parent_id="p", root_id="p"),
        info("p.1", Phase.STUCK, parent_id="p", root_id="p", errors=9, due_at=1012.0, error=_error("disk full")),
    )

    cause = world.why("p")

    assert cause.says == "p (Job) is suspended on 2 of its children"
    assert [each.kind for each in cause.causes] == ["stuck", "running"]
    assert cause.causes[0].says.endswith("ValueError: disk full; next try in 12 s")


def _error(message: str) -> ErrorInfo:
    return ErrorInfo("error", "builtins.ValueError", message)


def test_a_cycle_is_told_and_not_followed():
    world = World(waiting("a", "k2"), waiting("b", "k1")).lock("k1", "a", "b").lock("k2", "b", "a")

    cause = world.why("a")

    assert kinds(cause) == ["lock", "lock", "cycle"]
    assert "a → b → a" in next(cause.roots()).says
    assert next(cause.roots()).repairs == ("actorproc abort a", "actorproc abort b")


def test_a_crowd_of_blockers_is_cut_and_a_long_chain_too():
    holders = [info(f"h{n}", Phase.RUNNING) for n in range(9)]
    world = World(waiting("w", "db"), *holders)
    for holder in holders:
        world.lock(f"db/{holder.id}", holder.id, "w")

    causes = world.why("w").causes

    assert len(causes) == 6
    assert causes[-1].says == "and 4 more"
    chain = World(*(waiting(f"c{n}", f"k{n}") for n in range(100)))
    for n in range(99):
        chain.lock(f"k{n}", f"c{n + 1}", f"c{n}")
    ends = list(chain.why("c0").roots())
    assert [end.kind for end in ends] == ["more"]
    assert ends[0].repairs[0].startswith("actorproc why c")


@pytest.mark.parametrize(
    ("phase", "fields", "kind", "repair"),
    [
        (Phase.WAITING, {"event": "paid"}, "event", "actorproc signal x"),
        (Phase.PAUSED, {"paused": "audit"}, "paused", "actorproc resume x"),
        (Phase.PARKED, {}, "parked", "manager.register(Job)"),
        (Phase.PARKED, {"reason": no_class_registered("T", ["x.T"])}, "parked", "manager.register(Job)"),
        (Phase.PARKED, {"reason": "the field 'n' has no value"}, "parked", "actorproc reload"),
        (Phase.PARKED, {"reason": "a damaged record"}, "parked", "actorproc doctor"),
        (Phase.RETRYING, {"due_at": 1012.0, "errors": 2, "error": _error("no")}, "retrying", "actorproc abort x"),
        (Phase.STUCK, {"due_at": 1012.0, "errors": 2, "error": _error("no")}, "stuck", "actorproc bypass x --force"),
        (Phase.RUNNING, {}, "running", "actorproc stack x"),
    ],
)
def test_each_end_names_the_command_that_repairs_it(phase, fields, kind, repair):
    cause = World(info("x", phase, **fields)).why("x")

    assert cause.kind == kind
    assert cause.repairs[0] == repair


@pytest.mark.parametrize("reason", [None, "the field 'n' has no value"])
def test_a_parked_one_without_a_manager_waits_for_one_that_knows_its_class(reason):
    cause = World(info("x", Phase.PARKED, reason=reason), running=False).why("x")

    assert cause.repairs == ("actorproc run MODULE",) or cause.causes[-1].repairs == ("actorproc run MODULE",)


def test_sleeping_and_delayed_ones_say_when_they_go_on():
    assert World(info("x", Phase.SLEEPING, due_at=1030.0)).why("x").says == "x (Job) sleeps and goes on in 30 s"
    assert World(info("x", Phase.QUEUED, due_at=1030.0)).why("x").says == "x (Job) starts in 30 s"


def test_a_pause_above_explains_those_below():
    world = World(info("p", Phase.SUSPENDED, paused="maintenance"), info("c", Phase.QUEUED, parent_id="p", root_id="p"))

    cause = world.why("c")

    assert (cause.kind, cause.repairs) == ("paused", ("actorproc resume p",))
    assert "maintenance" in cause.says


def test_a_failed_one_names_the_keys_it_poisoned():
    failed = info("x", Phase.DONE, state=ProcedureState.FAILED, finished_at=990.0, error=_error("no"))
    world = World(failed)
    world.poisoned.append(PoisonInfo(path="cat/db t", by="x", root="x", at=990.0, reason="undo failed"))

    cause = world.why("x")

    assert cause.repairs == ("actorproc retry x", "actorproc clear-poison 'cat/db t'")
    assert "left 'cat/db t' poisoned" in cause.says


def test_without_a_manager_that_is_the_root_cause():
    world = World(waiting("b", "k"), info("a", Phase.QUEUED), running=False).lock("k", "a", "b")

    assert [end.repairs for end in world.why("b").roots()] == [("actorproc run jobs",)]
    event = World(info("x", Phase.WAITING, event="e"), running=False).why("x")
    assert kinds(event) == ["event", "manager"]


def test_a_paused_manager_and_busy_workers_explain_what_is_ready():
    ready = info("x", Phase.QUEUED)

    assert kinds(World(ready, paused="upgrade").why("x")) == ["manager", "paused"]
    busy = World(ready, info("a", Phase.RUNNING), steps={"a": RunningStep(slot=0, pid=1, age=2.0)}).why("x")
    assert kinds(busy) == ["worker", "running"]


def test_an_unknown_holder_is_no_reason_to_give_up():
    assert kinds(World(waiting("b", "k")).lock("k", "gone", "b").why("b")) == ["lock", "unknown"]


def test_causes_are_plain_data():
    cause = World(info("x", Phase.RUNNING)).why("x")

    assert msgspec.json.decode(msgspec.json.encode(cause.to_dict()), type=Cause) == cause


@pytest.mark.parametrize(
    ("fields", "repairs"),
    [
        ({}, ()),
        ({"paused": "too often"}, ("actorproc schedules s --resume",)),
        ({"due": None}, ("actorproc schedules s --remove",)),
    ],
)
@pytest.mark.parametrize("is_declared", [True, False])
def test_a_schedule_that_no_program_has_declared_yet_is_no_fault_to_repair(fields, repairs, *, is_declared):
    given = {"due": 3600, "epoch": 4, "declared_at": 60.0} | fields
    record = ScheduleRecord(
        id="s", spec="every 3600", new=NewProcedure(id="s", type_name="T", state=b"", digest=b""), **given
    )

    cause = explain_schedule(World(), schedule_info_of(record, 4 if is_declared else 5), NOW)

    assert cause.repairs == repairs
    assert ("its declaration is of 1970-01-01 00:01:00 UTC" in cause.says) is not is_declared
    assert ("If none is to do so, actorproc schedules s --remove" in cause.says) is not is_declared
