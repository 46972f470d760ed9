"""State machines over the user's enum."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pytest

from actorproc import Procedure, StateMachineProcedure, Status, UsageError
from actorproc.model.ids import Mode
from actorproc.model.messages.outcomes import Advanced, Failed, Finished, Slept, Suspended
from actorproc.procedure.runtime.engine_side import StateRefused, TypeRegistry, TypeRuntime


class Phase(Enum):
    PREPARE = "p"
    SPREAD = "s"
    FINISH = "f"


class Leaf(Procedure):
    def execute(self, ctx):
        return Status.done()


@dataclass
class Build(StateMachineProcedure):
    initial_state = Phase.PREPARE
    waits: int = 2
    seen: str = ""

    def execute_from_state(self, ctx, state):
        self.seen += state.value
        match state:
            case Phase.PREPARE:
                self.waits -= 1
                return Phase.SPREAD if self.waits < 0 else (Phase.PREPARE if self.waits else Status.sleep(1))
            case Phase.SPREAD:
                self.add_child(Leaf())
                return Phase.FINISH
            case Phase.FINISH:
                self.add_child(("last", Leaf()))
                return None

    def rollback_state(self, ctx, state):
        self.seen += state.value.upper()

    def is_rollback_supported(self, state):
        return state is not Phase.FINISH


def play(machine, context):
    runtime = TypeRuntime.of_class(type(machine))
    state, outcomes, cycles = runtime.describe(machine).state, [], []
    for number in range(1, 12):
        live = runtime.load(state, "data", 1)
        outcome, _ = runtime.run(live, context(step=number), Mode.EXECUTE, None, None)
        outcomes.append(outcome)
        cycles.append(live.cycles)
        if isinstance(outcome, Finished | Failed):
            break
        state = outcome.state
    return outcomes, cycles, live


def test_it_goes_from_state_to_state_with_children_and_stays_when_told(context):
    outcomes, cycles, live = play(Build(), context)

    assert [type(outcome) for outcome in outcomes] == [Advanced, Slept, Advanced, Suspended, Suspended, Finished]
    assert cycles == [1, 2, 0, 0, 0, 0]
    assert live.seen == "pppsf"
    assert outcomes[4].children[0].id == "last"


def test_the_unit_is_the_state_unless_it_cannot_be_undone(context):
    outcomes, _, _ = play(Build(), context)

    assert TypeRuntime.of_class(Build).describe(Build()).unit == "PREPARE"
    assert [outcome.unit for outcome in outcomes[:5]] == ["PREPARE", "PREPARE", "SPREAD", None, None]


def test_undo_is_asked_state_by_state(context):
    machine = Build()
    runtime = TypeRuntime.of_class(Build)

    for unit in ("SPREAD", "PREPARE"):
        outcome, _ = runtime.run(machine, context(mode=Mode.ROLLBACK), Mode.ROLLBACK, unit, None)
        assert isinstance(outcome, Finished)

    assert machine.seen == "SP"


def test_a_member_of_another_enum_is_an_invalid_status(context):
    class Wrong(Build):
        def execute_from_state(self, ctx, state):
            return Mode.EXECUTE

    outcomes, _, _ = play(Wrong(), context)

    assert outcomes[0].error.kind == "invalid-status"


def test_children_cannot_go_with_a_sleep(context):
    class Wrong(Build):
        def execute_from_state(self, ctx, state):
            self.add_child(Leaf())
            return Status.sleep(1)

    outcomes, _, _ = play(Wrong(), context)

    assert outcomes[0].error.kind == "invalid-status"


def test_added_children_join_those_of_a_suspended_status(context):
    class Both(Build):
        def execute_from_state(self, ctx, state):
            self.add_child(Leaf())
            return Status.suspended([("a", Leaf())], wait="any")

    outcomes, _, _ = play(Both(), context)

    assert len(outcomes[0].children) == 2
    assert outcomes[0].wait == "any"


def test_a_state_that_is_gone_from_the_enum_refuses_the_stored_state():
    class Shorter(Enum):
        ONLY = 1

    class Rebuilt(Build):
        initial_state = Shorter.ONLY

    state = TypeRuntime.of_class(Build).describe(Build()).state

    with pytest.raises(StateRefused, match="PREPARE"):
        TypeRuntime.of_class(Rebuilt).load(state, "data", 1)


def test_a_machine_without_initial_state_or_steps_is_refused():
    class NoStart(StateMachineProcedure):
        def execute_from_state(self, ctx, state): ...

    class NoSteps(StateMachineProcedure):
        initial_state = Phase.PREPARE

    with pytest.raises(UsageError, match="initial_state"):
        TypeRuntime.of_class(NoStart)
    with pytest.raises(UsageError, match="execute_from_state"):
        TypeRuntime.of_class(NoSteps)


def test_methods_that_are_coroutines_are_refused():
    async def later(self, *_):
        pass

    def piecemeal(self, *_):
        yield

    found = {"execute_from_state": piecemeal, "rollback_state": piecemeal}
    for name, method in (found | dict.fromkeys(("is_rollback_supported", "is_no_return"), later)).items():
        body = {"initial_state": Phase.PREPARE, "execute_from_state": lambda self, ctx, state: None, name: method}
        with pytest.raises(UsageError, match=rf"{name}\(\) as a coroutine"):
            TypeRegistry().register(type("Later", (StateMachineProcedure,), body))


def test_children_that_on_timeout_adds_are_started_as_well(context):
    class Patient(Build):
        def on_timeout(self, ctx):
            self.add_child(("mind", Leaf()))
            return Status.executing()

    class Firm(Build):
        def on_timeout(self, ctx):
            self.add_child(("mind", Leaf()))

    runtime = TypeRuntime.of_class(Patient)
    suspended, _ = runtime.run(Patient(), context(mode=Mode.ON_TIMEOUT), Mode.ON_TIMEOUT, None, None)
    failed, _ = TypeRuntime.of_class(Firm).run(Firm(), context(mode=Mode.ON_TIMEOUT), Mode.ON_TIMEOUT, None, None)

    assert isinstance(suspended, Suspended)
    assert [child.id for child in suspended.children] == ["mind"]
    assert isinstance(failed, Failed)
