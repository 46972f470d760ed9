"""Reports of a step at the side of its worker: what is sent, what is asked for, and what is refused before."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import msgspec
import pytest

from actorproc import Secret
from actorproc.errors import StateTooLarge
from actorproc.model.ids import Mode
from actorproc.model.names import LAST_HEARTBEAT
from actorproc.model.rows.records import NoteRecord, ProcedureRecord, StepKind, StepRecord
from actorproc.procedure.authoring.context import UnreadableValue
from actorproc.procedure.authoring.reporting import MOST_KEYS, details_in
from actorproc.procedure.values.codec import MAX_STATE, DataCodec
from actorproc.procedure.values.redaction import redacted
from actorproc.report.states import state_info_of

_encode = msgspec.msgpack.encode


def test_a_first_attempt_asks_for_nothing(context, channel):
    ctx = context()

    ctx.expose("copied", 1)
    ctx.heartbeat(0.5, details={"row": 1})

    assert ctx.last_heartbeat is None
    assert channel.asked == []
    assert channel.exposed == [("copied", _encode(1))]


@pytest.mark.parametrize("options", [{"attempt": 2}, {"replayed": True}, {"mode": Mode.ROLLBACK}, {"step": 2}])
def test_sizes_of_earlier_values_are_asked_for_once_where_there_may_be_any(context, channel, options):
    channel.answers["exposed", ""] = _encode({f"old {n}": 1 for n in range(MOST_KEYS - 1)})
    ctx = context(**options)

    ctx.expose("new", 1)
    ctx.expose("old 3", "changed")
    with pytest.raises(ValueError, match="shows 100 values already"):
        ctx.expose("another", 1)

    assert channel.asked == ["exposed"]
    assert [key for key, _ in channel.exposed] == ["new", "old 3"]


def test_a_value_that_is_shown_again_unchanged_is_not_sent_again(context, channel):
    ctx = context()

    for value in (1, 1, 2, 2, 1, "x" * 5000, "x" * 5000):
        ctx.expose("key", value)

    assert [value for _, value in channel.exposed][:3] == [_encode(1), _encode(2), _encode(1)]
    assert len(channel.exposed) == 5


def test_what_was_refused_takes_no_room(context, channel):
    ctx = context()
    ctx.expose("one", "x" * (MAX_STATE // 2))
    for _ in range(3):
        with pytest.raises(StateTooLarge):
            ctx.expose("two", "x" * (MAX_STATE // 2))

    ctx.expose("two", "short")
    ctx.expose("one", "short")
    ctx.expose("three", "x" * (MAX_STATE // 2))

    assert [key for key, _ in channel.exposed] == ["one", "two", "one", "three"]


def test_an_attempt_is_given_the_details_of_the_one_before_whatever_it_sends_itself(context, channel):
    context().heartbeat(details="first")
    second = context(attempt=2)
    second.heartbeat(details="second")
    second.heartbeat(0.5)

    assert second.last_heartbeat == "first"
    assert context(attempt=2).last_heartbeat == "first"  # as a replay of it
    assert context(attempt=3).last_heartbeat == "second"
    assert context(step=2, attempt=2).last_heartbeat is None
    assert context(attempt=2, mode=Mode.ROLLBACK, unit="").last_heartbeat is None


def test_undos_of_two_units_under_one_number_have_heartbeats_of_their_own(context):
    context(3, Mode.ROLLBACK, unit="pay", attempt=2).heartbeat(details="of pay")

    assert context(3, Mode.ROLLBACK, unit="reserve").last_heartbeat is None
    assert context(3, Mode.ROLLBACK, unit="pay", attempt=3).last_heartbeat == "of pay"


def test_each_look_at_the_details_gives_a_new_object(context):
    context().heartbeat(details=["row"])
    ctx = context(attempt=2)

    ctx.last_heartbeat.append("changed")

    assert ctx.last_heartbeat == ["row"]


def test_details_too_long_to_be_kept_twice_are_kept_once(context, channel):
    long = "x" * (MAX_STATE - 100)
    context().heartbeat(details=long)
    context(attempt=2).heartbeat(details=long)

    note = channel.details[-1][1]
    assert len(note) < MAX_STATE
    assert details_in(note, 2) is None
    assert len(details_in(note)) > MAX_STATE - 100


@pytest.mark.parametrize("details", [{"row": 3}, 50, "fifty"])
def test_details_in_the_place_of_progress_are_refused_with_the_way_to_give_them(context, channel, details):
    with pytest.raises((TypeError, ValueError)) as refused:
        context().heartbeat(details)

    assert channel.beats == []
    if not isinstance(details, int):
        assert "heartbeat(details=…)" in str(refused.value)


def test_threads_that_show_values_at_once_keep_to_the_number_of_keys(context, channel):
    ctx = context()
    refused = []

    def work(number):
        for turn in range(30):
            try:
                ctx.expose(f"key {number}.{turn}", turn)
            except ValueError:
                refused.append(turn)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({key for key, _ in channel.exposed}) == MOST_KEYS
    assert len(refused) == 50


def test_details_that_todays_classes_cannot_read_give_the_attempt_up(context, channel):
    @dataclass
    class Gone:
        row: int = 1

    unknown = DataCodec("then", [Gone]).encode(Gone())
    channel.notes[1, LAST_HEARTBEAT] = b"\x93\x01\xc0" + unknown
    ctx = context(attempt=2)

    with pytest.raises(UnreadableValue, match="the details of the last heartbeat cannot be read"):
        assert ctx.last_heartbeat
    assert ctx._unreadable is not None
    ctx.heartbeat(details="goes on")  # what it was given stays beside its own, unread
    assert details_in(channel.details[-1][1], 2) == unknown


def test_secrets_in_details_are_masked_where_notes_are_exported_and_shown(context, channel):
    context().heartbeat(details={"token": Secret("hunter2"), "row": 3})
    context(attempt=2).heartbeat(details=Secret("hunter3"))

    note = NoteRecord("p", 1, LAST_HEARTBEAT, channel.details[-1][1])
    assert b"hunter" in note.value
    assert b"hunter" not in redacted(note.value)
    head = ProcedureRecord(id="p", type_name="T", version=1, root="p", parent=None, seq=1)
    shown = state_info_of(head, StepRecord("p", 1, StepKind.STEP, 0.0, b"\x80"), notes=[note])
    assert [(name, value.type) for name, value in shown.notes] == [("last heartbeat", "secret")]
