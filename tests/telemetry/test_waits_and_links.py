"""Waits as spans, and what is linked in place of being above: by the core and a virtual clock."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.model.crash_report import CrashReport
from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import (
    PauseRequested,
    Published,
    ResumeRequested,
    RetryRequested,
    Signalled,
    StepReturned,
    Submitted,
    Tick,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Finished, Refused, Renewed, Slept, Suspended, Waited
from actorproc.model.policies import LockKey, Scheduling
from actorproc.model.rows.records import Trace
from actorproc.model.rows.snapshot import RecoverySnapshot
from tests.core.harness import boom, later
from tests.telemetry.traced_core import ABOVE, TracedCore

ROOT = Path(__file__).parents[2]
SENDER = b"t" * 16 + b"z" * 8 + b"\x01"
DONE = Finished(state=b"1")


def _suspended(core: TracedCore, *names: str, **more: object) -> Suspended:
    return Suspended(state=b"1", children=tuple(core.new(name, trace=None) for name in names), **more)


def _again(core: TracedCore) -> Renewed:
    return Renewed(state=b"1", fresh=b"0")


def _wait_of(core: TracedCore, kind: str, seconds: float) -> dict[str, object]:
    span = core.one(f"actorproc.wait {kind}")
    assert span.end - span.start == pytest.approx(seconds)
    assert span.context[:16] == ABOVE[:16]
    return span.attributes


# ---------------------------------------------------------------------- waits
def test_a_wait_for_a_lock_names_its_path():
    core = TracedCore(workers=2)
    core.submit(core.new("holder", locks=(LockKey.write("shop/1"),)))
    core.submit(core.new("late", locks=(LockKey.write("shop/1"),)))
    core.wait(3.0)
    core.answer("holder", DONE)

    assert _wait_of(core, "lock", 3.0)["actorproc.lock.path"] == ("shop/1",)
    assert core.one("actorproc.wait").attributes["actorproc.procedure.id"] == "late"


def test_a_wait_for_children_ends_with_the_last_of_them():
    core = TracedCore(workers=2)
    core.submit(core.new("p"))
    core.answer("p", _suspended(core, "a", "b"))
    core.wait(1.0)
    core.answer("a", DONE)
    core.wait(1.0)
    core.answer("b", DONE)

    _wait_of(core, "child", 2.0)


@pytest.mark.parametrize("send", [lambda: Signalled("w", b"x", 2), lambda: Published("go", b"x", 2)])
def test_a_wait_for_an_event_names_it(send):
    core = TracedCore()
    core.submit(core.new("w"))
    core.answer("w", Waited(state=b"1", event="go", timeout=None))
    core.wait(5.0)
    core.handle(send())

    assert _wait_of(core, "event", 5.0)["actorproc.event.name"] == "go"


def test_sleeps_and_delays_are_waits_for_a_timer():
    core = TracedCore()
    core.submit(core.new("s", due_at=2.0))
    core.wait(2.0)
    core.handle(Tick())
    core.answer("s", Slept(state=b"1", seconds=7.0))
    core.wait(7.0)
    core.handle(Tick())

    assert [(span.start, span.end) for span in core.named("actorproc.wait timer")] == [(0.0, 2.0), (2.0, 9.0)]


def test_a_backoff_is_a_wait_for_a_retry_with_its_error():
    core = TracedCore()
    core.submit(core.new("r"))
    core.answer("r", later("busy", after=4.0))
    core.wait(4.0)
    core.handle(Tick())

    assert _wait_of(core, "retry", 4.0)["actorproc.retry.error"] == "ValueError"


def test_a_place_in_the_queue_is_a_wait_for_a_worker():
    core = TracedCore(workers=0)
    core.submit(core.new("q"))
    core.wait(6.0)
    core.handle(WorkerReady(WorkerId(0, 1)))

    _wait_of(core, "worker", 6.0)


def test_a_wait_for_a_slot_names_the_keys_of_its_limits():
    core = TracedCore(workers=2)
    snapshot = RecoverySnapshot(1, 1, 1, [], [], [], [], [], [])
    core.core, _ = Coordinator.restore(snapshot, 0.0, scheduling=Scheduling(concurrency={"tenant": 1}))
    core.register("T")
    for slot in range(2):
        core.handle(WorkerReady(WorkerId(slot, 1)))
    core.submit(*(core.new(name, limit_keys=("tenant",)) for name in ("first", "late")))
    core.wait(2.0)
    core.answer("first", DONE)

    assert _wait_of(core, "slot", 2.0)["actorproc.limit.keys"] == ("tenant",)
    assert core.one("actorproc.wait").attributes["actorproc.procedure.id"] == "late"


def test_a_pause_is_a_wait_apart_from_the_one_before_it():
    core = TracedCore(workers=0)
    core.submit(core.new("p"))
    core.wait(1.0)
    core.handle(PauseRequested("p", 2, "night"))
    core.wait(2.0)
    core.handle(ResumeRequested("p", 3))
    core.wait(4.0)
    core.handle(WorkerReady(WorkerId(0, 1)))

    assert [(span.name, span.end - span.start) for span in core.spans] == [
        ("actorproc.wait worker", 1.0),
        ("actorproc.wait pause", 2.0),
        ("actorproc.wait worker", 4.0),
    ]


@pytest.mark.parametrize(("seconds", "spans"), [(0.0999, 0), (0.1, 1)])
def test_waits_of_less_than_a_tenth_of_a_second_are_none(seconds, spans):
    core = TracedCore()
    core.submit(core.new("s"))
    core.answer("s", Slept(state=b"1", seconds=seconds))
    core.wait(seconds)
    core.handle(Tick())

    assert len(core.named("actorproc.wait")) == spans


def test_a_wait_that_an_end_cuts_off_ends_with_it():
    core = TracedCore()
    core.submit(core.new("p"))
    core.answer("p", _suspended(core, "a"))
    core.wait(2.0)
    core.answer("a", boom())

    assert _wait_of(core, "child", 2.0)["actorproc.procedure.id"] == "p"
    assert {span.attributes["actorproc.procedure.id"] for span in core.named("actorproc.procedure")} == {"a", "p"}


def test_waits_go_on_over_a_restart():
    core = TracedCore()
    core.submit(core.new("w"))
    core.answer("w", Waited(state=b"1", event="go", timeout=None))

    again = core.restarted(after=60.0)
    again.wait(1.0)
    again.handle(Signalled("w", b"x", 2))

    _wait_of(again, "event", 61.0)


# ---------------------------------------------------------------------- attempts
def test_an_attempt_that_its_manager_left_is_recorded_by_the_next_one_once():
    core = TracedCore()
    core.submit(core.new("p"))
    core.answer("p", Advanced(state=b"1"))

    again = core.restarted(after=10.0)
    again.wait(1.0)
    again.answer("p", DONE)

    lost, ended = again.named("actorproc.step")
    assert (lost.start, lost.end) == (0.0, 10.0)
    assert "the manager ended" in lost.error.message
    assert ended.links == (ABOVE[:16] + lost.span + b"\x01",)
    assert ended.error is None
    assert len({span.span for span in (*core.spans, *again.spans)}) == len(core.spans) + len(again.spans)


def test_a_step_that_came_back_unbegun_has_one_span():
    core = TracedCore()
    core.submit(core.new("p"))
    core.handle(StepReturned(core.inbox.pop("p").token))
    core.answer("p", DONE)

    assert [span.attributes["actorproc.step.attempt"] for span in core.named("actorproc.step")] == [1]
    assert core.one("actorproc.step").error is None


def test_a_step_behind_the_one_that_killed_its_worker_says_so():
    core = TracedCore()
    core.core._state.workers.table._expected["T"] = 0.001  # short steps, so that both go to the one worker
    core.submit(core.new("guilty"), core.new("behind"))
    assert set(core.inbox) == {"guilty", "behind"}
    core.kill(0)
    core.handle(WorkerReady(WorkerId(0, 2)))
    core.answer("guilty", DONE)
    core.answer("behind", DONE)

    by_procedure = {}
    for span in core.named("actorproc.step"):
        by_procedure.setdefault(span.attributes["actorproc.procedure.id"], []).append(span.error)
    assert "its worker crashed: killed by signal 9" in by_procedure["guilty"][0].message
    assert "its worker ended, though not for this step" in by_procedure["behind"][0].message
    assert by_procedure["guilty"][1] is by_procedure["behind"][1] is None


def test_a_lost_host_is_told_in_the_span_of_the_attempt():
    core = TracedCore()
    core.submit(core.new("p"))
    core.handle(WorkerLost(WorkerId(0, 1), CrashReport(kind="host-lost", message="the host big-1 is silent")))
    core.handle(WorkerReady(WorkerId(0, 2)))
    core.answer("p", DONE)

    first, second = core.named("actorproc.step")
    assert "its host was lost" in first.error.message
    assert first.attributes["actorproc.crash.kind"] == "host-lost"
    assert second.error is None


@pytest.mark.parametrize("workers", [1, 0], ids=["at once", "later"])
def test_a_step_that_no_worker_can_run_ends_then_and_waits_for_its_class(workers):
    core = TracedCore()
    core.submit(core.new("p"))
    core.wait(1.0)
    core.answer("p", Refused(reason="its state is of a later version", needs="T"))
    if not workers:
        core.submit(core.new("other", trace=None))  # has the only worker
    core.wait(3.0)
    core.register("T")
    if not workers:
        core.wait(2.0)
        core.answer("other", DONE)
    core.answer("p", DONE)

    refused, again = core.named("actorproc.step")
    assert (refused.start, refused.end) == (0.0, 1.0)
    assert "no worker can run the step as it is: its state is of a later version" in refused.error.message
    assert again.links == (ABOVE[:16] + refused.span + b"\x01",)
    _wait_of(core, "class", 3.0)
    assert [span.end - span.start for span in core.named("actorproc.wait worker")] == [2.0] * (not workers)


def test_a_wait_for_a_class_goes_on_over_a_restart():
    core = TracedCore()
    core.submit(core.new("p"))
    core.wait(1.0)
    core.answer("p", Refused(reason="its state is of a later version", needs="T"))
    again = core.restarted(after=3.0)
    again.register("T")

    _wait_of(again, "class", 3.0)
    assert core.spans == []


def test_a_member_of_a_failed_tree_waits_for_its_undo():
    core = TracedCore(workers=2, rollback_supported=True)
    core.submit(core.new("p", unit="a"))
    core.answer("p", _suspended(core, "a", "b"))
    core.answer("a", boom())
    core.wait(2.0)
    core.answer("b", Advanced(state=b"1"))
    core.wait(2.0)
    assert core.undo_all() == ["p:a"]

    waits = {span.attributes["actorproc.procedure.id"]: span.end - span.start for span in core.named("actorproc.wait")}
    assert {span.name for span in core.named("actorproc.wait")} == {"actorproc.wait undo"}
    assert waits == {"p": 2.0, "a": 4.0, "b": 2.0}


def test_a_wait_that_times_out_has_a_span_of_its_own_for_the_answer():
    core = TracedCore(has_on_timeout=True)
    core.submit(core.new("w"))
    core.answer("w", Waited(state=b"1", event="go", timeout=5.0))
    core.wait(5.0)
    core.handle(Tick())
    core.wait(1.0)
    core.answer("w", DONE)

    _wait_of(core, "event", 5.0)
    assert core.one("actorproc.timeout").name == "actorproc.timeout T"
    assert core.one("actorproc.step").attributes["actorproc.step.number"] == 1


def test_an_attempt_names_its_worker_its_outcome_and_its_time_in_the_queue():
    core = TracedCore(workers=0)
    core.submit(core.new("p", owner="ada", step_name="pay"))
    core.wait(6.0)
    core.handle(WorkerReady(WorkerId(0, 1)))
    core.answer("p", DONE)

    found = core.one("actorproc.step").attributes
    parts = ("number", "attempt", "replayed", "name", "outcome")
    assert [found[f"actorproc.step.{name}"] for name in parts] == [1, 1, False, "pay", "done"]
    assert (found["actorproc.worker.slot"], found["actorproc.worker.incarnation"]) == (0, 1)
    assert found["actorproc.step.queued"] == 6.0
    whole = core.one("actorproc.procedure").attributes
    assert whole["actorproc.procedure.owner"] == "ada"
    assert "process.pid" not in whole  # which would be the manager's


def test_a_death_has_the_facts_of_its_report():
    core = TracedCore()
    core.submit(core.new("p"))
    report = CrashReport(kind="exit", message="exited with 3", code=3, peak_rss=4096)
    core.handle(WorkerLost(WorkerId(0, 1), report))
    core.handle(WorkerReady(WorkerId(0, 2)))
    core.answer("p", DONE)

    found = core.named("actorproc.step")[0].attributes
    assert [found[f"actorproc.crash.{name}"] for name in ("kind", "code", "peak_rss")] == ["exit", 3, 4096]


def test_the_page_lists_every_attribute_and_every_kind_of_wait():
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "actorproc" / "telemetry").glob("*.py"))
    page = (ROOT / "docs" / "reference" / "managers" / "telemetry.md").read_text(encoding="utf-8")
    told, above = set(), ""
    for name in re.findall(
        r"`((?:actorproc|process|error)?\.[a-z_.]+)`", page.partition("### Attributes")[2].split("###")[0]
    ):
        above = above if name.startswith(".") else name.rpartition(".")[0]
        told.add(above + name if name.startswith(".") else name)

    assert set(re.findall(r'"(actorproc\.[a-z]+\.[a-z_.]+|process\.pid)"', source)) == told - {"error.type"}
    (kinds,) = re.findall(r"a wait of 100 ms or more: (.*?) \|", page)
    assert set(re.findall(r"`(\w+)`", kinds)) == set(re.findall(r'return \(?"(\w+)", \{', source)) | {"timer"}


# ---------------------------------------------------------------------- links
def test_the_step_that_a_signal_woke_is_linked_to_its_sender():
    core = TracedCore()
    core.submit(core.new("w"))
    core.answer("w", Waited(state=b"1", event="go", timeout=None))
    core.handle(Signalled("w", b"x", 2, trace=SENDER))
    core.answer("w", Advanced(state=b"2"))
    core.answer("w", DONE)

    assert [span.links for span in core.named("actorproc.step")] == [(), (SENDER,), ()]


def test_a_signal_that_was_kept_links_too_also_after_a_restart():
    core = TracedCore()
    core.submit(core.new("w"))
    core.handle(Signalled("w", b"x", 2, trace=SENDER))
    again = core.restarted()
    again.answer("w", Waited(state=b"1", event="go", timeout=None))
    last = again.restarted()
    last.answer("w", DONE)

    assert SENDER in last.named("actorproc.step")[-1].links


def _woken(core):
    core.submit(core.new("w"))
    core.answer("w", Waited(state=b"1", event="go", timeout=None, unit="u"))
    core.handle(Signalled("w", b"x", 2, trace=SENDER))


def test_a_step_that_takes_the_place_of_the_one_that_a_signal_woke_is_linked_to_its_sender():
    core = TracedCore(rollback_supported=True)
    _woken(core)
    core.answer("w", Advanced(state=b"2", placed=True))
    core.answer("w", Advanced(state=b"3"))
    core.answer("w", DONE)

    assert [span.links for span in core.named("actorproc.step")] == [(), (SENDER,), ()]


def test_an_undo_is_not_linked_to_the_sender_of_the_signal_that_woke_the_step_that_failed():
    core = TracedCore(rollback_supported=True)
    _woken(core)
    core.answer("w", boom())
    assert core.undo_all() == ["w:u"]

    assert [span.links for span in core.named("actorproc.step")] == [(), (SENDER,)]
    assert core.one("actorproc.undo").links == ()


def test_children_that_are_left_behind_have_traces_of_their_own_with_a_link():
    core = TracedCore(workers=2)
    core.submit(core.new("p"))
    core.answer("p", _suspended(core, "kept", on_parent_end="leave", wait="any"))
    core.answer("kept", DONE)
    core.answer("p", DONE)

    kept, parent = core.named("actorproc.procedure")
    assert kept.context[:16] != ABOVE[:16]
    assert kept.context[16:24] == bytes(8)
    assert kept.links == (ABOVE[:16] + parent.span + b"\x01",)


def test_each_generation_is_a_trace_of_its_own_linked_to_the_last():
    core = TracedCore()
    core.submit(core.new("loop"))
    core.wait(1.0)
    core.answer("loop", _again(core))
    core.wait(1.0)
    core.answer("loop", _again(core))
    core.wait(1.0)
    core.answer("loop", DONE)

    first, second, third = core.named("actorproc.procedure")
    assert [(span.start, span.end) for span in (first, second, third)] == [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]
    assert len({span.context[:16] for span in (first, second, third)}) == 3
    assert first.context == ABOVE
    assert second.links == (first.context[:16] + first.span + b"\x01",)
    assert third.links == (second.context[:16] + second.span + b"\x01",)
    assert [span.attributes["actorproc.step.number"] for span in core.named("actorproc.step")] == [1, 1, 1]
    assert {span.context[:16] for span in core.named("actorproc.step")} == {
        span.context[:16] for span in (first, second, third)
    }


def test_a_run_after_a_retry_is_linked_to_the_run_before():
    core = TracedCore()
    core.submit(core.new("p"))
    core.answer("p", boom())
    core.wait(100.0)
    core.handle(RetryRequested("p", 2))
    core.wait(1.0)
    core.answer("p", DONE)

    first, second = core.named("actorproc.procedure")
    assert (second.start, second.end) == (100.0, 101.0)
    assert second.links == (first.context[:16] + first.span + b"\x01",)
    assert (first.error is None, second.error is None) == (False, True)


# ---------------------------------------------------------------------- not recorded
@pytest.mark.parametrize("trace", [None, Trace(ABOVE[:24] + b"\0")])
def test_who_is_not_sampled_has_no_spans_and_tells_its_steps_so(trace):
    core = TracedCore()
    core.submit(core.new("p", trace=trace))
    runs = [core.inbox["p"].trace]
    core.answer("p", _suspended(core, "c"))
    runs.append(core.inbox["c"].trace)
    core.answer("c", DONE)
    core.answer("p", DONE)

    assert core.spans == []
    if trace is None:
        assert runs == [b"", b""]
    else:
        assert {context[:16] for context in runs} == {ABOVE[:16]}
        assert {context[24] for context in runs} == {0}


def test_what_is_forgotten_costs_details_and_no_span():
    core = TracedCore()
    core.submit(core.new("p"))
    core.answer("p", Advanced(state=b"1"))
    core.timeline.forget()
    core.answer("p", later(after=0.0))
    core.timeline.forget()
    core.handle(Tick())
    core.timeline.forget()
    core.answer("p", DONE)

    assert [span.attributes["actorproc.step.number"] for span in core.named("actorproc.step")] == [1, 2, 2]
    assert len({span.span for span in core.spans}) == len(core.spans)
    core.one("actorproc.procedure")


def test_a_submit_of_an_id_that_exists_begins_no_trace():
    core = TracedCore()
    core.submit(core.new("p", fresh=False))
    core.handle(Submitted((core.new("p", trace=Trace(SENDER)),), reply=9))
    core.answer("p", DONE)

    assert core.one("actorproc.procedure").context == ABOVE
