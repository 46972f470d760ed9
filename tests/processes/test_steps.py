"""A worker boots, runs steps and answers them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import cloudpickle
import msgspec
import pytest
from pool_listener import Listener, is_gone
from steps_under_test import Count, Do, Parent, SlowToLoad, WithChild

from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.messages.outcomes import Advanced, Answered, Failed, Finished, Refused, Suspended
from actorproc.model.policies import TypeMeta
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.authoring.status import Status
from actorproc.workers.base import WorkerBooted
from actorproc.workers.protocol.frames import (
    DEFAULT_MAX_FRAME,
    AbortAsked,
    Ask,
    Define,
    Definition,
    Ended,
    FrameError,
    LogLine,
    NeedState,
    Returned,
    Run,
    StepAnswer,
    TakeBackSteps,
)
from tests.kit.waiting import wait_until


def warm(run: Run, number: int) -> Run:
    token = msgspec.structs.replace(run.token, step=number)
    return msgspec.structs.replace(run, token=token, state=None)


def test_a_worker_says_ready_with_its_own_pid(host: Listener) -> None:
    worker = host.boot()

    assert host.pid(worker) not in (0, os.getpid())


def test_messages_sent_before_ready_arrive_after_it(host: Listener) -> None:
    worker = WorkerId(0, 1)
    host.pool.launch(worker)
    host.start(worker, Do("nothing"))

    host.next_event(WorkerBooted, worker)
    assert isinstance(host.next_message(Ended, worker).outcome, Finished)


def test_a_live_procedure_goes_on_without_its_state_being_sent_again(host: Listener) -> None:
    worker = host.boot()
    run = host.start(worker, Count(3))
    assert isinstance(host.next_message(Ended, worker).outcome, Advanced)

    host.pool.send(worker, [warm(run, 2)])
    host.next_message(Ended, worker)
    host.pool.send(worker, [warm(run, 3)])

    assert isinstance(host.next_message(Ended, worker).outcome, Finished)


def test_a_worker_without_the_live_object_asks_for_the_state(host: Listener) -> None:
    worker = host.boot()
    run = host.start(worker, Count(1))
    host.next_message(Ended, worker)

    host.pool.send(worker, [warm(run, 2)])

    assert host.next_message(NeedState, worker).token == warm(run, 2).token


def test_a_failed_step_leaves_nothing_in_memory(host: Listener) -> None:
    worker = host.boot()
    run = host.start(worker, Do("sys_exit"))
    outcome = host.next_message(Ended, worker).outcome
    assert isinstance(outcome, Failed)
    assert "SystemExit" in outcome.error.type_name

    host.pool.send(worker, [warm(run, 1)])

    host.next_message(NeedState, worker)


def test_the_least_recently_used_procedure_is_forgotten_first(listen) -> None:
    host = listen(warm_limit=2)
    worker = host.boot()
    runs = {}
    for name in ("a", "b"):
        runs[name] = host.start(worker, Count(9), name=name)
        host.next_message(Ended, worker)
    host.pool.send(worker, [warm(runs["a"], 2)])
    host.next_message(Ended, worker)
    host.start(worker, Count(9), name="c")
    host.next_message(Ended, worker)

    host.pool.send(worker, [warm(runs["b"], 2), warm(runs["a"], 3)])

    assert host.next_message(NeedState, worker).token.procedure == "b"
    assert host.next_message(Ended, worker).token.procedure == "a"


def test_steps_that_need_no_record_run_under_one_token(host: Listener) -> None:
    worker = host.boot()

    host.start(worker, Count(5, quiet=True))

    outcome = host.next_message(Ended, worker).outcome
    assert isinstance(outcome, Finished)
    assert outcome.steps == 5
    assert outcome.elapsed > 0


def test_to_load_a_state_is_part_of_the_steps_time(host: Listener) -> None:
    worker = host.boot()
    before = time.monotonic()

    host.start(worker, SlowToLoad())

    outcome = host.next_message(Ended, worker).outcome
    assert isinstance(outcome, Finished)
    assert 0.1 <= outcome.elapsed <= time.monotonic() - before


def test_a_suspended_parent_brings_its_childrens_class_once(host: Listener) -> None:
    worker = host.boot()

    host.start(worker, Parent(), name="first")
    first = host.next_message(Ended, worker)
    host.start(worker, Parent(), name="second")
    second = host.next_message(Ended, worker)

    assert isinstance(first.outcome, Suspended)
    assert len(first.outcome.children) == 2
    assert [definition.qualname for definition in first.definitions] == ["Count"]
    assert second.definitions == ()


def test_a_class_that_cannot_be_imported_refuses_its_own_procedures_only(host: Listener) -> None:
    worker = host.boot()
    run = host.step(worker, Count())
    meta = TypeMeta(type_name="broken_definition.Thing")
    broken = Definition(meta=meta, module="broken_definition", qualname="Thing")

    host.pool.send(worker, [Define(broken), msgspec.structs.replace(run, type_name="broken_definition.Thing")])
    outcome = host.next_message(Ended, worker).outcome

    assert isinstance(outcome, Refused)
    assert "this module is broken" in outcome.reason
    assert host.finish(worker, Count(1)) == 1


def test_a_type_the_worker_was_never_told_of_is_refused(host: Listener) -> None:
    worker = host.boot()

    host.pool.send(worker, [host.step(worker, Count())])

    outcome = host.next_message(Ended, worker).outcome
    assert isinstance(outcome, Refused)


def test_a_class_of_the_script_itself_travels_by_value(host: Listener) -> None:
    class Local(Procedure):
        def __init__(self) -> None:
            self.n = 1

        def execute(self, ctx):
            return Status.done(self.n + 1)

    worker = host.boot()

    assert host.finish(worker, Local()) == 2


def test_a_queued_step_is_given_back_while_the_first_runs(host: Listener, tmp_path: Path) -> None:
    worker = host.boot()
    first = host.start(worker, Do("wait_for", str(tmp_path / "go")), name="first")
    host.heartbeat(worker)
    second = host.start(worker, Do("nothing"), name="second")

    host.pool.send(worker, [TakeBackSteps((first.token, second.token))])
    assert host.next_message(Returned, worker).token == second.token
    (tmp_path / "go").touch()

    assert host.next_message(Ended, worker).token == first.token
    assert host.finish(worker, Count(1), name="third") == 1


def test_a_running_step_sees_that_an_abort_was_asked(host: Listener) -> None:
    worker = host.boot()
    run = host.start(worker, Do("wait_for_abort"))
    host.heartbeat(worker)

    host.pool.send(worker, [AbortAsked(run.token)])

    assert isinstance(host.next_message(Ended, worker).outcome, Finished)


def test_abort_is_asked_of_a_live_procedure(host: Listener) -> None:
    worker = host.boot()

    host.start(worker, Count(), mode=Mode.ASK_ABORT)

    outcome = host.next_message(Ended, worker).outcome
    assert isinstance(outcome, Answered)
    assert outcome.allowed


def test_a_note_is_answered_before_the_step_goes_on(host: Listener) -> None:
    worker = host.boot()
    run = host.start(worker, Do("remember", "key"))

    ask = host.next_message(Ask, worker)
    assert (ask.kind, ask.key, ask.token) == ("remember", "key", run.token)
    host.pool.send(worker, [StepAnswer(ask.request)])

    assert isinstance(host.next_message(Ended, worker).outcome, Finished)


def test_a_refused_request_fails_the_step_with_the_hosts_reason(host: Listener) -> None:
    worker = host.boot()
    host.start(worker, Do("remember", "key"))
    ask = host.next_message(Ask, worker)

    host.pool.send(worker, [StepAnswer(ask.request, error="the disk is full")])

    outcome = host.next_message(Ended, worker).outcome
    assert isinstance(outcome, Failed)
    assert "the disk is full" in outcome.error.message


def test_log_records_travel_with_the_step_that_wrote_them(host: Listener) -> None:
    worker = host.boot()
    run = host.start(worker, Do("log", "hello"))
    host.next_message(Ended, worker)

    lines = [message for message in host.inbox[worker] if isinstance(message, LogLine)]

    assert [line.text for line in lines] == ["hello", "hello, said the root logger"]
    assert {line.token for line in lines} == {run.token}


def test_an_output_that_is_too_long_fails_its_step(listen) -> None:
    host = listen(max_frame=1024 * 1024)
    worker = host.boot()

    host.start(worker, Do("big_output", "2"))

    outcome = host.next_message(Ended, worker).outcome
    assert isinstance(outcome, Failed)
    assert "cannot be sent" in outcome.error.message
    assert host.finish(worker, Count(1)) == 1


def test_a_class_is_announced_again_when_the_answer_that_brought_it_was_too_long(listen) -> None:
    host = listen(max_frame=64 * 1024)
    worker = host.boot()
    host.start(worker, WithChild(100_000), name="first")
    outcome = host.next_message(Ended, worker).outcome
    assert isinstance(outcome, Failed)
    assert "cannot be sent" in outcome.error.message

    host.start(worker, WithChild(10), name="second")

    assert [each.meta.type_name for each in host.next_message(Ended, worker).definitions] == [Do.type_name]


def test_a_message_that_is_too_long_is_refused_at_the_sender(listen) -> None:
    host = listen(max_frame=64 * 1024)
    worker = host.boot()

    with pytest.raises(FrameError, match="exceeds the maximum"):
        host.start(worker, Do("nothing", "x" * 100_000))


def test_a_frame_longer_than_the_default_reaches_a_worker_that_may_have_it(listen) -> None:
    host = listen(max_frame=DEFAULT_MAX_FRAME + 2**20)
    worker = host.boot()

    host.start(worker, Count(1), event=bytes(DEFAULT_MAX_FRAME))

    ended = host.next_message(Ended, worker)  # no frame ends it, though these bytes are no event
    assert isinstance(ended.outcome, Refused)


def test_megabytes_reach_a_busy_worker_without_blocking_the_sender(host: Listener, tmp_path: Path) -> None:
    worker = host.boot()
    pid = host.pid(worker)
    os.kill(pid, signal.SIGSTOP)

    began = time.monotonic()
    for number in range(10):
        host.start(worker, Do("nothing", "x" * 2_000_000), name=f"p{number}")
    sent = time.monotonic() - began
    os.kill(pid, signal.SIGCONT)

    assert sent < 2.0
    assert [host.next_message(Ended, worker).token.procedure for _ in range(10)] == [f"p{n}" for n in range(10)]


def test_what_a_step_did_to_the_process_is_undone_for_the_next(host: Listener, tmp_path: Path) -> None:
    worker = host.boot()
    before = host.finish(worker, Do("look_around"))

    host.finish(worker, Do("mess_up", str(tmp_path)))

    assert host.finish(worker, Do("look_around")) == before


@pytest.mark.parametrize("target", ["a file", "stderr"])
def test_a_stdout_that_a_step_put_elsewhere_is_back_for_the_next_step(
    host: Listener, tmp_path: Path, target: str
) -> None:
    worker = host.boot()
    before = host.finish(worker, Do("where_streams_go"))

    host.finish(worker, Do("redirect", str(tmp_path / "file") if target == "a file" else ""))

    assert before[0] != before[1]
    assert host.finish(worker, Do("where_streams_go")) == before


def test_a_step_may_fork_without_disturbing_the_channel(host: Listener) -> None:
    worker = host.boot()

    assert host.finish(worker, Do("fork")) == "forked"
    assert host.finish(worker, Count(1), name="q") == 1


def test_a_forked_copy_that_asks_the_host_is_refused_and_does_not_wait_for_ever(host: Listener) -> None:
    worker = host.boot()

    assert host.finish(worker, Do("ask_in_fork")) == 3
    assert host.finish(worker, Count(1), name="q") == 1


def test_closing_all_small_descriptors_does_not_hurt_the_worker(host: Listener) -> None:
    worker = host.boot()

    assert host.finish(worker, Do("close_files")) == "closed"
    assert host.finish(worker, Count(1), name="q") == 1


def test_a_worker_imports_neither_lmdb_nor_multiprocessing_nor_psutil(host: Listener) -> None:
    worker = host.boot()

    modules = set(host.finish(worker, Do("modules")))

    assert "pykka" in modules
    assert not modules & {"lmdb", "multiprocessing", "psutil", "asyncio"}


def test_a_worker_does_not_speak_to_systemd_in_the_hosts_name(listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/nowhere")
    monkeypatch.setenv("WATCHDOG_USEC", "1000")
    monkeypatch.setenv("KEPT", "yes")
    host = listen()
    worker = host.boot()

    names = host.finish(worker, Do("environment"))

    assert "KEPT" in names
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & set(names)


def test_the_environment_factory_runs_once_per_worker(listen) -> None:
    host = listen(environment=cloudpickle.dumps(lambda: ["made", "here"]))
    worker = host.boot()

    assert host.finish(worker, Do("env")) == ["made", "here"]


def test_a_stopped_worker_returns_its_queue_and_answers_its_step(host: Listener, tmp_path: Path) -> None:
    worker = host.boot()
    first = host.start(worker, Do("wait_for", str(tmp_path / "go")), name="first")
    host.heartbeat(worker)
    second = host.start(worker, Do("nothing"), name="second")

    host.pool.stop(worker)
    assert host.next_message(Returned, worker).token == second.token
    (tmp_path / "go").touch()

    died = host.died(worker)
    assert host.next_message(Ended, worker).token == first.token
    assert (died.report.kind, died.report.code) == ("stopped", 0)


def test_facts_show_what_each_worker_uses(host: Listener) -> None:
    workers = [host.boot(slot) for slot in range(2)]

    facts = host.pool.facts()

    assert set(facts) == set(workers)
    for fact in facts.values():
        assert fact.state == "idle"
        assert fact.rss is not None
        assert fact.rss > 1_000_000
        assert fact.cpu is not None


def test_closing_a_pool_ends_all_workers_in_order(listen, tmp_path: Path) -> None:
    host = listen(spares=1)
    idle, busy = host.boot(0), host.boot(1)
    host.start(busy, Do("wait_for", str(tmp_path / "never")))
    host.heartbeat(busy)
    pids = [host.pid(idle), host.pid(busy)]

    host.pool.close(0.3)

    assert host.died(idle).report.message == "stopped as asked"
    assert "did not stop in time" in host.died(busy).report.message
    for pid in pids:
        wait_until(lambda pid=pid: is_gone(pid))
    host.pool.close(0.3)


def test_tokens_of_returned_steps_are_the_ones_that_were_sent(host: Listener) -> None:
    worker = host.boot()
    stranger = StepToken(1, worker, "never-sent", 1, 1)

    host.pool.send(worker, [TakeBackSteps((stranger,))])

    assert host.finish(worker, Count(1)) == 1
    assert host.inbox[worker] == []
