"""Spans that a killed manager had stored and not given to the SDK are recorded by the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from actorproc.model.messages.events import Tick
from actorproc.model.messages.outcomes import Advanced, Finished, Suspended
from actorproc.store.memory import MemoryStore
from actorproc.telemetry.left_over import left_over
from actorproc.telemetry.mark import FILE, Marked, SpanMark
from tests.core.harness import boom, later
from tests.telemetry.traced_core import TracedCore


def _stored(core: TracedCore) -> tuple[MemoryStore, list]:
    store = MemoryStore()
    store.commit(core.writes, store.own())
    return store, list(store.load().procedures)


def _played(*, undone: bool = False) -> TracedCore:
    """Every kind of attempt, one a second."""
    core = TracedCore(workers=2, rollback_supported=True)
    core.submit(core.new("p", unit="a", step_name="one"))
    core.wait(1.0)
    core.answer("p", Advanced(state=b"1", unit="a", elapsed=0.5, step_name="two"))
    core.wait(1.0)
    core.answer("p", later(after=0.0))
    core.handle(Tick())
    core.wait(1.0)
    core.kill(0)
    core.wait(1.0)
    core.answer("p", Suspended(state=b"2", children=(core.new("c", trace=None, unit="u"),), step_name="three"))
    core.wait(1.0)
    core.answer("c", Finished(state=b"3"))
    core.wait(1.0)
    core.answer("p", boom() if undone else Finished(state=b"4"))
    while undone and core.inbox and any(run.unit is not None for run in core.inbox.values()):
        core.wait(1.0)
        core.undo_all()
    return core


@pytest.mark.parametrize("undone", [False, True])
@pytest.mark.parametrize("mark", [0.0, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 100.0])
def test_what_comes_after_the_mark_is_told_as_it_would_have_been(mark, undone):
    core = _played(undone=undone)
    store, heads = _stored(core)

    told = {span.span: span for span in left_over(store, heads, Marked(mark, 1))}

    wanted = {span.span: span for span in core.spans if span.end > mark and not span.name.startswith("actorproc.wait")}
    assert set(told) == set(wanted)
    for id, span in told.items():
        assert (span.name, span.end, span.error) == (wanted[id].name, wanted[id].end, wanted[id].error)
        assert span.context == wanted[id].context


@pytest.mark.parametrize("undone", [False, True])
def test_what_went_on_under_a_later_manager_is_left_to_that_one(undone):
    core = _played(undone=undone)
    store, heads = _stored(core)

    assert left_over(store, heads, Marked(0.0, 1)) != []
    assert left_over(store, heads, Marked(0.0, 0)) == []


def test_a_mark_is_there_after_the_process(tmp_path):
    mark = SpanMark(tmp_path)
    assert mark.found is None

    mark.move(1_800_000_000.25, 7)

    assert SpanMark(tmp_path).found == (1_800_000_000.25, 7)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("folder", [None, Path("/proc/none")])
def test_without_a_place_there_is_no_mark(folder):
    mark = SpanMark(folder)
    mark.move(5.0, 1)

    assert mark.found is None


@pytest.mark.parametrize("content", [b"", b"x" * 8, b"x" * 17, bytes(16), b"\xff" * 16])
def test_a_file_that_holds_no_mark_counts_as_none(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)

    mark = SpanMark(tmp_path)
    assert mark.found is None
    mark.move(5.0, 1)

    assert SpanMark(tmp_path).found == (5.0, 1)
