"""What `survives_crashes` says to whoever uses it wrongly: it must not call that a procedure which survives."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from actorproc import Limits, Procedure, Saga, Status, UsageError, procedure, step
from actorproc.testing import InlineManager, VirtualClock, crash_point, crashing_at, survives_crashes

world: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _new_world():
    world.clear()


class Counting(Saga):
    @step
    def pay(self, ctx):
        world["paid"] += 10


class Deaf(Procedure):
    """Waits for what nobody says."""

    def execute(self, ctx):
        return Status.wait("news")


class Child(Procedure):
    def execute(self, ctx):
        return Status.done("grown")


class Parent(Saga):
    @step
    def bear(self, ctx):
        return Status.suspended([Child()])


class Client(Saga):
    """Its second step uses what the worker has."""

    @step
    def pay(self, ctx):
        world[ctx.env["account"]] += 10


@procedure
def double(number: int):
    return 2 * number


class Beside(Procedure):
    """Its steps run on threads beside each other."""

    limits = Limits(threads=4)

    def execute(self, ctx):
        crash_point("beside others")
        return Status.done(ctx.attempt)


class Threaded(Procedure):
    """Passes its crash point on a thread of its own."""

    def execute(self, ctx):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(crash_point, "elsewhere").result()
        return Status.done("passed")


def test_a_procedure_that_never_ends_does_not_survive():
    with pytest.raises(UsageError, match=r"did not end within 2 s: it is waiting, for the event 'news'.* give drive="):
        survives_crashes(Deaf(), timeout=2)


def test_a_drive_that_does_not_return_is_told():
    never = threading.Event()

    with pytest.raises(UsageError, match=r"did not end within 2 s: drive= has not returned"):
        survives_crashes(Counting(), drive=lambda manager, handle: never.wait(), timeout=2)
    never.set()


def test_a_child_whose_class_the_next_host_does_not_know_is_told():
    report = survives_crashes(Parent(), check=False, timeout=2)

    assert "is parked: no class is registered as" in report.differences[0].words
    assert "does procedures= name its class?" in report.differences[0].words
    assert survives_crashes(Parent(), procedures=iter([Child])).differences == []


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_time_in_which_nothing_could_end_is_refused(timeout):
    with pytest.raises(ValueError, match="finite and above 0"):
        survives_crashes(Counting(), timeout=timeout)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": "5"}, "timeout= is a number of seconds or a timedelta, .*, not '5'"),
        ({"timeout": None}, "timeout= is a number of seconds or a timedelta, .*, not None"),
        ({"procedures": Child}, "procedures is a list of classes"),
        ({"observe": world}, "observe= is a function or None"),
        ({"reset": {}}, "reset= is a function or None"),
        ({"drive": 3}, "drive= is a function or None"),
        ({"environment": {}}, "environment= is a function or None"),
    ],
)
def test_arguments_of_a_wrong_kind_are_named(options, said):
    with pytest.raises(TypeError, match=said):
        survives_crashes(Counting(), **options)


def test_what_is_no_procedure_is_told():
    with pytest.raises(TypeError, match="takes a procedure, and not 3"):
        survives_crashes(3)
    with pytest.raises(TypeError, match="gave 5, which is none"):
        survives_crashes(lambda: 5)
    with pytest.raises(UsageError, match=r"an object such as double\(…\)"):
        survives_crashes(double)


def test_a_procedure_is_made_once_for_each_run():
    made = []

    def make():
        made.append(Counting())
        return made[-1]

    report = survives_crashes(make, reset=world.clear)

    assert len(made) == 2 + report.host_crashes + report.repeated


def test_an_observe_that_gives_nothing_is_no_observe():
    report = survives_crashes(Counting(), observe=lambda: None, reset=world.clear)

    assert not report.observed
    assert "observe gave None" in str(report)


def test_what_observe_gives_must_be_kept_and_compared():
    class Array:
        def __ne__(self, other):
            raise ValueError("the truth value of an array is ambiguous")

    with pytest.raises(UsageError, match=r"cannot be kept .*give plain data"):
        survives_crashes(Counting(), observe=lambda: (key for key in world), reset=world.clear)
    with pytest.raises(UsageError, match=r"cannot be compared \(ValueError: the truth value.*give plain data"):
        survives_crashes(Counting(), observe=Array, reset=world.clear)
    with pytest.raises(UsageError, match="is not equal to what it gives when asked again at once"):
        survives_crashes(Counting(), observe=object, reset=world.clear)


def test_what_the_test_raises_has_a_note_in_which_run_it_was():
    def observe():
        assert world["paid"] <= 10, "paid twice"
        return dict(world)

    with pytest.raises(AssertionError, match="paid twice") as caught:
        survives_crashes(Counting(), observe=observe, reset=world.clear)

    assert "the host died before procedure/000002 was stored" in caught.value.__notes__[0]


def test_steps_find_their_environment():
    report = survives_crashes(
        Client(),
        environment=lambda: {"account": "shop"},
        observe=lambda: dict(world),
        reset=world.clear,
        check=False,
    )

    assert report.outcome == "SUCCESS with None"
    assert report.not_idempotent == ["Client.pay (step 1)"]


def test_a_step_beside_others_dies_at_a_crash_point():
    with InlineManager([Beside]) as manager, crashing_at("beside others"):
        assert manager.finish(manager.submit(Beside())).result() == 2

    report = survives_crashes(Beside(), check=False)
    assert report.points == 1
    assert report.not_idempotent == ["Beside (step 1)"]


def test_a_crash_point_where_nothing_can_die_is_told():
    report = survives_crashes(Threaded())

    assert report.points == 0
    assert "'elsewhere' was not tried. It was passed 1 times on a thread that is no worker's" in str(report)
    with (
        InlineManager([Threaded]) as manager,
        pytest.raises(AssertionError, match=r"passed 0 times.* It was passed 1 times on a thread that is no worker's"),
        crashing_at("elsewhere"),
    ):
        manager.finish(manager.submit(Threaded()))


def test_time_is_given_in_seconds():
    for seconds in ("3", None, True):
        with pytest.raises(TypeError, match="a number of seconds"):
            VirtualClock().advance(seconds)
