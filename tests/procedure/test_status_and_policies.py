"""Wrong arguments are refused where they are made."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from actorproc import InvalidId, InvalidStatus, Limits, LockKey, Procedure, RetryLater, RetryPolicy, Status, UsageError
from actorproc.errors import StateNotEncodable, StepTimeout, WaitTimeout, WorkerEnded
from actorproc.model.policies import LockMode
from actorproc.procedure.runtime.classes import meta_of


class Child(Procedure):
    def execute(self, ctx):
        return Status.done()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Status.executing(after=-1),
        lambda: Status.executing(after=float("nan")),
        lambda: Status.executing(after="soon"),
        lambda: Status.executing(acquire=["cat/db"]),
        lambda: Status.executing(acquire=[LockKey("cat/db", "write")]),
        lambda: Status.executing(acquire=[LockKey("cat//db", LockMode.WRITE)]),
        lambda: Status.sleep(-0.1),
        lambda: Status.sleep(float("inf")),
        lambda: Status.sleep(True),
        lambda: Status.sleep_until(60),
        lambda: Status.sleep_until(datetime(2027, 3, 1)),  # noqa: DTZ001 - that it has no time zone is the point
        lambda: Status.sleep_until("tomorrow"),
        lambda: Status.wait(""),
        lambda: Status.wait("x" * 256),
        lambda: Status.wait("paid", timeout=-5),
        lambda: Status.poisoned([3], "broken"),
        lambda: Status.poisoned([LockKey("", LockMode.WRITE)], "broken"),
        lambda: Status.suspended([1]),
        lambda: Status.suspended(Child()),
        lambda: Status.suspended([Child]),
        lambda: Status.suspended([("a", Child()), ("a", Child())]),
        lambda: Status.suspended([], wait="some"),
        lambda: Status.suspended([], max_parallel=0),
        lambda: Status.suspended([], on_parent_end="kill"),
    ],
)
def test_a_status_with_wrong_arguments_is_an_invalid_status(make):
    with pytest.raises(InvalidStatus, match="Status"):
        make()


def test_a_child_with_a_bad_id_is_an_invalid_id():
    with pytest.raises(InvalidId):
        Status.suspended([("no spaces", Child())])


def test_times_may_be_timedeltas():
    assert Status.sleep(timedelta(minutes=2)) == Status.sleep(120)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RetryPolicy(max_attempts=0),
        lambda: RetryPolicy(base=-1),
        lambda: RetryPolicy(factor=0.5),
        lambda: RetryPolicy(jitter=2),
        lambda: RetryPolicy(cap=float("inf")),
        lambda: RetryPolicy(max_elapsed=-1),
        lambda: RetryPolicy(retry_on=(3,)),
        lambda: RetryPolicy(never_on="ValueError"),
        lambda: Limits(wall_time=0),
        lambda: Limits(memory=1.5),
        lambda: Limits(crashes=0),
        lambda: Limits(threads=0),
        lambda: Limits(nice=40),
        lambda: Limits(cpus=()),
        lambda: Limits(grace=-1),
    ],
)
def test_a_policy_with_a_wrong_number_names_the_argument(make):
    with pytest.raises(UsageError, match=r"(RetryPolicy|Limits)\(\w+="):
        make()


def test_the_default_policy_retries_what_asks_for_it_and_what_the_network_does():
    policy = RetryPolicy()

    assert policy.judge(RetryLater(after=3)) == (True, 3)
    assert policy.judge(ConnectionResetError()) == (True, None)
    assert policy.judge(TimeoutError()) == (True, None)
    assert policy.judge(ValueError()) == (False, None)
    assert policy.judge(SystemExit()) == (False, None)


class Busy(RetryLater):
    """Does not call the constructor above it."""

    def __init__(self, **changed: object) -> None:
        self.__dict__.update(changed)


@pytest.mark.parametrize("after", ["5", float("nan"), -1, timedelta(1), True])
def test_an_error_derived_from_retry_later_may_say_no_delay_or_a_wrong_one(after):
    policy = RetryPolicy()

    assert policy.judge(Busy()) == (True, None)
    assert policy.judge(Busy(after=2)) == (True, 2)
    assert policy.judge(Busy(after=after)) == (False, None)


def by_class(error):
    return isinstance(error, StepTimeout)


@pytest.mark.parametrize(
    ("policy", "again"),
    [
        (RetryPolicy(), False),
        (RetryPolicy(retry_on=(OSError, TimeoutError)), False),
        (RetryPolicy(retry_on=StepTimeout), True),
        (RetryPolicy(retry_on=(RetryLater, StepTimeout)), True),
        (RetryPolicy(retry_on=Exception), True),
        (RetryPolicy(retry_on=WorkerEnded), True),
        (RetryPolicy(retry_on=Exception, never_on=StepTimeout), False),
        (RetryPolicy(retry_on=by_class), True),
        (RetryPolicy(retry_on=lambda error: error.missing), False),
    ],
)
def test_a_step_that_was_killed_for_its_time_is_tried_again_where_retry_on_says_so(policy, again):
    class Slow(Procedure):
        retry = policy

        def execute(self, ctx):
            return Status.done()

    assert policy.retries_overtime is again
    assert meta_of(Slow, "Slow").retries_overtime is again


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ([OSError], r"write \(OSError,\), not \["),
        ([OSError, ValueError], r"write \(OSError, ValueError\)"),
        ({KeyError}, r"write \(KeyError,\)"),
        ("OSError", "an exception class, a tuple of them"),
        ((OSError(),), "an exception class, a tuple of them"),
    ],
)
@pytest.mark.parametrize("name", ["retry_on", "never_on"])
def test_a_rule_that_is_no_tuple_is_told_how_to_write_it(name, rule, said):
    with pytest.raises(UsageError, match=said):
        RetryPolicy(**{name: rule})


def test_never_on_wins_over_retry_on():
    policy = RetryPolicy(retry_on=(OSError,), never_on=FileNotFoundError)

    assert policy.judge(OSError()) == (True, None)
    assert policy.judge(FileNotFoundError()) == (False, None)


def test_retry_on_may_be_a_predicate_and_a_broken_one_retries_nothing():
    busy = RetryPolicy(retry_on=lambda error: "busy" in str(error))
    broken = RetryPolicy(retry_on=lambda error: error.missing)

    assert busy.judge(ValueError("busy")) == (True, None)
    assert busy.judge(ValueError("gone")) == (False, None)
    assert broken.judge(ValueError()) == (False, None)


@pytest.mark.parametrize("error", [InvalidStatus(), StateNotEncodable(), WaitTimeout("late")])
def test_mistakes_in_code_are_never_retried(error):
    assert RetryPolicy(retry_on=(Exception,)).judge(error) == (False, None)


def test_leaving_the_interpreter_in_a_rollback_is_retried_like_any_failure():
    assert Procedure.rollback_retry.judge(SystemExit(1)) == (True, None)


def test_the_backoff_holds_the_numbers_of_the_policy():
    backoff = RetryPolicy(max_attempts=7, base=1, max_elapsed=9).backoff

    assert (backoff.max_attempts, backoff.base, backoff.max_elapsed) == (7, 1.0, 9.0)


def test_lock_keys_are_values():
    assert LockKey.read("a/b") == LockKey.read("a/b") != LockKey.write("a/b")


@pytest.mark.parametrize(
    "make",
    [
        lambda: RetryPolicy(max_attempts=2**63),
        lambda: Limits(memory=2**63),
        lambda: Limits(memory_hard=2**63),
        lambda: Limits(crashes=2**63),
        lambda: Limits(threads=2**63),
        lambda: Limits(processes=2**63),
        lambda: Limits(cpus=(2**63,)),
        lambda: Limits(dedicated="yes"),
    ],
)
def test_what_the_store_or_the_wire_cannot_hold_is_refused_where_it_is_said(make):
    with pytest.raises(UsageError, match="not "):
        make()
