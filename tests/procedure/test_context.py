"""What a step sees."""

from __future__ import annotations

import contextlib
import logging
import math
import re
import threading
from enum import Enum
from unittest.mock import Mock

import msgspec
import pytest

from actorproc import UnknownProcedure, procedure
from actorproc.errors import RemoteError, StateNotEncodable
from actorproc.model.ids import Mode
from actorproc.model.messages.definitions import OutcomeRow
from actorproc.procedure.authoring.context import Context
from actorproc.procedure.encoding.value_codec import ValueCodec
from actorproc.procedure.runtime.engine_side import TypeRuntime, encode_payload
from actorproc.procedure.values.codec import DataCodec


class Color(Enum):
    RED = 1


def test_a_note_is_made_once_and_seen_by_the_replay(context, channel):
    first = context().remember("old", lambda: (1, 2))
    second = context(replayed=True).remember("old", lambda: pytest.fail("made twice"))

    assert first == second == (1, 2)
    assert channel.asked == ["remember", "recall"]


def test_a_note_belongs_to_its_step(context):
    context(step=1).remember("old", lambda: 1)

    assert context(step=2, replayed=True).remember("old", lambda: 2) == 2


def test_asking_for_a_note_again_in_one_step_asks_nobody(context, channel):
    ctx = context()
    made = [ctx.remember("k", lambda: [1]) for _ in range(2)]

    assert made[0] == made[1] == [1]
    assert channel.asked == ["remember"]


def test_threads_of_a_step_that_ask_for_one_key_get_one_value(context, channel):
    ctx, makers, got = context(), threading.Barrier(2), []

    def make():
        with contextlib.suppress(threading.BrokenBarrierError):  # nobody else makes one: that is what is tested
            makers.wait(0.2)
        return threading.get_ident()

    threads = [threading.Thread(target=lambda: got.append(ctx.remember("k", make))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert got == [got[0]] * 2
    assert channel.asked == ["remember"]


def test_what_makes_a_value_may_ask_for_it_itself(context):
    ctx = context()

    assert ctx.remember("k", lambda: [ctx.remember("k", lambda: 1)]) == [1]


def test_what_a_step_does_to_a_remembered_value_is_not_remembered(context):
    # Else the step would see another value than a repetition of it does.
    for ctx in (context(), context(replayed=True, attempt=2)):
        ctx.remember("k", list).append("changed")
        assert ctx.remember("k", list) == []


def test_none_is_a_value_like_any_other(context):
    context().remember("k", lambda: None)

    assert context(attempt=2).remember("k", lambda: 1) is None


def test_the_idempotency_key_is_the_same_for_every_attempt_of_a_step_and_no_other(context):
    attempts = {context(attempt=number).idempotency_key for number in range(1, 4)}
    others = {context(step=2).idempotency_key, context(mode=Mode.ROLLBACK, unit="pay").idempotency_key}
    others.add(context(mode=Mode.ROLLBACK, unit="ship").idempotency_key)

    assert len(attempts) == 1
    assert len(attempts | others) == 4


def test_what_abort_remembers_is_not_what_the_next_step_remembers(context):
    assert context(mode=Mode.ASK_ABORT).remember("old", lambda: "asked") == "asked"
    assert context(attempt=2).remember("old", lambda: "read") == "read"
    assert context(mode=Mode.ASK_ABORT, attempt=3).remember("old", lambda: "again") == "asked"
    assert context(attempt=3, replayed=True).remember("old", lambda: "again") == "read"


def test_what_an_undo_or_on_timeout_remembers_is_not_what_a_step_of_that_number_remembers(context):
    modes = (Mode.EXECUTE, Mode.ON_TIMEOUT, Mode.ROLLBACK)
    for attempt in (1, 2):
        seen = [context(mode=mode, attempt=attempt).remember("old", lambda m=mode: m.name) for mode in modes]

        assert seen == [mode.name for mode in modes]


def row(name, state="SUCCESS", output=b"\xc0", error=None):
    return OutcomeRow(name, "T", state, output, "data", error, "trace")


def test_children_come_in_order_with_outputs_and_errors(context, channel):
    rows = [row("b", output=encode_payload((1,))), row("a", "FAILED", b"", "broke"), row("c", output=None)]
    channel.answers["children", ""] = msgspec.msgpack.encode(rows)
    channel.answers["output", "c"] = encode_payload("long")

    children = context(_children_step=3).children

    assert list(children) == ["b", "a", "c"]
    assert children["b"].output == (1,)
    assert (children["a"].state, children["a"].output, str(children["a"].error)) == ("FAILED", None, "broke")
    assert isinstance(children["a"].error, RemoteError)
    assert channel.asked == ["children"]
    assert children["c"].output == "long"
    assert children["c"].output == "long"
    assert channel.asked == ["children", "output"]


def test_without_children_nobody_is_asked(context, channel):
    assert dict(context().children) == {}
    assert channel.asked == []


def test_a_childs_output_is_decoded_by_its_own_class_where_it_is_known(context, channel):
    codec = DataCodec("T", [Color])
    channel.answers["children", ""] = msgspec.msgpack.encode([row("a", output=codec.encode(Color.RED))])

    values = ValueCodec(codec)
    children = context(_children_step=1, _outputs=lambda name: values if name == "T" else None).children

    assert children["a"].output is Color.RED


def test_query_gives_plain_data_or_unknown_procedure(context, channel):
    channel.answers["query", "x"] = encode_payload({"state": "RUNNABLE"})

    assert context().query("x") == {"state": "RUNNABLE"}
    with pytest.raises(UnknownProcedure, match="'y'"):
        context().query("y")


def test_signs_of_life_and_log_lines_go_to_the_channel(context, channel):
    ctx = context()
    ctx.heartbeat(1, "half")
    ctx.log.info("paid %d", 3)
    ctx.log.debug("not shown")

    assert channel.beats == [(1.0, "half")]
    assert channel.lines == [(logging.INFO, "actorproc.procedure.Test", "paid 3")]


def test_aborting_is_asked_each_time(context, channel):
    ctx = context()
    before = ctx.aborting
    channel.abort_asked = True

    assert (before, ctx.aborting) == (False, True)


def test_a_context_is_no_value_although_functions_name_it_in_their_hints():
    @procedure
    def look(ctx: Context, number: int) -> int:
        return number + ctx.step

    runtime = TypeRuntime.of_class(type(look(1)))

    assert Context not in runtime.codec.classes
    with pytest.raises(StateNotEncodable, match="Context"):
        runtime.codec.encode(Context(None, id="p", type_name="T", root_id="p", step=1), "output")


def test_a_context_shows_its_place_and_not_what_the_environment_made(context):
    ctx = context(step=3, env={"password": "secret"})

    assert repr(ctx) == "Context(id='p-1', step=3, attempt=1)"
    assert dict(ctx.__rich_repr__()) == {"id": "p-1", "step": 3, "attempt": 1}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (0, 0.0),
        (1, 1.0),
        (0.5, 0.5),
        (None, None),
        (sum([0.1] * 10), 0.9999999999999999),
        (1 + 1e-9, 1.0),
        (-1e-9, 0.0),
    ],
)
def test_progress_is_a_fraction_and_rounding_is_cut_off(given, shown):
    channel = Mock()
    Context(_channel=channel, id="a", type_name="T", root_id="a", step=1).heartbeat(given)
    channel.heartbeat.assert_called_once_with(shown, None)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (50, "50 of 100 is 0.5"),
        (-3, "a fraction from 0 to 1, not -3"),
        (1.01, "not 1.01"),
        (1000, "not 1000"),
        (math.nan, "finite"),
    ],
)
def test_progress_that_is_no_fraction_is_refused(wrong, said):
    channel = Mock()
    with pytest.raises(ValueError, match=re.escape(said)):
        Context(_channel=channel, id="a", type_name="T", root_id="a", step=1).heartbeat(wrong)
    channel.heartbeat.assert_not_called()
