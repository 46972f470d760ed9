"""What programs that know only the public names ran into."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

import actorproc
from actorproc import DuplicateType, LockKey, Procedure, ProcedureState, Status, UsageError

SCRIPT = """
LIMIT = None
SEEN = {}


def get_ready(limit):
    global LIMIT
    LIMIT = limit
    SEEN["limit"] = limit


def limited(number):
    return min(number, LIMIT), within()


def within():
    return SEEN["limit"]
"""


@dataclass
class Child(Procedure):
    fails: bool

    def execute(self, ctx):
        if self.fails:
            raise ValueError("it would not")
        return Status.done()

    def rollback(self, ctx):
        pass


@dataclass
class Reporter(Procedure):
    """Keeps what the engine handed to it: in its state, without naming a class, and in its output."""

    states: list[Any] = field(default_factory=list)
    on_child_failure = "resume"

    def execute(self, ctx):
        if ctx.step == 1:
            return Status.suspended([Child(False), Child(True)])
        if ctx.step == 2:
            self.states = [outcome.state for outcome in ctx.children.values()]
            self.states.append(LockKey.write("reports/daily"))
            return Status.sleep(0.01)
        return Status.done(self.states)


def test_states_of_children_and_lock_keys_are_values_that_a_procedure_may_keep(open_manager):
    manager = open_manager()

    kept = manager.run(Reporter())

    assert kept == [ProcedureState.SUCCESS, ProcedureState.ROLLEDBACK, LockKey.write("reports/daily")]
    assert [type(value) for value in kept] == [ProcedureState, ProcedureState, LockKey]


def test_another_loader_under_a_name_is_refused_also_when_both_are_local(open_manager):
    manager = open_manager(workers=1)

    def one(data):
        return Child(False)

    def other(data):
        return Child(True)

    manager.register_loader("tests.local", one)
    manager.register_loader("tests.local", one)

    with pytest.raises(DuplicateType, match=r"tests\.local"):
        manager.register_loader("tests.local", other)
    with pytest.raises(DuplicateType, match=r"tests\.local"):
        manager.register_loader("tests.local", lambda data: Child(True))


def test_the_same_local_loader_defined_anew_takes_the_place_of_the_old_one(open_manager):
    manager = open_manager(workers=1)

    def edition():
        def loader(data):
            return Child(False)

        return loader

    manager.register_loader("tests.edition", edition())
    manager.register_loader("tests.edition", edition())


def test_what_an_initializer_of_a_script_sets_is_seen_by_the_functions_of_that_script(open_manager):
    main: dict[str, Any] = {"__name__": "__main__"}
    exec(SCRIPT, main)

    with actorproc.ProcedureExecutor(open_manager(workers=1), initializer=main["get_ready"], initargs=(5,)) as executor:
        assert executor.submit(main["limited"], 9).result(30) == (5, 5)
        assert list(executor.map(main["limited"], range(4, 8), chunksize=2)) == [(4, 5), (5, 5), (5, 5), (5, 5)]


def test_a_reader_and_a_client_work_in_the_managers_own_process_over_its_restarts(open_manager, tmp_path):
    place = tmp_path / "state"
    manager = open_manager(place, workers=1)
    manager.submit(Child(False), "first").result(30)
    with actorproc.StoreReader(place) as reader:
        assert [info.id for info in reader.list()] == ["first"]
        manager.stop()
        assert reader.info("first").state is ProcedureState.SUCCESS

        manager.start()
        with actorproc.ProcedureClient(place) as client:
            client.submit(Child(False), "second").result(30)
            assert [info.id for info in client.list()] == ["first", "second"]
        manager.compact()
        assert [info.id for info in reader.list()] == ["first", "second"]


def test_a_struct_that_no_worker_can_import_is_refused_before_it_would_be_parked(open_manager):
    class Local(Procedure, msgspec.Struct):
        amount: int

        def execute(self, ctx):
            return Status.done(self.amount)

    with pytest.raises(UsageError, match="put it in a module"):
        open_manager(workers=1).submit(Local(1))
