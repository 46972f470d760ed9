"""Lifecycle events to logs and hooks, and the counters."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import Config, LockKey, Procedure, RetryLater, RetryPolicy, Status, WorkerEvent
from actorproc.engine.callers.event_hooks import EventHooks
from actorproc.model.states import Phase, ProcedureState
from actorproc.report.changes import ProcedureEvent
from actorproc.report.metrics import Histogram
from actorproc.store.memory import MemoryStore
from tests.catalogue.kit import on_threads
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes


@dataclass
class Part(Procedure):
    def execute(self, ctx):
        return Status.done()


@dataclass
class Whole(Procedure):
    rollback_supported = True
    retry = RetryPolicy(max_attempts=5, base=0.001, jitter=0.0)
    fails: bool = False
    stage: int = 0

    def execute(self, ctx):
        self.stage += 1
        if self.stage == 1:
            return Status.suspended([Part()])
        if self.stage == 2 and ctx.attempt == 1:
            raise RetryLater(after=0.001)
        if self.fails:
            raise ValueError("it broke")
        return Status.done()

    def rollback(self, ctx):
        return None


@dataclass
class Spoils(Procedure):
    """Cannot be undone, so its key stays poisoned."""

    rollback_supported = True
    rollback_retry = RetryPolicy(max_attempts=1)

    def lock_keys(self):
        return [LockKey.write("shelf/4")]

    def execute(self, ctx):
        raise ValueError("it broke")

    def rollback(self, ctx):
        raise ValueError("and cannot be mended")


@dataclass
class DiesOnce(Procedure):
    folder: str

    def execute(self, ctx):
        place = Path(self.folder, "died")
        if not place.exists():
            place.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Status.done()


@dataclass
class Wants(Procedure):
    key: str

    def lock_keys(self):
        return [LockKey.write(self.key)]

    def execute(self, ctx):
        return Status.wait(f"open {ctx.id}") if ctx.event is None else Status.done()


class Hook:
    """Keeps what it is called with."""

    def __init__(self):
        self.events = []
        self.threads = set()

    def __call__(self, event):
        self.events.append(event)
        self.threads.add(threading.current_thread().name)

    def kinds(self, id):
        return [event.kind for event in self.events if event.id == id]

    def until(self, id, kind):
        wait_until(lambda: kind in self.kinds(id))
        return self.kinds(id)


def test_a_hook_hears_of_each_moment_in_order(open_manager):
    hook = Hook()
    manager = open_manager(workers=1, on_event=hook)

    manager.submit(Whole(), "good").result(30)
    manager.submit(Whole(fails=True), "bad").wait(30)
    manager.submit(Spoils(), "ugly").wait(30)

    assert hook.until("good", "succeeded") == ["submitted", "started", "suspended", "retrying", "succeeded"]
    assert hook.until("bad", "rolled-back")[-2:] == ["rolling-back", "rolled-back"]
    assert {"poisoned", "failed"} <= set(hook.until("ugly", "failed"))
    poisoned = next(event for event in hook.events if event.kind == "poisoned")
    assert poisoned.key == "shelf/4"
    assert (poisoned.type_name.rpartition(".")[2], poisoned.step, poisoned.attempt) == ("Spoils", 1, 1)
    retrying = next(event for event in hook.events if event.kind == "retrying")
    assert retrying.error.type_name.endswith("RetryLater")
    part = next(event for event in hook.events if event.parent == "good")
    assert (part.kind, part.root) == ("submitted", "good")
    assert hook.threads == {"actorproc-courier"}
    with pytest.raises(AttributeError):
        retrying.kind = "succeeded"
    assert json.loads(json.dumps(retrying.to_dict()))["kind"] == "retrying"


def test_what_a_hook_raises_is_logged_and_hurts_nobody(open_manager, caplog):
    def hook(event):
        raise RuntimeError("the dashboard is down")

    manager = open_manager(workers=1, on_event=hook)
    with caplog.at_level(logging.ERROR, "actorproc.events"):
        manager.submit(Part(), "one").result(30)
        manager.submit(Part(), "two").result(30)
        wait_until(lambda: "succeeded" in caplog.text)

    assert "the dashboard is down" in caplog.text
    assert manager.health().ok


def test_a_hook_hears_of_a_worker_that_dies_in_a_step_and_of_one_that_dies_idle(open_manager, tmp_path):
    hook = Hook()
    manager = open_manager(workers=1, on_event=hook)

    manager.submit(DiesOnce(str(tmp_path)), "mortal").result(30)
    idle = wait_until(lambda: next((worker for worker in manager.workers() if worker.state == "idle"), None))
    os.kill(idle.pid, signal.SIGABRT)
    wait_until(lambda: [event.kind for event in hook.events].count("worker-died") == 2)
    manager.stop()

    in_step, at_rest = (event for event in hook.events if isinstance(event, WorkerEvent))
    assert (in_step.slot, in_step.incarnation, in_step.cause, in_step.signal) == (0, 1, "signal", "SIGKILL")
    assert (in_step.id, in_step.step, in_step.attempt) == ("mortal", 1, 1)
    assert in_step.type_name.endswith("DiesOnce")
    assert str(in_step).endswith("killed by signal 9 (SIGKILL)")
    assert (at_rest.pid, at_rest.signal, at_rest.id, at_rest.step) == (idle.pid, "SIGABRT", None, None)
    assert json.loads(json.dumps(at_rest.to_dict()))["kind"] == "worker-died"
    assert hook.kinds("mortal")[:3] == ["submitted", "started", "worker-died"]


def test_a_hook_hears_of_a_recycled_worker_and_of_a_slot_that_is_parked_and_comes_back(open_manager):
    hook = Hook()
    config = Config(restart_limit=1, spares=0, parked_for=0.1, recycle_steps=1)
    manager = open_manager(workers=1, on_event=hook, config=config)

    def kinds():
        return [event.kind for event in hook.events if isinstance(event, WorkerEvent)]

    manager.submit(Part()).result(30)
    wait_until(lambda: kinds() == ["worker-recycled"])
    idle = wait_until(lambda: next((worker for worker in manager.workers() if worker.state == "idle"), None))
    os.kill(idle.pid, signal.SIGABRT)
    wait_until(lambda: "worker-recovered" in kinds())
    manager.stop()

    assert kinds() == ["worker-recycled", "worker-died", "worker-parked", "worker-recovered"]
    parked = next(event for event in hook.events if event.kind == "worker-parked")
    assert (parked.slot, parked.pid, parked.signal) == (0, None, "SIGABRT")


def test_dead_workers_are_log_lines_with_structured_facts(open_manager, caplog, tmp_path):
    with caplog.at_level(logging.WARNING, "actorproc.events"):
        manager = open_manager(workers=1)
        manager.submit(DiesOnce(str(tmp_path)), "mortal").result(30)
        wait_until(lambda: any(getattr(record, "event", "") == "worker-died" for record in caplog.records))

    line = next(record for record in caplog.records if getattr(record, "event", "") == "worker-died")
    assert (line.levelno, line.procedure, line.signal, line.slot) == (logging.WARNING, "mortal", "SIGKILL", 0)


def test_a_hook_that_hangs_holds_nobody_up_and_what_does_not_fit_is_counted():
    errands = []
    heard = []
    sink = EventHooks(heard.append, errands.append, bound=3)

    for number in range(5):
        sink.put(event_of("submitted", str(number)))

    assert len(errands) == 1
    assert sink.lost == 2
    errands[0]()
    assert [event.id for event in heard] == ["0", "1", "2"]
    sink.put(event_of("submitted", "5"))
    errands[1]()
    assert heard[-1].id == "5"


def event_of(kind, id):
    return ProcedureEvent(
        kind=kind,
        at=0.0,
        id=id,
        root=id,
        parent=None,
        type_name="T",
        state=ProcedureState.RUNNABLE,
        step=1,
        attempt=1,
    )


def test_events_are_log_lines_with_structured_facts(open_manager, caplog):
    with caplog.at_level(logging.DEBUG, "actorproc.events"):
        manager = open_manager(workers=1)
        manager.submit(Whole(fails=True), "bad").wait(30)
        wait_until(lambda: any(getattr(record, "event", "") == "rolled-back" for record in caplog.records))

    lines = [record for record in caplog.records if record.name == "actorproc.events" and record.procedure == "bad"]
    assert [record.event for record in lines][:3] == ["submitted", "started", "suspended"]
    last = lines[-1]
    assert (last.levelno, last.state, last.error) == (logging.WARNING, "ROLLEDBACK", "ValueError: it broke")
    assert last.getMessage().startswith("rolled-back ")
    assert "bad" in last.getMessage()


class Shouts(Procedure):
    def execute(self, ctx):
        raise ValueError("it broke\n2026-01-01 CRITICAL forged \x1b[2J")


def test_an_event_is_one_line_whatever_an_error_says(caplog):
    with caplog.at_level(logging.DEBUG, "actorproc.events"), on_threads(MemoryStore(), (Shouts,)) as manager:
        manager.submit(Shouts(), "loud").wait(30)
        wait_until(lambda: any(getattr(record, "event", "") == "failed" for record in caplog.records))

    lines = [record.getMessage() for record in caplog.records if record.name == "actorproc.events"]
    assert lines[-1].endswith(r"ValueError: it broke\n2026-01-01 CRITICAL forged \x1b[2J")
    assert all(line.isprintable() for line in lines)


def test_by_default_only_troubles_are_logged(open_manager, caplog):
    manager = open_manager(workers=1)
    manager.submit(Whole(), "good").result(30)
    manager.submit(Whole(fails=True), "bad").wait(30)
    wait_until(lambda: any(record.name == "actorproc.events" for record in caplog.records))

    assert [record.event for record in caplog.records if record.name == "actorproc.events"] == ["rolled-back"]


def test_unfinished_roots_are_told_as_recovered_after_a_restart():
    store = MemoryStore()
    with on_threads(store, (Wants,)) as manager:
        manager.submit(Wants("a"), "job")
        wait_until(lambda: manager.info("job").phase is Phase.WAITING)

    hook = Hook()
    manager = on_threads(store.clone(), (Wants,))
    with manager as running:
        running.stop()
        running._on_event = hook
        running.start()
        hook.until("job", "recovered")


def test_metrics_count_what_became_of_procedures_and_steps(open_manager, tmp_path):
    manager = open_manager(workers=1)
    for handle in manager.submit_many([Part() for _ in range(5)]):
        handle.result(30)
    manager.submit(Whole(), "good").result(30)
    manager.submit(Whole(fails=True), "bad").wait(30)
    manager.submit(Spoils(), "ugly").wait(30)
    manager.submit(DiesOnce(str(tmp_path)), "mortal").result(30)

    metrics = manager.metrics()

    by_name = {name.rpartition(".")[2]: counts for name, counts in metrics.procedures.items()}
    steps = {name.rpartition(".")[2]: counts for name, counts in metrics.steps.items()}
    whole = by_name["Whole"]
    assert (whole.submitted, whole.succeeded, whole.failed, whole.rolledback) == (2, 1, 0, 1)
    assert (by_name["Part"].submitted, by_name["Part"].succeeded, by_name["Part"].rolledback) == (7, 7, 0)
    assert (by_name["Spoils"].submitted, by_name["Spoils"].failed) == (1, 1)
    assert steps["Part"].run >= 7
    assert (steps["DiesOnce"].crashed, steps["DiesOnce"].retried) == (1, 1)
    assert steps["Whole"].failed >= 3
    assert steps["Whole"].seconds.count == steps["Whole"].run
    assert metrics.replayed >= 1
    assert metrics.worker_restarts == 1
    assert metrics.commits == metrics.commit_seconds.count > 0
    assert metrics.batch_writes.sum > metrics.batch_events.sum > 0
    assert metrics.commit_seconds.quantile(0.5) > 0
    assert metrics.store_bytes >= metrics.store_used_bytes > 0
    assert metrics.store_procedures == 11
    assert json.loads(json.dumps(metrics.to_dict()))["commits"] == metrics.commits


def test_waits_for_locks_are_measured(open_manager, until):
    manager = open_manager(workers=1)
    manager.submit(Wants("a"), "first")
    until(lambda: manager.info("first").phase is Phase.WAITING)
    second = manager.submit(Wants("a"), "second")
    until(lambda: manager.metrics().lock_waiting == 1)
    assert manager.metrics().lock_waits.count == 0

    manager.signal("first", "go")
    until(lambda: manager.info("second").phase is Phase.WAITING)
    manager.signal("second", "go")
    second.result(30)

    metrics = manager.metrics()
    assert (metrics.lock_waiting, metrics.lock_waits.count) == (0, 1)
    assert metrics.lock_waits.sum > 0


SAMPLE = re.compile(r'^(actorproc_[a-z_]+)(\{(?:[a-z]+="(?:[^"\\]|\\.)*",?)*\})? (-?[0-9.e+-]+|NaN)$')


def test_the_text_for_prometheus_is_well_formed(open_manager):
    manager = open_manager(workers=1)
    manager.submit(Part(), "one").result(30)

    text = manager.metrics(whole=True).prometheus()

    assert text.endswith("\n")
    kinds, samples = {}, Counter()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            match = SAMPLE.match(line)
            assert match is not None, line
            base = re.sub(r"_(bucket|sum|count)$", "", match[1])
            assert match[1] in kinds or kinds.get(base) == "histogram"
            samples[line.rpartition(" ")[0]] += 1
    assert max(samples.values()) == 1
    assert {"counter", "gauge", "histogram"} == set(kinds.values())
    assert re.search(r'actorproc_procedures_total\{type="[^"]*Part",event="succeeded"\} 1\n', text)
    assert 'le="+Inf"' in text


def test_a_histogram_tells_in_which_bucket_a_part_is_reached():
    histogram = Histogram(bounds=(1.0, 10.0), counts=(8, 1, 1), sum=30.0)

    assert histogram.count == 10
    assert (histogram.quantile(0.5), histogram.quantile(0.9), histogram.quantile(1.0)) == (1.0, 10.0, float("inf"))
    empty = Histogram(bounds=(1.0,), counts=(0, 0), sum=0.0)
    assert empty.quantile(0.5) != empty.quantile(0.5)
