"""`ctx.expose` and `ctx.last_heartbeat`: which values are kept, over attempts, steps, undos and generations."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import math
import threading
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest

from actorproc import Limits, Procedure, RetryPolicy, Saga, Secret, Status, procedure, step
from actorproc.errors import StateNotEncodable, StateTooLarge, StepTimeout
from actorproc.procedure.authoring.reporting import MOST_KEYS
from actorproc.procedure.values.codec import MAX_STATE
from actorproc.testing import InlineManager


@pytest.fixture
def inline():
    with InlineManager(workers=2) as manager:
        yield manager


AGAIN = RetryPolicy(max_attempts=4, base=0.01, jitter=0.0, retry_on=(Exception,))


class Colour(enum.Enum):
    RED = 1


@dataclass
class Point:
    x: int = 1
    y: int = 2


@procedure
def shows(ctx, values: dict):
    for key, value in values.items():
        ctx.expose(key, value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(2**63),
        2**200,
        1.5,
        math.inf,
        "",
        "ümläut\n\x1b[31m",
        "x" * 100_000,
        b"\x00\xff",
        [],
        list(range(1000)),
        {"a": {"b": [1, (2, 3)]}},
        {1: "one", None: 2},
        (1, 2),
        {1, 2},
        frozenset({3}),
        collections.deque([1]),
        dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        dt.timedelta(seconds=3),
        decimal.Decimal("1.10"),
        uuid.UUID(int=7),
        "lone \ud800 surrogate",
    ],
    ids=lambda value: repr(value)[:30].encode("ascii", "replace").decode(),
)
def test_a_value_comes_back_as_what_it_was_and_json_can_hold_what_is_shown(inline, value):
    handle = inline.finish(inline.submit(shows({"key": value})))

    info = handle.info()

    assert info.exposed == {"key": value}
    assert type(info.exposed["key"]) is type(value)
    assert list(info.to_dict()["exposed"]) == ["key"]
    inline.run(asks(handle.id))  # it goes to a step as well


@procedure
def asks(ctx, id: str):
    return ctx.query(id)["exposed"]


@procedure
def shows_objects(ctx, point: Point, colour: Colour, secret: Secret):
    ctx.expose("point", point)
    ctx.expose("points", [point])
    ctx.expose("colour", colour)
    ctx.expose("secret", secret)
    ctx.expose("deep", {"password": secret, "user": "anna"})


def test_objects_are_shown_without_their_classes_and_secrets_are_masked(inline):
    handle = inline.finish(inline.submit(shows_objects(Point(), Colour.RED, Secret("hunter2"))))

    info = handle.info()

    assert info.exposed["point"] == {"x": 1, "y": 2}
    assert info.exposed["points"] == [{"x": 1, "y": 2}]
    assert info.exposed["colour"] == "RED"
    assert info.exposed["deep"]["user"] == "anna"
    assert "hunter2" not in repr(info)
    assert "hunter2" not in repr(info.to_dict())
    assert info.exposed["secret"] == info.exposed["deep"]["password"] != ""
    assert info.to_dict()["exposed"]["point"] == {
        "$type": f"{Point.__module__}:Point",
        "x": 1,
        "y": 2,
    }


class Pickles(Procedure):
    codec = "pickle"

    def execute(self, ctx):
        ctx.expose("number", 3)
        ctx.expose("function", len)
        return Status.done()


def test_a_class_that_pickles_shows_typed_data_where_it_can_and_nothing_is_loaded(inline):
    info = inline.finish(inline.submit(Pickles())).info()

    assert info.exposed["number"] == 3
    assert "pickle" in info.exposed["function"]


# ---------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("key", "value", "error", "said"),
    [
        (1, 2, TypeError, "takes a text as its key, such as 'copied', not 1"),
        (None, 2, TypeError, "not None"),
        (b"copied", 2, TypeError, "not b'copied'"),
        ("", 2, ValueError, "1 to 128 characters"),
        ("x" * 129, 2, ValueError, "1 to 128 characters"),
        ("two\nlines", 2, ValueError, "no control characters"),
        ("nul\0", 2, ValueError, "no control characters"),
        ("\x1b[31m", 2, ValueError, "no control characters"),
        ("lone \ud800", 2, ValueError, "no control characters"),
        ("lock", "a lock", StateNotEncodable, r"expose\('lock'\)"),
        ("long", "a long text", StateTooLarge, "max_state"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_words_and_what_was_shown_before_stays(inline, key, value, error, said):
    @procedure
    def refuses(ctx):
        ctx.expose("before", 1)
        given = {"a lock": threading.Lock(), "a long text": "x" * MAX_STATE}.get(value, value)
        with pytest.raises(error, match=said):
            ctx.expose(key, given)

    handle = inline.finish(inline.submit(refuses()))

    assert handle.exception() is None
    assert handle.info().exposed == {"before": 1}


@dataclass
class Fills(Procedure):
    keys: int
    position: int = 0
    errors: list = field(default_factory=list)

    def execute(self, ctx):
        if self.position == 0:
            for number in range(self.keys):
                ctx.expose(f"key {number}", number)
            self.position = 1
            return Status.executing()
        for key in ("one more", "key 0"):
            try:
                ctx.expose(key, "new")
            except ValueError as error:
                self.errors.append(str(error))
        return Status.done(self.errors)


@pytest.mark.parametrize("keys", [MOST_KEYS - 1, MOST_KEYS])
def test_there_are_at_most_a_hundred_keys_over_all_steps_and_a_known_one_may_change(inline, keys):
    handle = inline.finish(inline.submit(Fills(keys)))

    assert len(handle.info().exposed) == MOST_KEYS
    assert handle.info().exposed["key 0"] == "new"
    if keys == MOST_KEYS:
        (said,) = handle.result()
        assert "shows 100 values already" in said
        assert "one more" in said
    else:
        assert handle.result() == []


@dataclass
class Large(Procedure):
    position: int = 0

    def execute(self, ctx):
        half = "x" * (MAX_STATE // 2)
        if self.position == 0:
            self.position = 1
            ctx.expose("one", half)
            return Status.executing()
        with pytest.raises(StateTooLarge, match="bytes of other values"):
            ctx.expose("two", half)
        ctx.expose("one", "short")
        ctx.expose("two", half)
        return Status.done()


def test_all_values_together_have_the_room_of_one_state(inline):
    handle = inline.finish(inline.submit(Large()))

    assert handle.exception() is None
    assert {key: len(value) for key, value in handle.info().exposed.items()} == {"one": 5, "two": MAX_STATE // 2}


# ---------------------------------------------------------------------- how a step ends
@dataclass
class Ends(Procedure):
    how: str
    retry = AGAIN

    def execute(self, ctx):
        ctx.expose("attempt", ctx.attempt)
        ctx.expose("how", self.how)
        seen = ctx.last_heartbeat
        ctx.heartbeat(0.1, "begun", details={"attempt": ctx.attempt, "seen": seen})
        ctx.heartbeat(0.2)  # without details: those before stay
        if ctx.attempt == 3 or self.how == "well":
            return Status.done(ctx.last_heartbeat)
        if self.how == "error":
            raise ValueError(self.how)
        if self.how == "later":
            raise ConnectionError(self.how)
        return "no status"


@pytest.mark.parametrize("how", ["error", "later"])
def test_a_step_that_fails_shows_what_it_showed_and_its_next_attempt_has_the_last_details(inline, how):
    handle = inline.finish(inline.submit(Ends(how)))

    assert handle.result() == {"attempt": 2, "seen": {"attempt": 1, "seen": None}}
    assert handle.info().exposed == {"attempt": 3, "how": how}


@pytest.mark.parametrize("how", ["well", "no status"])
def test_values_of_a_first_attempt_are_kept_whether_it_ends_well_or_for_good(inline, how):
    handle = inline.finish(inline.submit(Ends(how)))

    assert (handle.exception() is None) == (how == "well")
    assert handle.info().exposed == {"attempt": 1, "how": how}
    if how == "well":
        assert handle.result() is None


class Steps(Saga):
    retry = AGAIN

    @step
    def first(self, ctx):
        ctx.heartbeat(details="of the first")
        ctx.expose("at", "first")
        if ctx.attempt == 1:
            raise ValueError

    @step
    def second(self, ctx):
        self.seen = ctx.last_heartbeat
        ctx.expose("at", "second")

    @second.undo
    def unsecond(self, ctx):
        ctx.expose("undone", "second")
        ctx.expose("undo saw", ctx.last_heartbeat)
        ctx.heartbeat(details=f"undo {ctx.attempt}")
        if ctx.attempt == 1:
            raise ConnectionError

    @step
    def third(self, ctx):
        ctx.expose("second saw", self.seen)
        ctx.expose("at", "third")
        raise KeyError("for good")

    seen: Any = "nothing"


def test_details_are_of_one_step_and_of_its_undo_by_itself_and_values_of_the_whole_procedure(inline):
    handle = inline.submit(Steps())

    inline.finish(handle)

    assert handle.info().state == "ROLLEDBACK"
    assert handle.info().exposed == {
        "at": "third",
        "second saw": None,
        "undone": "second",
        "undo saw": "undo 1",
    }


@dataclass
class Merged(Procedure):
    """Its steps need no record of their own, so one attempt runs all."""

    at: int = 0

    def execute(self, ctx):
        seen = ctx.last_heartbeat
        ctx.expose(f"seen in {self.at}", [ctx.attempt, seen])
        ctx.heartbeat(details=self.at)
        if self.at == 2:
            if ctx.attempt == 1:
                raise ConnectionError
            return Status.done()
        self.at += 1
        return Status.executing(persist=False)


def test_details_belong_to_the_step_that_gave_them_also_where_steps_have_no_records(inline):
    handle = inline.finish(inline.submit(Merged()))

    exposed = handle.info().exposed

    assert exposed["seen in 2"] == [2, 2]
    assert exposed["seen in 0"] in ([1, None], [2, None])


@dataclass
class Renews(Procedure):
    turn: int = 0

    def execute(self, ctx):
        seen = ctx.last_heartbeat
        ctx.heartbeat(details=self.turn)
        ctx.expose(f"turn {self.turn}", seen)
        return Status.again(Renews(self.turn + 1)) if self.turn < 2 else Status.done()


def test_values_outlast_a_generation_and_details_do_not(inline):
    handle = inline.finish(inline.submit(Renews()))

    assert handle.exception() is None
    assert handle.info().exposed == {"turn 0": None, "turn 1": None, "turn 2": None}


def test_a_restart_by_a_submit_and_a_removal_begin_with_nothing(inline):
    inline.finish(inline.submit(shows({"old": 1}), id="job"))
    again = inline.finish(inline.submit(shows({"new": 1}), id="job", on_existing="restart"))
    assert again.info().exposed == {"new": 1}

    inline.delete("job")

    assert inline.finish(inline.submit(shows({}), id="job")).info().exposed == {}


@dataclass
class Fails(Procedure):
    """Its first run fails for good."""

    def execute(self, ctx):
        seen = ctx.last_heartbeat
        ctx.expose("run", seen)
        ctx.heartbeat(details="from before")
        if seen is None:
            raise KeyError
        return Status.done(seen)


def test_an_operators_retry_goes_on_with_the_details_of_the_attempt_that_failed(inline):
    handle = inline.finish(inline.submit(Fails(), id="f"))
    assert handle.info().exposed == {"run": None}

    inline.retry("f")

    assert inline.finish(inline.get("f")).result() == "from before"
    assert handle.info().exposed == {"run": "from before"}


@dataclass
class Parent(Procedure):
    started: bool = False

    def execute(self, ctx):
        if not self.started:
            self.started = True
            ctx.expose("who", "parent")
            return Status.suspended([("child", shows({"who": "child"}))])
        return Status.done(ctx.query("child")["exposed"])


def test_children_show_values_of_their_own(inline):
    handle = inline.finish(inline.submit(Parent()))

    assert handle.result() == {"who": "child"}
    assert handle.info().exposed == {"who": "parent"}
    assert inline.info("child").exposed == {"who": "child"}


class Waits(Procedure):
    def execute(self, ctx):
        ctx.expose("waits", True)
        return Status.wait("go", timeout=5)

    def on_timeout(self, ctx):
        ctx.expose("timed out", ctx.last_heartbeat)
        return Status.done()

    def abort(self, ctx):
        ctx.expose("asked", True)
        return False


def test_other_methods_show_values_as_well(inline):
    handle = inline.submit(Waits(), id="w")
    inline.abort("w")

    inline.finish(handle)

    assert handle.info().exposed.keys() >= {"waits", "timed out"}


@procedure
def from_threads(ctx):
    def work(name):
        for number in range(50):
            ctx.expose(name, number)
            ctx.heartbeat(number / 50, details=(name, number))
            ctx.expose("shared", number)

    threads = [threading.Thread(target=work, args=(f"thread {n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_of_a_step_may_show_values_at_once(inline):
    handle = inline.finish(inline.submit(from_threads()))

    assert handle.exception() is None
    assert handle.info().exposed == {f"thread {n}": 49 for n in range(8)} | {"shared": 49}


KEPT: list[Any] = []


@procedure
def keeps_its_context(ctx):
    KEPT.append(ctx)


def test_a_context_whose_step_is_over_refuses(inline):
    inline.finish(inline.submit(keeps_its_context()))

    with pytest.raises(Exception, match="is over"):
        KEPT.pop().expose("late", 1)


# ---------------------------------------------------------------------- time
class Silent(Procedure):
    limits = Limits(heartbeat=10, wall_time=60)
    retry = RetryPolicy(max_attempts=2, base=0.01, retry_on=(StepTimeout,))
    begun = threading.Semaphore(0)
    goes_on = threading.Event()

    def execute(self, ctx):
        if ctx.attempt == 1:
            ctx.heartbeat(details="one")
            self.begun.release()
            self.goes_on.wait(20)
        return Status.done(ctx.last_heartbeat)


def test_the_time_between_heartbeats_ends_an_attempt_and_the_next_has_their_details(inline):
    Silent.goes_on.clear()
    handle = inline.submit(Silent())
    assert Silent.begun.acquire(timeout=20)

    inline.clock.advance(9.5)
    assert inline.attempts(handle.id) == []
    inline.clock.advance(0.9)
    inline.finish(handle)
    Silent.goes_on.set()

    assert handle.result() == "one"
    (attempt,) = inline.attempts(handle.id)
    assert "sent no heartbeat for 10 s (Limits.heartbeat)" in attempt.error.message
    assert attempt.error.crash.kind == "heartbeat-limit"


class Beats(Procedure):
    limits = Limits(heartbeat=10)
    turns = threading.Semaphore(0)
    heard = threading.Semaphore(0)

    def execute(self, ctx):
        for turn in range(5):
            self.turns.acquire(timeout=20)
            ctx.heartbeat(turn / 5)
            self.heard.release()
        self.turns.acquire(timeout=20)
        return Status.done("lived")


def test_a_step_that_sends_heartbeats_lives_longer_than_the_time_between_them(inline):
    handle = inline.submit(Beats())

    for turn in range(5):
        Beats.turns.release()
        assert Beats.heard.acquire(timeout=20)
        while handle.info().progress != turn / 5:
            pass
        inline.clock.advance(6)
    Beats.turns.release()

    assert inline.finish(handle).result() == "lived"
    assert inline.attempts(handle.id) == []


@dataclass
class Counts(Procedure):
    """It shows every number, and a test says when it goes on."""

    begun = threading.Semaphore(0)
    goes_on = threading.Event()

    def execute(self, ctx):
        for number in range(1000):
            ctx.expose("number", number)
            ctx.heartbeat(details=number)
        self.begun.release()
        self.goes_on.wait(20)
        return Status.done()


def test_values_of_a_running_step_are_stored_at_most_once_a_second(inline):
    Counts.goes_on.clear()
    handle = inline.submit(Counts())
    assert Counts.begun.acquire(timeout=20)
    before = inline.metrics().commits
    assert handle.info().exposed in ({}, {"number": handle.info().exposed.get("number")})

    inline.clock.advance(0.2)
    while handle.info().exposed != {"number": 999}:
        inline.clock.advance(0.2)
    stored = inline.metrics().commits
    Counts.goes_on.set()
    inline.finish(handle)

    assert stored - before <= 3
    assert handle.info().exposed == {"number": 999}
