"""Sagas whose steps were edited while they were under way: what runs, what parks, under which key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from actorproc import Saga, Status, step
from actorproc.model.ids import Mode
from actorproc.model.messages.outcomes import Advanced, Finished, Refused
from actorproc.procedure.runtime.engine_side import StateRefused, TypeRuntime

STEPS = ("reserve", "pay", "wait", "ship")


def saga(
    *names: str, waits: tuple[str, ...] = (), repeats: int = 0, was: dict[str, tuple[str, ...]] | None = None, **line
):
    """A saga of these steps, each with an undo; what ran stands in its field `log`, with its key."""

    def one(name: str) -> Any:
        def run(self, ctx):
            self.log = [*self.log, ctx.idempotency_key]
            if name == "repeat" and sum(key.startswith("p-1.repeat") for key in self.log) < repeats:
                return Status.executing()
            return Status.wait("stock") if name in waits else None

        def undo(self, ctx):
            self.log = [*self.log, ctx.idempotency_key]

        run.__name__, undo.__name__ = name, f"un{name}"
        made = step(was=(was or {}).get(name, ()))(run)
        made.undo(undo)
        return made

    body = {"__annotations__": {"log": "list"}, **{name: one(name) for name in names}}
    return type("Order", (Saga,), body, **line)


def forward(cls: Any, state: bytes, context, steps: int = 20) -> tuple[list[str], Any]:
    """Run from stored bytes, each step from the bytes of the one before; what ran, and the last outcome."""
    runtime = TypeRuntime.of_class(cls)
    for number in range(1, steps + 1):
        live = runtime.load(state, "data", 1)
        outcome, _ = runtime.run(live, context(step=number), Mode.EXECUTE, None, None)
        if isinstance(outcome, Finished | Refused):
            break
        state = outcome.state
    if isinstance(outcome, Finished):
        state = outcome.state
    return log_of(state), outcome


def log_of(state: bytes) -> list[str]:
    log = msgspec.msgpack.decode(state)[1]["log"]
    return [key.removeprefix("p-1.") for key in log]


def standing_before(cls: Any, name: str | None, context) -> bytes:
    """The state of a procedure of this class that stands before a step; None: behind its last."""
    runtime = TypeRuntime.of_class(cls)
    state = runtime.describe(cls([])).state
    for number in range(1, 20):
        if msgspec.msgpack.decode(state)[0][0] == (name or ""):
            return state
        outcome, _ = runtime.run(runtime.load(state, "data", 1), context(step=number), Mode.EXECUTE, None, None)
        state = outcome.state
    raise AssertionError(name)


@pytest.mark.parametrize("before", STEPS)
@pytest.mark.parametrize(
    ("today", "runs_of"),
    [
        (STEPS, lambda done: [*STEPS]),
        ((*STEPS, "thank"), lambda done: [*STEPS, "thank"]),
        (("reserve", "pay", "wait", "check", "ship"), lambda done: ["reserve", "pay", "wait", "check", "ship"]),
    ],
    ids=["same", "appended", "put before the last"],
)
def test_what_stands_behind_all_done_steps_runs(context, before, today, runs_of):
    ran, end = forward(saga(*today), standing_before(saga(*STEPS), before, context), context)

    assert isinstance(end, Finished)
    assert ran == runs_of(STEPS[: STEPS.index(before)])


EDITS = {
    "moved behind": ("wait", "ship", "reserve", "pay"),
    "moved to the front": ("ship", "reserve", "pay", "wait"),
    "new in front": ("check", *STEPS),
    "new between the done ones": ("reserve", "check", "pay", "wait", "ship"),
    "reversed": STEPS[::-1],
    "next one gone": ("reserve", "pay", "wait"),
    "a done one gone": ("reserve", "wait", "ship"),
    "all others gone": ("thank",),
    "the first renamed": ("keep", "pay", "wait", "ship"),
    "one renamed": ("reserve", "charge", "wait", "ship"),
    "two renamed": ("reserve", "charge", "await", "ship"),
    "the last renamed": ("reserve", "pay", "wait", "send"),
    "a done one gone, and a new one elsewhere": ("reserve", "wait", "check", "ship"),
}


@pytest.mark.parametrize("before", [*STEPS, None])
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("on_change", ["park", "run", "skip"])
def test_no_step_that_is_done_runs_again_and_what_has_no_place_is_parked(context, before, edit, on_change):
    yesterday = saga(*STEPS, waits=("ship",))
    state = standing_before(yesterday, before, context)
    done = log_of(state)

    ran, end = forward(saga(*EDITS[edit], on_change=on_change), state, context)

    assert ran[: len(done)] == done
    assert len(set(ran)) == len(ran), "nothing runs twice"
    left = [name for name in EDITS[edit] if name not in done]
    if on_change == "run":
        assert ran[len(done) :] == left
    elif on_change == "skip":
        behind = max((EDITS[edit].index(name) for name in done if name in EDITS[edit]), default=-1) + 1
        behind = max(behind, _behind_renamed(EDITS[edit], done, before))
        assert ran[len(done) :] == (list(EDITS[edit][behind:]) if _is_barred(EDITS[edit], done, before) else left)
    elif _is_barred(EDITS[edit], done, before):
        assert isinstance(end, Refused)
        assert ran == done
        assert " → ".join(STEPS) in end.reason
        assert " → ".join(EDITS[edit]) in end.reason
        assert all(word in end.reason for word in ('on_change="run"', 'on_change="skip"', "order=("))
    else:
        assert ran[len(done) :] == left


def _is_barred(today: tuple[str, ...], done: list[str], following: str | None) -> bool:
    places = [today.index(name) for name in done if name in today]
    new_before = any(name not in done for name in today[: max(places, default=0)])
    return new_before or bool(_behind_renamed(today, done, following)) or following not in {None, *today}


def _behind_renamed(today: tuple[str, ...], done: list[str], following: str | None) -> int:
    """Where the new steps end that stand in the place of done ones that are gone; 0: there are none."""
    if following not in {None, *today} or not done or done[-1] in today:
        return 0
    end = len(today) if following is None else today.index(following)
    start = max((today.index(name) + 1 for name in done if name in today), default=0)
    return end if start < end else 0


def test_the_order_that_the_reason_names_lets_it_go_on(context):
    state = standing_before(saga(*STEPS), "ship", context)
    _, end = forward(saga("ship", "pay", "reserve", "wait"), state, context)
    named = end.reason.partition("order=(")[2].partition(")")[0]
    order = tuple(name.strip().strip("'") for name in named.split(","))

    ran, end = forward(saga("ship", "pay", "reserve", "wait", order=order), state, context)

    assert isinstance(end, Finished)
    assert ran == list(STEPS)


def test_a_step_that_was_left_out_stays_out_whatever_comes_later(context):
    state = standing_before(saga(*STEPS), "wait", context)
    skips = saga("check", *STEPS, on_change="skip")
    runtime = TypeRuntime.of_class(skips)
    placed, _ = runtime.run(runtime.load(state, "data", 1), context(), Mode.EXECUTE, None, None)

    ran, end = forward(saga("reserve", "pay", "wait", "ship", "check"), placed.state, context)

    assert isinstance(end, Finished)
    assert ran == list(STEPS)


def test_what_is_parked_is_stored_as_it_was_and_goes_on_under_the_old_order(context):
    state = standing_before(saga(*STEPS), "wait", context)
    refused = TypeRuntime.of_class(saga("check", *STEPS))

    assert refused.dump_state(refused.load(state, "data", 1)) != b""
    again = refused.dump_state(refused.load(state, "data", 1))
    ran, end = forward(saga(*STEPS), again, context)

    assert isinstance(end, Finished)
    assert ran == list(STEPS)


def test_another_next_step_is_said_before_it_runs(context):
    state = standing_before(saga(*STEPS), "ship", context)
    runtime = TypeRuntime.of_class(saga("reserve", "pay", "wait", "check", "ship"))
    live = runtime.load(state, "data", 1)

    placed, _ = runtime.run(live, context(), Mode.EXECUTE, None, None)
    after, _ = runtime.run(live, context(), Mode.EXECUTE, None, None)

    assert isinstance(placed, Advanced)
    assert (placed.placed, placed.unit, log_of(placed.state)) == (True, "check", ["reserve", "pay", "wait"])
    assert (after.placed, after.unit, log_of(after.state)[-1]) == (False, "ship", "check")


# ---------------------------------------------------------------- names
def test_a_renamed_step_keeps_its_identity_its_key_and_its_undo(context):
    state = standing_before(saga(*STEPS), "wait", context)
    today = saga(
        "hold", "charge", "ask", "ship", was={"hold": ("reserve",), "charge": ("bill", "pay"), "ask": ("wait",)}
    )
    runtime = TypeRuntime.of_class(today)

    ran, end = forward(today, state, context)
    undone = runtime.load(state, "data", 1)
    outcome, _ = runtime.run(undone, context(mode=Mode.ROLLBACK, unit="pay"), Mode.ROLLBACK, "pay", None)

    assert isinstance(end, Finished)
    assert ran == list(STEPS), "keys are those of the names that the procedure began with"
    assert log_of(outcome.state)[-1] == "pay.undo"
    assert forward(today, TypeRuntime.of_class(today).describe(today([])).state, context)[0][:2] == ["hold", "charge"]


def test_a_renamed_step_goes_on_in_older_code_too(context):
    state = standing_before(saga(*STEPS), "pay", context)
    today = TypeRuntime.of_class(saga("reserve", "charge", "wait", "ship", was={"charge": ("pay",)}))
    after, _ = today.run(today.load(state, "data", 1), context(), Mode.EXECUTE, None, None)

    ran, end = forward(saga(*STEPS), after.state, context)

    assert isinstance(end, Finished)
    assert ran == list(STEPS)


@pytest.mark.parametrize("was", [("pay",), ("reserve", "pay"), ("pay", "reserve")])
@pytest.mark.parametrize("before", [*STEPS, None])
@pytest.mark.parametrize("on_change", ["park", "run", "skip"])
def test_of_two_steps_that_are_one_now_none_is_left_out_in_silence(context, was, before, on_change):
    name = "reserve" if len(was) == 1 else "book"
    today = saga(name, "wait", "ship", was={name: was}, on_change=on_change)
    state = standing_before(saga(*STEPS), before, context)
    done = log_of(state)

    ran, end = forward(today, state, context)

    if before == "pay" and on_change == "park":
        assert isinstance(end, Refused)
        assert ran == done
        assert all(word in end.reason for word in ("'reserve', which is done", "'pay'", "was=", 'on_change="run"'))
    else:
        assert ran == [*(done or ["reserve"]), *[step for step in ("wait", "ship") if step not in done]]


def test_one_step_in_the_place_of_two_has_the_key_of_the_one_that_was_begun(context):
    state = standing_before(saga("check", "pay", "book"), "pay", context)

    for name, was in (("pay", ("book",)), ("charge", ("book", "pay")), ("charge", ("pay", "book"))):
        ran, _ = forward(saga("check", name, was={name: was}), state, context)
        assert ran == ["check", "pay"]


def test_one_step_in_the_place_of_two_is_undone_once(context):
    state = standing_before(saga("reserve", "pay", "ship"), "ship", context)
    runtime = TypeRuntime.of_class(saga("book", "ship", was={"book": ("reserve", "pay")}))

    for unit in ("pay", "reserve"):
        outcome, _ = runtime.run(
            runtime.load(state, "data", 1), context(mode=Mode.ROLLBACK, unit=unit), Mode.ROLLBACK, unit, None
        )
        state = outcome.state

    assert log_of(state) == ["reserve", "pay", "reserve.undo"]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: saga("a", "b", was={"a": ("b",)}), "'a' was 'b'.*a step of its own"),
        (lambda: saga("a", "b", was={"a": ("c",), "b": ("c",)}), "said of 'a' too"),
        (lambda: saga("a", "b", order=("a",)), "each of its steps once: 'a', 'b'"),
        (lambda: saga("a", "b", order=("a", "b", "b")), "each of its steps once"),
        (lambda: saga("a", "b", order=("a", "c")), "each of its steps once"),
        (lambda: saga("a", "b", order="ab"), "each of its steps once"),
        (lambda: saga("a", "b", order=7), "each of its steps once"),
        (lambda: saga("a", "b", on_change="stop"), "on_change='stop'.*'park', 'run', 'skip'"),
        (lambda: step(name="a.b")(lambda self, ctx: None), "names of letters"),
        (lambda: step(name="")(lambda self, ctx: None), "names of letters"),
        (lambda: step(was="pay")(lambda self, ctx: None), r"was=\('pay',\)"),
        (lambda: step(was=(7,))(lambda self, ctx: None), "names of letters"),
    ],
)
def test_names_and_orders_that_say_two_things_are_refused(make, says):
    with pytest.raises(TypeError, match=says):
        make()


def test_order_is_inherited_and_a_class_may_still_be_ordered_as_a_dataclass():
    class Base(Saga, order=("second", "first")):
        @step
        def first(self, ctx): ...

        @step(name="second")
        def other(self, ctx): ...

    class Below(Base, order=True):
        number: int = 0

        @step
        def third(self, ctx): ...

        @step
        def other(self, ctx): ...

    state = TypeRuntime.of_class(Below).describe(Below()).state

    assert msgspec.msgpack.decode(state)[0] == ["second", ["second", "first", "third"]]
    assert Below(1) < Below(2)


def test_on_change_is_said_in_the_class_line_or_in_the_body_and_may_be_a_field(context):
    class InBody(Saga):
        on_change = "run"

        @step
        def only(self, ctx): ...

    class AsField(InBody):
        on_change: str = "mine"

    state = b"\x92\x92\xa4gone\x91\xa4gone\x80"

    assert not isinstance(forward_plain(InBody, state, context), Refused)
    assert not isinstance(forward_plain(AsField, state, context), Refused)
    assert AsField("x").on_change == "x"


def forward_plain(cls, state, context):
    runtime = TypeRuntime.of_class(cls)
    return runtime.run(runtime.load(state, "data", 1), context(), Mode.EXECUTE, None, None)[0]


# ---------------------------------------------------------------- keys
def test_keys_are_made_of_name_and_repeat(context):
    ran, _ = forward(saga("a", "repeat", "b", repeats=3), TypeRuntime.of_class(Two).describe(Two([])).state, context)

    assert ran == ["a", "repeat", "repeat.2", "repeat.3", "b"]


Two = saga("a", "repeat", "b", repeats=3)


@pytest.mark.parametrize(("on_change", "expected"), [("park", None), ("run", ["a", "repeat", "new", "repeat.2", "b"])])
def test_a_step_in_the_middle_of_its_repeats_counts_as_begun(context, on_change, expected):
    runtime = TypeRuntime.of_class(Two)
    state = standing_before(Two, "repeat", context)
    half, _ = runtime.run(runtime.load(state, "data", 1), context(), Mode.EXECUTE, None, None)

    ran, end = forward(saga("a", "new", "repeat", "b", repeats=2, on_change=on_change), half.state, context)

    if expected is None:
        assert isinstance(end, Refused)
        assert "'new' has not run and stands before 'repeat', which is begun" in end.reason
    else:
        assert ran == expected


def test_the_generation_is_part_of_a_key(context):
    runtime = TypeRuntime.of_class(Two)
    live = runtime.load(standing_before(Two, "b", context), "data", 1)
    runtime.run(live, context(generation=3), Mode.EXECUTE, None, None)

    assert live.log[-1] == "p-1.g3.b"


def test_an_undo_that_takes_several_steps_has_a_key_for_each(context):
    class Slow(Saga):
        left: int = 2
        keys: list = ()

        @step
        def pay(self, ctx): ...

        @pay.undo
        def refund(self, ctx):
            self.keys = [*self.keys, ctx.idempotency_key]
            self.left -= 1
            return Status.executing() if self.left else None

    runtime = TypeRuntime.of_class(Slow)
    state = runtime.describe(Slow()).state
    for _ in range(2):
        live = runtime.load(state, "data", 1)
        outcome, _ = runtime.run(live, context(mode=Mode.ROLLBACK, unit="pay"), Mode.ROLLBACK, "pay", None)
        state = outcome.state

    assert live.keys == ["p-1.pay.undo", "p-1.pay.undo.2"]
    assert isinstance(outcome, Finished)


def test_a_step_that_was_begun_twice_is_undone_once(context):
    runtime = TypeRuntime.of_class(saga(*STEPS))
    state = standing_before(saga(*STEPS), "ship", context)
    for _ in range(2):
        live = runtime.load(state, "data", 1)
        outcome, _ = runtime.run(live, context(mode=Mode.ROLLBACK, unit="pay"), Mode.ROLLBACK, "pay", None)
        state = outcome.state

    assert live.log.count("p-1.pay.undo") == 1


def test_an_undo_runs_whatever_the_order_is_now(context):
    runtime = TypeRuntime.of_class(saga("check", *STEPS[::-1]))
    live = runtime.load(standing_before(saga(*STEPS), "ship", context), "data", 1)

    outcome, _ = runtime.run(live, context(mode=Mode.ROLLBACK, unit="wait"), Mode.ROLLBACK, "wait", None)

    assert isinstance(outcome, Finished)
    assert log_of(outcome.state)[-1] == "wait.undo"


def test_what_the_class_line_says_outlives_a_class_that_is_made_again():
    @dataclass(slots=True)
    class Order(Saga, order=("second", "first"), on_change="skip"):
        number: int = 0

        @step
        def first(self, ctx): ...

        @step(was=("gone",))
        def second(self, ctx): ...

    runtime = TypeRuntime.of_class(Order)
    live = runtime.load(b"\x92\x92\xa4gone\x91\xa4gone\x80", "data", 1)

    assert msgspec.msgpack.decode(runtime.describe(Order()).state)[0] == ["second", ["second", "first"]]
    assert live._engine_next_unit() is None
    assert live._engine_position()[:2] == ["gone", ["gone", "first"]]


@pytest.mark.parametrize(
    "position", [b"\xa4only", b"\x92\xa4gone\x91\xa4only", b"\x91\xa4only", b"\x07", b"\x92\x07\x90"]
)
def test_what_is_no_position_is_refused_in_words(position):
    with pytest.raises(StateRefused, match="in the place of a position, which is the next step and the order of all"):
        TypeRuntime.of_class(saga("only")).load(b"\x92" + position + b"\x81\xa3log\x90", "data", 1)
