"""Contexts over processes: clients, signals, calls of executors, steps that submit, and workers on hosts."""

from __future__ import annotations

import asyncio
import time

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

from actorproc import ProcedureClient, ProcedureExecutor, Saga, Status, step
from actorproc.telemetry import Tracing
from tests.kit.on_hosts import on_a_host
from tests.kit.procedures import Order
from tests.kit.waiting import wait_until
from tests.telemetry.test_spans_of_steps import Deadly, Instrumented

__all__ = ["on_a_host"]


class Approval(Saga):
    @step
    def ask(self, ctx):
        return Status.wait("approved")

    @step
    def go_on(self, ctx):
        return ctx.event


class Threaded(Saga):
    """Says which trace it finds, while others run on other threads of its worker."""

    @step
    def only(self, ctx):
        found = []
        for _ in range(5):
            found.append(trace.get_current_span().get_span_context().span_id)
            time.sleep(0.005)
        return len(set(found)), found[0]


class Awaiting(Saga):
    """Says which spans it finds, in its task and on a thread, while others run on the loop of its worker."""

    @step
    async def only(self, ctx):
        found = set()
        for _ in range(5):
            found.add(current_span_id())
            await asyncio.sleep(0.005)
        return [*found, await asyncio.to_thread(current_span_id)]


def current_span_id() -> int:
    return trace.get_current_span().get_span_context().span_id


def test_a_clients_span_is_above_what_it_submits(start, recording):
    manager = start()

    with ProcedureClient(manager._path, procedures=[Order]) as client, recording.request("web request") as request:
        client.run(Order("book"), "o")
        client.run(Order("pen"), "p")
    manager.stop()

    roots = recording.named("actorproc.procedure")
    assert {root.parent.span_id for root in roots} == {request.get_span_context().span_id}
    assert {span.context.trace_id for span in recording} == {request.get_span_context().trace_id}
    recording.check()


@pytest.mark.parametrize("from_client", [False, True], ids=["manager", "client"])
def test_a_signal_links_the_step_that_it_wakes_to_its_sender(start, recording, from_client):
    manager = start()
    handle = manager.submit(Approval(), "a")
    wait_until(lambda: handle.info().phase == "waiting")

    with ProcedureClient(manager._path) as client, recording.request("clerk") as clerk:
        (client if from_client else manager).signal("a", "yes")
    assert handle.result(timeout=30) == "yes"
    manager.stop()

    woken = recording.one("actorproc.step", step_name="go_on")
    assert [link.context.span_id for link in woken.links] == [clerk.get_span_context().span_id]
    assert woken.context.trace_id != clerk.get_span_context().trace_id


def test_a_client_of_a_manager_that_traces_nothing_leaves_no_trace(start, recording, tmp_path):
    from actorproc import ProcedureManager
    from tests.kit.managers import LIGHT

    with (
        ProcedureManager(tmp_path / "other", procedures=[Order], workers=1, **LIGHT) as manager,
        ProcedureClient(tmp_path / "other", procedures=[Order]) as client,
        recording.request(),
    ):
        client.run(Order("book"), "o")

        assert manager._running().store.procedure("o").past is None


def test_calls_of_an_executor_are_below_the_span_of_each_caller(start, recording):
    manager = start()

    spans = []
    with ProcedureExecutor(manager) as executor:
        futures = []
        for name in ("one", "two"):
            with recording.request(name) as request:
                spans.append(request.get_span_context())
                futures.append(executor.submit(current_span_id))
        inside = [future.result(timeout=30) for future in futures]
    manager.stop()

    calls = recording.named("actorproc.procedure")
    assert sorted(call.parent.span_id for call in calls) == sorted(span.span_id for span in spans)
    assert sorted(inside) == sorted(span.context.span_id for span in recording.named("actorproc.step"))
    recording.check()


def test_steps_on_threads_of_one_worker_each_have_their_own_context(start, recording):
    from actorproc import Limits

    manager = start()

    handles = manager.submit_many([Threaded() for _ in range(8)], limits=Limits(threads=8))
    found = dict(zip([handle.id for handle in handles], [handle.result(timeout=30) for handle in handles], strict=True))
    manager.stop()

    for span in recording.named("actorproc.step"):
        assert tuple(found[span.attributes["actorproc.procedure.id"]]) == (1, span.context.span_id)


def test_async_steps_of_one_worker_each_have_the_context_of_their_task(start, recording):
    manager = start()

    handles = manager.submit_many([Awaiting() for _ in range(8)])
    found = dict(zip([handle.id for handle in handles], [handle.result(timeout=30) for handle in handles], strict=True))
    manager.stop()

    for span in recording.named("actorproc.step"):
        assert tuple(found[span.attributes["actorproc.procedure.id"]]) == (span.context.span_id, span.context.span_id)
    assert len(recording.named("actorproc.step")) == 8


@pytest.mark.usefixtures("on_a_host")
def test_workers_on_a_host_have_the_context_and_deaths_there_have_spans(start, recording):
    manager = start()

    trace_id, above, _ = manager.run(Instrumented(), "i")
    assert manager.run(Deadly(1), "d") == 2
    manager.stop()

    attempt = recording.one("actorproc.step", procedure_id="i")
    assert (f"{attempt.context.trace_id:032x}", f"{attempt.context.span_id:016x}") == (trace_id, above)
    killed, again = recording.named("actorproc.step", procedure_id="d", step_name="second")
    assert "killed by signal 9 (SIGKILL)" in killed.status.description
    assert again.status.status_code is StatusCode.UNSET
    recording.check()


def test_steps_of_what_is_not_sampled_run_below_a_span_that_is_not_recorded(start):
    manager = start(tracing=Tracing(TracerProvider(ALWAYS_OFF, shutdown_on_exit=False)))

    first = manager.run(Flags())
    second = manager.run(Flags())

    assert (first[1], second[1]) == (0, 0)
    assert len({first[0], second[0], 0}) == 3
    assert manager._running().store.procedure(manager.list()[0].id).past is None


class Flags(Saga):
    """Gives the current trace and its flags."""

    @step
    def only(self, ctx):
        context = trace.get_current_span().get_span_context()
        return context.trace_id % 1_000_000_007, int(context.trace_flags)
