"""What `actorproc.testing` offers to tests of procedures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from actorproc import Limits, Procedure, ProcedureFailed, RetryLater, RetryPolicy, Saga, Status, UsageError, step
from actorproc.engine.runtime.clock import Alarm
from actorproc.testing import (
    DidNotSurvive,
    InlineManager,
    VirtualClock,
    crash_point,
    crashing_at,
    survives_crashes,
)

pytest_plugins = ["pytester"]

EXAMPLES = Path(__file__).parents[2] / "examples"
world: Counter[str] = Counter()


inside, go_on = threading.Event(), threading.Event()


class Slow(Procedure):
    """Its first attempt waits until it is let go."""

    def execute(self, ctx):
        if ctx.attempt == 1:
            inside.set()
            go_on.wait(20)
        return Status.done(ctx.attempt)


@pytest.fixture(autouse=True)
def _new_world():
    world.clear()


class Idempotent(Saga):
    item: str

    @step
    def reserve(self, ctx):
        world["reserved"] = 1

    @reserve.undo
    def free(self, ctx):
        world["reserved"] = 0

    @step
    def pay(self, ctx):
        world[f"paid {ctx.idempotency_key}"] = 10

    @step
    def ship(self, ctx):
        return f"{self.item} is on its way"


class Counting(Idempotent):
    """Its second step is not idempotent."""

    @step
    def pay(self, ctx):
        world["paid"] += 10


class UndoCounting(Idempotent):
    """Its undo is not idempotent."""

    @step
    def reserve(self, ctx):
        world["stock"] = 4

    @reserve.undo
    def free(self, ctx):
        world["stock"] += 1

    @step
    def ship(self, ctx):
        raise ValueError("no road")


class Parent(Procedure):
    done: bool = False

    def execute(self, ctx):
        if self.done:
            return Status.done(sorted(outcome.output for outcome in ctx.children.values()))
        self.done = True
        return Status.suspended([("first", Idempotent("a")), ("second", Counting("b"))])


class Patient(Procedure):
    """Sleeps for a day, is told something, and fails twice before it works."""

    at: int = 0
    retry = RetryPolicy(max_attempts=9, base=60.0)

    def execute(self, ctx):
        self.at += 1
        if self.at == 1:
            return Status.sleep(86_400)
        if self.at == 2:
            return Status.wait("news")
        if ctx.attempt < 3:
            raise RetryLater
        return Status.done(ctx.event)


def survey(procedure, **options):
    return survives_crashes(procedure, observe=lambda: dict(world), reset=world.clear, check=False, **options)


def test_an_idempotent_procedure_survives_every_crash():
    report = survey(Idempotent("book"))

    assert report.differences == []
    assert report.outcome == "SUCCESS with 'book is on its way'"
    assert report.steps == ["Idempotent.reserve (step 1)", "Idempotent.pay (step 2)", "Idempotent.ship (step 3)"]
    assert report.host_crashes == 8  # four records, before and after each
    assert report.repeated == 3


def test_a_step_that_is_not_idempotent_is_named():
    with pytest.raises(DidNotSurvive, match=r"not idempotent: Counting\.pay \(step 2\)") as caught:
        survives_crashes(Counting("book"), observe=lambda: dict(world), reset=world.clear)

    report = caught.value.report
    assert report.not_idempotent == ["Counting.pay (step 2)"]
    assert "'paid': 20" in str(report)


def test_an_undo_that_is_not_idempotent_is_named():
    report = survey(UndoCounting("book"))

    assert report.outcome.startswith("ROLLEDBACK with")
    assert report.not_idempotent == ["the undo of UndoCounting.reserve"]


def test_children_are_run_twice_too():
    report = survey(Parent(), procedures=(Idempotent, Counting))

    assert report.outcome == "SUCCESS with ['a is on its way', 'b is on its way']"
    assert report.not_idempotent == ["Counting.pay (step 2)"]


def test_sleeps_waits_and_retries_take_no_time():
    def drive(manager, handle):
        manager.signal(handle.id, {"word": "go"}, dedup="once")

    report = survey(Patient(), drive=drive)

    assert report.differences == []
    assert report.outcome == "SUCCESS with {'word': 'go'}"
    assert report.repeated == len(report.steps)


def test_every_passage_of_a_crash_point_is_tried():
    class Pointed(Idempotent):
        @step
        def pay(self, ctx):
            for _ in range(2):
                world["paid"] += 5
                crash_point("half paid")

    report = survey(Pointed("book"))

    assert report.points == 2
    points = [found for found in report.differences if "half paid" in found.disturbance]
    assert [found.words for found in points] == [
        "it left {'reserved': 1, 'paid': 15} instead of {'reserved': 1, 'paid': 10}",
        "it left {'reserved': 1, 'paid': 20} instead of {'reserved': 1, 'paid': 10}",
    ]


def test_a_step_that_only_a_death_in_its_middle_makes_run_wrongly_is_named():
    class Guarded(Idempotent):
        @step
        def pay(self, ctx):
            if not world.get("receipt"):  # done twice it is right; torn in two it is not
                world["paid"] += 5
                crash_point("no receipt yet")
                world["receipt"] = 1

    report = survey(Guarded("book"))

    assert [found.step for found in report.differences] == ["Guarded.pay (step 2)"]
    assert report.not_idempotent == ["Guarded.pay (step 2)"]


def test_the_host_dies_around_each_value_that_a_step_remembers():
    class Noting(Idempotent):
        @step
        def pay(self, ctx):
            if not world.get("receipt"):  # done twice it is right; cut where it remembers it is not
                world["paid"] += 5
                ctx.remember("price", lambda: 5)
                world["receipt"] = 1

    class Remembering(Idempotent):
        @step
        def pay(self, ctx):
            before = ctx.remember("before", lambda: world["paid"])
            world["paid"] = before + 5

    report = survey(Noting("book"))

    assert report.not_idempotent == ["Noting.pay (step 2)"]
    assert [found.disturbance for found in report.differences] == [
        "the host died before Noting.pay (step 2) had remembered 'price'",
        "the host died after Noting.pay (step 2) had remembered 'price'",
    ]
    right = survey(Remembering("book"))
    assert right.differences == []
    assert right.host_crashes == 10  # four records and a value


def test_what_observe_asserts_is_told_after_a_crash_too():
    class Torn(Idempotent):
        @step
        def pay(self, ctx):
            world["begun"] += 1
            crash_point("in the middle")
            world["begun"] -= 1

    def observe():
        assert world["begun"] == 0, "something was left begun"
        return dict(world)

    with pytest.raises(AssertionError, match="something was left begun"):
        survives_crashes(Torn("book"), observe=observe, reset=world.clear)


def test_only_crashes_that_took_place_are_counted():
    def drive(manager, handle):
        crash_point("outside of any step")

    assert survey(Idempotent("book"), drive=drive).points == 0


def test_a_difference_far_behind_in_a_long_output_is_seen():
    class Long(Procedure):
        def execute(self, ctx):
            return Status.done("a" * 1000 + f" replayed: {ctx.replayed}")

    report = survives_crashes(Long(), check=False)

    assert report.not_idempotent == ["Long (step 1)"]
    assert "aaa replayed: True' instead of …aaa" in report.differences[0].words


def test_an_output_that_changes_is_a_difference_without_any_world():
    class Attempt(Procedure):
        def execute(self, ctx):
            return Status.done(ctx.replayed)

    report = survives_crashes(Attempt(), check=False)

    assert report.not_idempotent == ["Attempt (step 1)"]
    assert "give observe= to compare what was left behind" in str(report)


def test_runs_that_differ_without_any_crash_prove_nothing():
    class Random(Procedure):
        def execute(self, ctx):
            return Status.done(os.urandom(4))

    with pytest.raises(UsageError, match="two runs that nothing disturbed end differently"):
        survives_crashes(Random())
    with pytest.raises(UsageError, match=r"'paid': 20.* Give reset="):
        survives_crashes(Counting("book"), observe=lambda: dict(world))


def test_a_class_in_place_of_an_object_is_told():
    with pytest.raises(UsageError, match=r"such as Idempotent\(…\)"):
        survives_crashes(Idempotent)


def test_the_report_says_which_step_was_done_and_what_helps():
    text = str(survey(Counting("book")))

    assert "died before procedure/000003 was stored (what Counting.pay (step 2) had done): it left" in text
    assert "ctx.idempotency_key" in text
    assert "only ends were compared" not in text


def test_steps_run_in_this_process_and_see_its_objects():
    seen = []

    class Look(Procedure):
        def execute(self, ctx):
            seen.append(threading.current_thread().name)
            return Status.done(os.getpid())

    with InlineManager([Look]) as manager:
        assert manager.run(Look()) == os.getpid()

    assert len(seen) == 1
    assert seen[0].startswith("fake-worker")


def test_a_worker_dies_on_demand_and_its_step_runs_again():
    with InlineManager([Slow]) as manager:
        assert not manager.crash_worker()
        handle = manager.submit(Slow())
        assert inside.wait(20)
        assert manager.crash_worker()
        go_on.set()
        assert manager.finish(handle).result() == 2


def test_a_crash_point_kills_the_worker_once():
    class Pointed(Procedure):
        def execute(self, ctx):
            try:
                crash_point("here")
            except Exception:  # noqa: BLE001 - a worker that dies cannot be stopped by this
                return Status.done("caught")
            return Status.done(ctx.attempt)

    with InlineManager([Pointed]) as manager:
        with crashing_at("here"):
            assert manager.finish(manager.submit(Pointed())).result() == 2
        assert manager.finish(manager.submit(Pointed())).result() == 1
        with pytest.raises(AssertionError, match="'elsewhere' was passed 0 times"), crashing_at("elsewhere"):
            manager.finish(manager.submit(Pointed()))


def test_a_crash_point_is_armed_once_and_for_a_passage_that_can_be():
    with pytest.raises(ValueError, match="counted from 1"), crashing_at("here", 0):
        pass
    with pytest.raises(UsageError, match="armed already"), crashing_at("here"), crashing_at("here"):
        pass


def test_time_is_skipped_only_when_nothing_is_under_way():
    class Busy(Procedure):
        """Has a deadline and a time limit that it does not come near to."""

        at: int = 0

        def execute(self, ctx):
            self.at += 1
            return Status.executing() if self.at < 40 else Status.done("in time")

    with InlineManager([Busy]) as manager:
        began = manager.clock.wall()
        handle = manager.submit(Busy(), deadline=timedelta(hours=1), limits=Limits(wall_time=1800))
        while not handle.done():
            manager.skip()

        assert handle.result() == "in time"
        assert manager.clock.wall() - began < 1800


def test_time_is_not_skipped_while_a_worker_is_being_replaced():
    class Survivor(Procedure):
        def execute(self, ctx):
            crash_point("here")
            return Status.done(ctx.attempt)

    with InlineManager([Survivor]) as manager, crashing_at("here"):
        handle = manager.submit(Survivor(), deadline=timedelta(hours=1))
        while not handle.done():
            manager.skip()

        assert handle.result() == 2


def test_a_virtual_clock_brings_what_is_due_at_once():
    class Nap(Procedure):
        at: int = 0

        def execute(self, ctx):
            self.at += 1
            return Status.sleep(3600) if self.at == 1 else Status.done("awake")

    clock = VirtualClock()
    with InlineManager([Nap], clock=clock) as manager:
        handle = manager.submit(Nap())
        while handle.info().phase != "sleeping":
            assert not handle.done()
        assert not handle.wait(0.05)
        clock.advance(3601)
        assert handle.result(20) == "awake"
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not negative"):
            clock.advance(seconds)


def test_whoever_waits_by_a_virtual_clock_hears_that_it_was_moved(until):
    clock, rung = VirtualClock(), threading.Event()
    alarm = Alarm(clock)
    alarm.set("test", clock.monotonic() + 3600, rung.set)
    alarm.start()
    try:
        until(lambda: alarm._waiting_until is not None)
        clock.advance(3601)
        assert rung.wait(20)
    finally:
        alarm.close()


def test_a_failure_is_what_it_is_without_processes():
    class Bad(Procedure):
        def execute(self, ctx):
            raise KeyError("lost")

    with InlineManager([Bad]) as manager, pytest.raises(ProcedureFailed, match="lost"):
        manager.run(Bad())


def test_the_plugin_gives_fixtures(pytester):
    pytester.makepyfile(
        """
        from actorproc import Procedure, Status

        class Nap(Procedure):
            at: int = 0
            def execute(self, ctx):
                self.at += 1
                return Status.sleep(3600) if self.at == 1 else Status.done("awake")

        def test_inline(make_inline_manager, virtual_clock):
            manager = make_inline_manager([Nap], workers=2)
            assert manager.clock is virtual_clock
            assert manager.finish(manager.submit(Nap())).result() == "awake"

        def test_a_manager(inline_manager, make_inline_manager, virtual_clock):
            assert inline_manager.clock is virtual_clock
            assert inline_manager.finish(inline_manager.submit(Nap())).result() == "awake"
            assert make_inline_manager() is not inline_manager

        def test_survives(survives_crashes):
            assert survives_crashes(Nap()).host_crashes == 6
        """
    )

    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)


def test_the_plugin_costs_no_import_of_the_engine():
    code = "import sys, actorproc.testing.plugin, json; print(json.dumps([n for n in ('lmdb', 'pykka') if n in sys.modules]))"

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert json.loads(said.stdout) == []


def test_the_example_finds_the_bug_and_proves_the_remedy(tmp_path):
    said = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "08_crash_test.py"],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120,
    )  # fmt: skip

    assert said.returncode == 0, said.stderr
    broken, _, safe = said.stdout.partition("\n\n")
    assert "not idempotent: Transfer.withdraw (step 1)" in broken
    assert "not idempotent: Transfer.deposit (step 2)" in broken
    assert "0 gave another end than SUCCESS with 'moved'" in safe
