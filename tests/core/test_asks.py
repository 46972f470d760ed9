"""Asks: signals with a name, an id and a reply, which the success of the step that took one stores."""

from __future__ import annotations

import pytest

from actorproc.core.state import signal_ids
from actorproc.errors import UnknownProcedure
from actorproc.model.messages.commands import Reply, Resolve, ResolveAsk
from actorproc.model.messages.events import (
    AbortRequested,
    BypassRequested,
    RetryRequested,
    Signalled,
    SignalsWithdrawn,
    Submitted,
    Tick,
)
from actorproc.model.messages.outcomes import (
    Advanced,
    Failed,
    Finished,
    Outcome,
    Poisoned,
    Renewed,
    Slept,
    StepRequests,
    Suspended,
    Waited,
)
from actorproc.model.policies import Backoff
from actorproc.model.rows.asks import AskKey, ReplyRecord, ask_of, enclosed, is_sound, opened, rewritten, settled
from actorproc.model.rows.records import ErrorInfo, IdReuse, NewProcedure
from actorproc.model.rows.writes import DeleteProcedure, DeleteReply, PutReply, PutStep
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, boom, difference, restarted

PRICE = AskKey("price", "a1")
ANSWERED = StepRequests(reply=b"7")
OUTCOMES = [Advanced, Slept, Waited, Finished, Suspended, Renewed]
FATAL = Failed(state=b"", error=ErrorInfo("error", "ValueError", "no"))


def ask(harness: CoreHarness, target: str = "p", name: str = "price", id: str = "a1", payload: bytes = b"1") -> object:
    decision = harness.handle(Signalled(target, payload, 5, ask=AskKey(name, id)))
    reply = next(command for command in decision.commands if isinstance(command, Reply))
    return reply.error or reply.value


def waiting(event: str = "price", **fields: object) -> CoreHarness:
    harness = CoreHarness(workers=3, **fields)  # type: ignore[arg-type]
    harness.submit(harness.new("p", **({"unit": "u"} if fields else {})))
    harness.answer("p", Waited(state=b"", event=event))
    return harness


def replies(harness: CoreHarness) -> dict[str, bytes]:
    """Stored replies, by the id of the ask."""
    found: dict[str, bytes] = {}
    for write in harness.writes:
        if isinstance(write, PutReply):
            assert write.record.ask not in found
            found[write.record.ask] = write.record.value
        elif isinstance(write, DeleteReply):
            found.pop(write.mark.split("\0")[1])
        elif isinstance(write, DeleteProcedure):
            found.clear()
    return found


def told(harness: CoreHarness) -> list[tuple[str, bytes | None]]:
    return [(command.ask.id, command.value) for command in harness.commands if isinstance(command, ResolveAsk)]


def outcome_of(kind: type[Outcome], harness: CoreHarness, requests: StepRequests | None) -> Outcome:
    options = {
        Slept: {"seconds": 5.0},
        Waited: {"event": "e"},
        Suspended: {"children": (harness.new("c"),)},
        Renewed: {"fresh": b"0"},
    }.get(kind, {})
    return kind(state=b"1", requests=requests, **options)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "payload",
    [
        b"\xc1",
        b"\xc1\x01",
        b"\xc1\x01\x00\x05",
        b"\xc1\x01\x00\x05\x00\x02pri",
        b"\xc1\x01\x00\x01\x00\x01\xff\xfe",
        b"\xc1" * 40,
    ],
)
def test_a_payload_that_is_cut_short_or_damaged_is_of_no_ask(payload):
    assert opened(payload) == (None, payload)
    assert ask_of(payload) is None
    assert rewritten(payload, lambda value: value + b"!") == payload + b"!"
    assert not is_sound(payload)


# ---------------------------------------------------------------- the payload
@pytest.mark.parametrize("name", ["a", "ä" * 100, "with\0nul", "x" * 255])
@pytest.mark.parametrize("payload", [b"", b"\x01", b"\xc1\x01", b"x" * 70_000])
def test_a_payload_comes_out_of_what_is_stored_of_an_ask(name: str, payload: bytes) -> None:
    stored = enclosed(AskKey(name, "id"), payload)

    assert opened(stored) == (AskKey(name, "id"), payload)
    assert ask_of(stored) == AskKey(name, "id")
    again = settled(stored)
    assert again is not None
    assert opened(again) == (AskKey(name, "id"), payload)
    assert ask_of(again) is None
    assert opened(rewritten(stored, lambda value: value + b"!"))[1] == payload + b"!"


@pytest.mark.parametrize("payload", [None, b"", b"\x01", b"\xc0", b"\xc7\x01\x02"])
def test_the_payload_of_a_signal_is_as_it_was_sent(payload: bytes | None) -> None:
    assert ask_of(payload) is None
    assert settled(payload) == payload
    if payload is not None:
        assert opened(payload) == (None, payload)
        assert rewritten(payload, lambda value: b"h" + value) == b"h" + payload


def test_marks_of_asks_with_other_names_and_ids_differ() -> None:
    asks = [AskKey(name, id) for name in ("a", "b", "a\0b", "b\0a") for id in ("a", "b", "ab", "")]

    assert len({one.mark for one in asks}) == len(asks)


# ---------------------------------------------------------------- who takes it
def test_only_a_wait_for_its_name_takes_an_ask_and_a_signal_is_for_any() -> None:
    harness = waiting("other")

    assert ask(harness) is True
    assert "p" not in harness.inbox
    harness.handle(Signalled("p", b"s", 5))
    assert harness.inbox["p"].event == b"s"

    harness.answer("p", Waited(state=b"", event="price"))
    assert harness.inbox["p"].event == enclosed(PRICE, b"1")
    assert difference(harness) is None


def test_of_asks_that_wait_the_oldest_that_fits_is_taken_and_a_signal_in_its_turn() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    ask(harness, name="b", id="1")
    ask(harness, name="a", id="2")
    harness.handle(Signalled("p", b"s", 5))
    ask(harness, name="a", id="3")

    seen = []
    for event in ("a", "a", "a", "b"):
        harness.answer("p", Waited(state=b"", event=event))
        seen.append(opened(harness.inbox["p"].event or b""))

    assert seen == [(AskKey("a", "2"), b"1"), (None, b"s"), (AskKey("a", "3"), b"1"), (AskKey("b", "1"), b"1")]


@pytest.mark.parametrize("again", [False, True], ids=["kept", "taken"])
def test_an_id_counts_once_for_a_name_and_is_no_signals_dedup(again: bool) -> None:
    harness = waiting() if again else CoreHarness()
    if not again:
        harness.submit(harness.new("p"))
    assert [ask(harness), ask(harness, payload=b"2"), ask(harness, name="stock")] == [True, True, True]
    harness.handle(Signalled("p", b"s", 5, "a1"))

    seen = []
    for event in ("price",) * (not again) + ("stock", "end"):
        if "p" in harness.inbox and seen == [] and again:
            seen.append(opened(harness.inbox["p"].event or b"")[1])
        harness.answer("p", Waited(state=b"", event=event))
        seen.append(opened(harness.inbox["p"].event or b"")[1])

    assert seen == [b"1", b"1", b"s"]


def test_an_ask_needs_a_procedure_that_is_there_and_has_not_ended() -> None:
    harness = waiting()

    assert isinstance(ask(harness, "q"), UnknownProcedure)
    ask(harness)
    harness.answer("p", Finished(state=b""))
    assert ask(harness, id="late") is False


# ---------------------------------------------------------------- the reply
@pytest.mark.parametrize("requests", [ANSWERED, None, StepRequests()], ids=["reply", "none", "roots"])
@pytest.mark.parametrize("kind", OUTCOMES)
def test_a_reply_comes_with_the_record_of_the_step(kind: type[Outcome], requests: StepRequests | None) -> None:
    harness = waiting()
    ask(harness)
    at, commands = len(harness.writes), len(harness.commands)

    harness.answer("p", outcome_of(kind, harness, requests))

    value = b"7" if requests is ANSWERED else b""
    writes = harness.writes[at:]
    assert [write.record for write in writes if isinstance(write, PutReply)] == [
        ReplyRecord("p", "price", "a1", value, harness.now, 2)
    ]
    assert any(isinstance(write, PutStep) for write in writes)
    said = [command for command in harness.commands[commands:] if isinstance(command, Resolve | ResolveAsk)]
    assert said[0] == ResolveAsk("p", PRICE, value)
    assert difference(harness) is None


@pytest.mark.parametrize("failing", ["retried", "killed"])
def test_an_attempt_that_does_not_end_well_gives_no_reply_and_the_next_one_has_the_ask(failing: str) -> None:
    harness = waiting(retry=Backoff(max_attempts=3, base=0.5))
    ask(harness)
    if failing == "retried":
        harness.answer("p", boom(retryable=True))
        harness.now += 60.0
        harness.handle(Tick())
    else:
        harness.kill(harness.inbox.pop("p").token.worker.slot)

    assert replies(harness) == {}
    assert harness.inbox["p"].event == enclosed(PRICE, b"1")
    harness.answer("p", Finished(state=b"", requests=ANSWERED))
    assert replies(harness) == {"a1": b"7"}


def test_a_reply_of_a_step_that_no_ask_woke_is_dropped() -> None:
    harness = waiting()
    harness.handle(Signalled("p", b"s", 5))

    harness.answer("p", Advanced(state=b"", requests=ANSWERED))
    harness.answer("p", Finished(state=b"", requests=ANSWERED))

    assert (replies(harness), told(harness)) == ({}, [])


@pytest.mark.parametrize(
    "outcome", [FATAL, Poisoned(state=b"", keys=("k",), error=FATAL.error)], ids=["fatal", "poison"]
)
def test_a_retried_root_answers_the_ask_that_its_failed_step_took(outcome: Outcome) -> None:
    harness = waiting()
    ask(harness)
    harness.answer("p", outcome)
    assert harness.state("p") is ProcedureState.FAILED
    assert replies(harness) == {}
    assert ask(harness) is False

    harness.handle(RetryRequested("p", 9, "why"))
    if isinstance(outcome, Poisoned):
        assert harness.core.view("p") is not None
    harness.answer("p", Finished(state=b"", requests=ANSWERED))

    assert replies(harness) == {"a1": b"7"}


def test_a_step_that_ends_while_its_tree_fails_has_answered_and_its_repetition_answers_nothing() -> None:
    harness = CoreHarness(workers=3)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("a"), harness.new("b"))))
    harness.answer("a", Waited(state=b"", event="price"))
    ask(harness, "a")
    harness.answer("b", FATAL)
    harness.answer("a", Finished(state=b"", requests=ANSWERED))
    assert replies(harness) == {"a1": b"7"}
    assert harness.state("p") is ProcedureState.FAILED

    harness.handle(RetryRequested("p", 9, "why"))
    assert opened(harness.inbox["a"].event or b"") == (PRICE, b"1")
    harness.answer("a", Finished(state=b"", requests=StepRequests(reply=b"8")))

    assert replies(harness) == {"a1": b"7"}
    assert told(harness) == [("a1", b"7")]


@pytest.mark.parametrize("how", ["abort", "bypass", "done"])
def test_the_end_leaves_replies_and_takes_asks_that_stand(how: str) -> None:
    harness = waiting(rollback_supported=True)
    ask(harness)
    harness.answer("p", Waited(state=b"", event="end", requests=ANSWERED))
    ask(harness, id="kept")
    if how == "abort":
        harness.handle(AbortRequested("p", 9))
        harness.undo_all()
    elif how == "bypass":
        harness.handle(BypassRequested("p", 9))
    else:
        harness.handle(Signalled("p", b"s", 5))
        harness.answer("p", Finished(state=b""))

    assert harness.state("p") is {"abort": ProcedureState.ROLLEDBACK}.get(how, ProcedureState.SUCCESS)
    assert replies(harness) == {"a1": b"7"}
    assert not harness.core.knows_ask("p", AskKey("price", "kept"))
    assert told(harness) == [("a1", b"7")]
    assert difference(harness) is None


def test_a_restart_answers_anew() -> None:
    harness = waiting()
    ask(harness)
    harness.answer("p", Finished(state=b"", requests=ANSWERED))

    new = harness.new("p")
    fields = {name: getattr(new, name) for name in new.__struct_fields__}
    reuse = IdReuse("restart", b"t" * 8)
    harness.handle(Submitted((NewProcedure(**fields | {"fresh": False, "reuse": reuse}),), 8))
    assert replies(harness) == {}
    harness.answer("p", Waited(state=b"", event="price"))
    assert ask(harness, payload=b"anew") is True
    assert harness.inbox["p"].event == enclosed(PRICE, b"anew")


def test_a_new_generation_of_a_living_procedure_keeps_replies_and_asks() -> None:
    harness = waiting()
    ask(harness)
    ask(harness, name="stock")
    harness.answer("p", Renewed(state=b"1", fresh=b"0", requests=ANSWERED))

    assert replies(harness) == {"a1": b"7"}
    assert ask(harness) is True
    harness.answer("p", Waited(state=b"", event="price"))
    assert "p" not in harness.inbox  # it has its reply
    harness = restarted(harness)
    assert harness.core.knows_ask("p", AskKey("stock", "a1"))


def test_who_asks_is_told_that_an_ask_was_withdrawn_and_it_may_come_again() -> None:
    harness = waiting("other")
    ask(harness)
    harness.handle(Signalled("p", b"", 5, ask=AskKey("price", "a2")))
    number = harness.core._state.signals.buffered["p"][0].seq

    harness.handle(SignalsWithdrawn("p", None, 6, number))
    assert told(harness) == [("a1", None)]
    assert not harness.core.knows_ask("p", PRICE)
    assert ask(harness) is True
    assert harness.core.knows_ask("p", PRICE)


def test_a_reply_goes_with_the_id_of_its_ask_when_others_push_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal_ids, "MAX_REMEMBERED", 2)
    harness = waiting()
    for number in range(4):
        ask(harness, id=str(number))
        harness.answer("p", Waited(state=b"", event="price", requests=StepRequests(reply=b"%d" % number)))

    assert replies(harness) == {"2": b"2", "3": b"3"}
    assert [harness.core.knows_ask("p", AskKey("price", str(number))) for number in range(4)] == [
        False,
        False,
        True,
        True,
    ]
    assert difference(harness) is None


def test_asks_that_are_taken_in_another_order_than_they_came_are_all_remembered() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    for name in "abcd":
        ask(harness, name=name)
    for name in "cadb":
        harness.answer("p", Waited(state=b"", event=name, requests=StepRequests(reply=name.encode())))
        assert difference(harness) is None
    ask(harness, name="e")

    assert all(harness.core.knows_ask("p", AskKey(name, "a1")) for name in "abcde")
    harness = restarted(harness)
    assert all(harness.core.knows_ask("p", AskKey(name, "a1")) for name in "abcde")
    assert list(harness.core._state.signals.taken["p"]) == [AskKey(name, "a1").mark for name in "cadb"]
