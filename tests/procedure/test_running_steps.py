"""A step's Status or exception, turned into an outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from actorproc import LockKey, Procedure, RetryLater, RetryPolicy, Status
from actorproc.model.ids import Mode, child_id
from actorproc.model.messages.outcomes import Advanced, Answered, Failed, Finished, Poisoned, Slept, Suspended, Waited
from actorproc.procedure.authoring.context import StopStep
from actorproc.procedure.runtime.engine_side import TypeRuntime, encode_payload


@dataclass
class Child(Procedure):
    number: int

    def execute(self, ctx):
        return Status.done(self.number)


@dataclass
class Says(Procedure):
    """Does what its class attribute says."""

    count: int = 0

    def execute(self, ctx):
        self.count += 1
        return self.says(ctx)


class Undoable(Says):
    undone = None

    def rollback(self, ctx):
        self.count -= 1
        return self.says(ctx)


def run(says, context, mode=Mode.EXECUTE, base=Says, unit=None, event=None, **body) -> Any:
    cls = type("Case", (base,), {"says": says, **body})
    live = cls()
    outcome, classes = TypeRuntime.of_class(cls).run(live, context(mode=mode), mode, unit, event)
    return outcome, classes, live


def state_of(live) -> bytes:
    return TypeRuntime.of_class(type(live)).dump_state(live)


def test_executing_advances_with_the_state_after_the_step(context):
    outcome, _, live = run(
        lambda self, ctx: Status.executing(
            persist=False, yield_=True, after=2, acquire=[LockKey.read("a")], no_return=True
        ),
        context,
    )

    assert live.count == 1
    assert outcome == Advanced(
        state=state_of(live), persist=False, yield_=True, after=2.0, acquire=(LockKey.read("a"),), no_return=True
    )


def test_done_finishes_with_the_encoded_output(context):
    outcome, _, live = run(lambda self, ctx: Status.done({"a": (1,)}), context)

    assert isinstance(outcome, Finished)
    assert TypeRuntime.of_class(type(live)).decode_output(outcome.output) == {"a": (1,)}


def test_sleep_and_wait(context):
    slept, _, _ = run(lambda self, ctx: Status.sleep(3), context)
    waited, _, _ = run(lambda self, ctx: Status.wait("paid", timeout=9), context)

    assert isinstance(slept, Slept)
    assert slept.seconds == 3
    assert isinstance(waited, Waited)
    assert (waited.event, waited.timeout) == ("paid", 9)


def test_children_get_hashed_ids_unless_they_bring_their_own(context):
    outcome, classes, _ = run(
        lambda self, ctx: Status.suspended((Child(1), ("mine", Child(2))), wait="any", max_parallel=1), context
    )

    first, second = outcome.children
    assert isinstance(outcome, Suspended)
    assert (first.id, first.fresh) == (child_id("p-1", 1, 0), True)
    assert (second.id, second.fresh) == ("mine", False)
    assert (outcome.wait, outcome.max_parallel, outcome.on_parent_end) == ("any", 1, "abort")
    assert classes == (Child,)


def test_a_child_that_cannot_be_stored_fails_the_parent(context):
    outcome, _, _ = run(lambda self, ctx: Status.suspended([Child(object())]), context)

    assert isinstance(outcome, Failed)
    assert outcome.error.kind == "usage"
    assert "Child.number" in outcome.error.message


@pytest.mark.parametrize("value", [None, 3, Status, "done"])
def test_anything_but_a_status_is_fatal(context, value):
    outcome, _, _ = run(lambda self, ctx: value, context, retry=RetryPolicy(retry_on=(Exception,)))

    assert isinstance(outcome, Failed)
    assert (outcome.error.kind, outcome.retryable) == ("invalid-status", False)


def test_an_exception_fails_the_step_with_its_text_and_a_traceback_of_user_code_alone(context):
    def broken(self, ctx):
        raise ValueError("no stock")

    outcome, _, _ = run(broken, context)

    assert isinstance(outcome, Failed)
    error = outcome.error
    assert (error.kind, error.type_name, error.message) == ("error", "ValueError", "no stock")
    assert (error.procedure, error.step) == ("p-1", 1)
    assert "in broken" in error.traceback
    assert "type_runtime.py" not in error.traceback
    assert outcome.retryable is False


def test_retry_later_brings_its_own_delay(context):
    def later(self, ctx):
        raise RetryLater(after=7)

    outcome, _, _ = run(later, context)

    assert (outcome.retryable, outcome.after) == (True, 7)


@pytest.mark.parametrize("exit_with", [SystemExit, KeyboardInterrupt, GeneratorExit, type("Odd", (BaseException,), {})])
def test_leaving_the_interpreter_is_a_failure_and_no_death(context, exit_with):
    def leave(self, ctx):
        raise exit_with(3)

    outcome, _, _ = run(leave, context)

    assert isinstance(outcome, Failed)


def test_only_the_workers_own_request_to_stop_passes_through(context):
    def stopped(self, ctx):
        raise StopStep

    with pytest.raises(StopStep):
        run(stopped, context)


@pytest.mark.parametrize("failure", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_an_exception_whose_text_fails_is_reported_all_the_same(failure, context):
    class Mute(Exception):
        def __str__(self):
            raise failure

    def broken(self, ctx):
        raise Mute

    outcome, _, _ = run(broken, context)

    assert "Mute" in outcome.error.type_name
    assert "not available" in outcome.error.message
    assert "raise Mute" in outcome.error.traceback


def test_an_exception_that_cannot_be_formatted_has_its_frames_all_the_same(context):
    class NoTruth(Exception):
        def __bool__(self):
            raise RuntimeError

    def broken(self, ctx):
        raise NoTruth("why it failed")

    outcome, _, _ = run(broken, context)

    assert 'raise NoTruth("why it failed")' in outcome.error.traceback
    assert "NoTruth: why it failed" in outcome.error.traceback


@pytest.mark.parametrize("failure", [RuntimeError, SystemExit])
def test_a_retry_rule_that_fails_hides_no_error(failure, context):
    def rule(error):
        raise failure

    def broken(self, ctx):
        raise ConnectionError("lost")

    outcome, _, _ = run(broken, context, retry=RetryPolicy(retry_on=rule))

    assert (outcome.retryable, outcome.error.message) == (False, "lost")


def test_a_state_or_output_that_cannot_be_kept_is_fatal(context):
    output, _, _ = run(lambda self, ctx: Status.done(object()), context)
    state, _, _ = run(lambda self, ctx: setattr(self, "count", object()) or Status.executing(), context)

    for outcome, text in ((output, "output"), (state, r"Case.count")):
        assert isinstance(outcome, Failed)
        assert (outcome.error.kind, outcome.retryable) == ("usage", False)
        assert text in outcome.error.message


def test_poisoned_ends_with_keys_and_error(context):
    outcome, _, _ = run(lambda self, ctx: Status.poisoned(["a/b", LockKey.write("c")], ValueError("x")), context)

    assert isinstance(outcome, Poisoned)
    assert (outcome.keys, outcome.error.kind, outcome.error.message) == (("a/b", "c"), "poisoned", "x")


def test_poison_keys_travel_with_each_outcome_of_a_class_that_has_them(context):
    with_keys, _, _ = run(lambda self, ctx: Status.executing(), context, poison_keys=lambda self: [f"k{self.count}"])
    without, _, _ = run(lambda self, ctx: Status.executing(), context)

    assert with_keys.poisons == ("k1",)
    assert without.poisons is None


def test_the_undo_unit_of_a_plain_procedure_is_the_whole_of_it(context):
    undoable, _, _ = run(lambda self, ctx: Status.executing(), context, base=Undoable)
    other, _, _ = run(lambda self, ctx: Status.executing(), context)

    assert (undoable.unit, other.unit) == ("", None)


def test_a_rollback_is_done_with_none_or_done_and_goes_on_with_executing(context):
    done = [run(lambda self, ctx, s=s: s, context, Mode.ROLLBACK, Undoable, "")[0] for s in (None, Status.done())]
    more, _, live = run(lambda self, ctx: Status.executing(after=1), context, Mode.ROLLBACK, Undoable, "")

    assert all(isinstance(outcome, Finished) for outcome in done)
    assert isinstance(more, Advanced)
    assert (more.unit, more.after, more.state) == ("", 1.0, state_of(live))


def test_a_rollback_that_returns_anything_else_is_invalid(context):
    outcome, _, _ = run(lambda self, ctx: Status.sleep(1), context, Mode.ROLLBACK, Undoable, "")

    assert outcome.error.kind == "invalid-status"


def test_a_rollback_that_raises_is_judged_by_the_rollback_policy(context):
    def broken(self, ctx):
        raise ValueError

    forward, _, _ = run(broken, context, base=Undoable)
    backward, _, _ = run(broken, context, Mode.ROLLBACK, Undoable, "")

    assert (forward.retryable, backward.retryable) == (False, True)


@pytest.mark.parametrize("allowed", [True, False])
def test_abort_is_asked(context, allowed):
    outcome, _, _ = run(None, context, Mode.ASK_ABORT, abort=lambda self, ctx: allowed)

    assert outcome == Answered(allowed=allowed)


def test_a_timeout_without_an_answer_is_a_wait_timeout_and_final(context):
    outcome, _, _ = run(None, context, Mode.ON_TIMEOUT)

    assert (outcome.error.kind, outcome.retryable) == ("wait-timeout", False)
    assert outcome.error.type_name == "actorproc.errors.WaitTimeout"


def test_on_timeout_may_say_how_to_go_on(context):
    outcome, _, _ = run(None, context, Mode.ON_TIMEOUT, on_timeout=lambda self, ctx: Status.done("late"))

    assert isinstance(outcome, Finished)


def test_the_payload_of_an_event_is_in_the_context(context):
    outcome, _, live = run(lambda self, ctx: Status.done(ctx.event), context, event=encode_payload((1, 2)))

    assert TypeRuntime.of_class(type(live)).decode_output(outcome.output) == (1, 2)


def test_recovery_hooks_run_around_a_replayed_step_only(context):
    calls = []
    body = {
        "says": lambda self, ctx: calls.append("execute") or Status.executing(),
        "before_recover": lambda self, ctx: calls.append("before"),
        "after_recover": lambda self, ctx: calls.append("after"),
    }
    cls = type("Case", (Says,), body)
    runtime = TypeRuntime.of_class(cls)

    runtime.run(cls(), context(), Mode.EXECUTE, None, None)
    runtime.run(cls(), context(replayed=True), Mode.EXECUTE, None, None)

    assert calls == ["execute", "before", "execute", "after"]


@pytest.mark.parametrize("failure", [ValueError, SystemExit, KeyboardInterrupt])
def test_clean_up_runs_at_done_and_its_failure_is_only_logged(failure, context, channel):
    def broken(self, ctx):
        raise failure("cannot clean")

    outcome, _, _ = run(lambda self, ctx: Status.done(1), context, on_completed=broken)

    assert isinstance(outcome, Finished)
    assert "cannot clean" in channel.lines[0][2]


def test_nothing_is_cleaned_up_for_an_output_that_cannot_be_kept(context):
    cleaned = []

    outcome, _, _ = run(
        lambda self, ctx: Status.done(object()), context, on_completed=lambda self, ctx: cleaned.append("up")
    )

    assert isinstance(outcome, Failed)
    assert cleaned == []


def test_clean_up_that_leaves_what_cannot_be_kept_fails_nobody(context, channel):
    outcome, _, live = run(
        lambda self, ctx: Status.done(1), context, on_completed=lambda self, ctx: setattr(self, "count", object())
    )

    live.count = 1
    assert (type(outcome), outcome.state) == (Finished, state_of(live))
    assert "Case.count" in channel.lines[0][2]


async def unrun():
    pass


@pytest.mark.parametrize("hook", ["before_recover", "after_recover"])
def test_a_hook_that_returned_a_coroutine_has_not_run_and_fails_the_step(hook, context):
    cls = type("Case", (Says,), {"says": lambda self, ctx: Status.executing(), hook: lambda self, ctx: unrun()})

    outcome, _ = TypeRuntime.of_class(cls).run(cls(), context(replayed=True), Mode.EXECUTE, None, None)

    assert f"{hook}() returned a coroutine, so nothing of it has run" in outcome.error.message


@pytest.mark.parametrize(("mode", "hook"), [(Mode.EXECUTE, "on_completed"), (Mode.ASK_ABORT, "abort")])
def test_a_hook_whose_failure_counts_for_nothing_is_logged_when_it_returned_a_coroutine(mode, hook, context, channel):
    run(lambda self, ctx: Status.done(), context, mode, **{hook: lambda self, ctx: unrun()})

    assert f"{hook}() returned a coroutine" in channel.lines[0][2]


def test_an_object_made_by_a_loader_runs_as_its_own_class(context):
    runtime = TypeRuntime.of_loader("child", lambda data: Child(5))
    live = runtime.load(TypeRuntime.of_class(Child).dump_state(Child(1)), "data", 1)

    outcome, _ = runtime.run(live, context(), Mode.EXECUTE, None, None)

    assert runtime.decode_output(outcome.output) == 5
