"""View models: what a screen or a page shows follows from reports alone."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from actorproc.model.rows.records import StepKind
from actorproc.model.states import Phase, ProcedureState
from actorproc.report.changes import DigestRow
from actorproc.ui.text import width_of, wrapped
from actorproc.ui.views.failures import failure_groups
from actorproc.ui.views.header import RateMeter, header_of, sparkline
from actorproc.ui.views.rows import SORTS, row_of, sorted_rows, told
from actorproc.ui.views.timeline import BAND_ROWS, bar_text, timeline_of
from actorproc.ui.views.tones import severity_of, tone_of
from actorproc.ui.views.wait_graph import graph_lines, wait_graph_of
from actorproc.ui.views.workers import WorkerMeter
from tests.ui.made import EVIL, NOW, attempt, error, health, info, lock, metrics, step, worker


# ---------------------------------------------------------------- rows
@pytest.mark.parametrize(
    ("fields", "why", "tone", "step_"),
    [
        ({}, "", "good", "1"),
        ({"step": 3, "step_name": "ship"}, "", "good", "3 ship"),
        ({"phase": "locked-out", "reason": "waits for write of 'a'"}, "waits for write of 'a'", "warn", "1"),
        ({"phase": "stuck", "error": error()}, "PriceError: no price", "bad", "1"),
        ({"phase": "retrying", "error": error(), "reason": "no price"}, "PriceError: no price", "warn", "1"),
        ({"phase": "parked", "error": error(), "reason": "its class is gone"}, "its class is gone", "bad", "1"),
        ({"state": "FAILED", "phase": "done", "error": error(), "step_name": "x"}, "PriceError: no price", "bad", "1"),
        ({"state": "SUCCESS", "phase": "done"}, "", "good", "1"),
        ({"message": "half of it"}, "half of it", "good", "1"),
    ],
)
def test_a_row_says_what_a_cell_has_room_for(fields, why, tone, step_):
    row = row_of(info(**fields))

    assert (row.why, row.tone, row.step, row.type_name) == (why, tone, step_, "Order")


def test_a_row_of_hostile_words_is_one_harmless_line():
    row = row_of(info(reason=EVIL, phase="waiting"))

    assert "\n" not in row.why
    assert not set("\x1b\x9b\u202e\u2066\u200b\r\U000e0041") & set(row.why)
    assert row.why.startswith("[bold red]evil[/] ")


def test_rows_are_sorted_by_trouble_and_by_each_other_order():
    rows = [
        row_of(info("fine", created_at=NOW - 5, attempt=1)),
        row_of(info("stuck", phase="stuck", created_at=NOW - 9, attempt=7)),
        row_of(info("failed", state="FAILED", phase="done", created_at=NOW - 1, type_name="shop.Abc")),
        row_of(info("waits", state="WAITING", phase="waiting", created_at=NOW - 3, updated_at=NOW)),
    ]
    orders = {by: [row.id for row in sorted_rows(rows, by)] for by in SORTS}

    assert orders == {
        "trouble": ["stuck", "failed", "fine", "waits"],
        "newest": ["failed", "waits", "fine", "stuck"],
        "oldest": ["stuck", "fine", "waits", "failed"],
        "changed": ["waits", "failed", "fine", "stuck"],
        "attempts": ["stuck", "failed", "fine", "waits"],
        "type": ["failed", "fine", "stuck", "waits"],
        "id": ["failed", "fine", "stuck", "waits"],
    }


def test_every_phase_and_state_has_a_place_in_the_order_and_trouble_comes_before_rest():
    placed = {phase: severity_of("RUNNABLE", phase) for phase in Phase}

    assert placed["stuck"] < placed["retrying"] < placed["locked-out"] < placed["running"] < placed["waiting"]
    assert severity_of("FAILED", "done") < severity_of("ROLLEDBACK", "done") < severity_of("SUCCESS", "done")
    assert max(placed[phase] for phase in Phase if phase is not Phase.DONE) < severity_of("SUCCESS", "done")
    assert {tone_of(str(state)) for state in ProcedureState} == {"plain", "good", "bad", "warn"}
    assert "plain" not in {tone_of(phase) for phase in Phase if phase is not Phase.DONE}


def digest_row(**fields):
    usual = {
        "id": "job",
        "root": "job",
        "state": ProcedureState.RUNNABLE,
        "phase": Phase.RUNNING,
        "step": 2,
        "attempt": 1,
    }
    return DigestRow(**(usual | fields))


def test_a_digest_changes_a_row_and_takes_a_reason_away_that_was_for_another_phase():
    row = row_of(info(phase="locked-out", reason="waits for a key"))

    runs = told(row, digest_row(step_name="pay", progress=0.5), NOW)
    ends = told(runs, digest_row(state=ProcedureState.SUCCESS, phase=Phase.DONE), NOW + 1)
    same = told(row, digest_row(phase=Phase.LOCKED_OUT, step=1), NOW)

    assert (runs.phase, runs.step, runs.why, runs.tone, runs.progress) == ("running", "2 pay", "", "good", 0.5)
    assert (ends.state, ends.step, ends.changed_at) == ("SUCCESS", "2", NOW + 1)
    assert same.why == "waits for a key"


# ---------------------------------------------------------------- workers
def test_the_processor_time_of_a_worker_is_a_part_of_a_core_since_the_look_before():
    meter = WorkerMeter()

    first = meter.rows([worker(1, cpu=4.0), worker(0, cpu=1.0)], 10.0)
    second = meter.rows([worker(0, cpu=1.5), worker(1, cpu=4.0), worker(2)], 11.0)
    replaced = meter.rows([worker(0, cpu=0.1, incarnation=2, pid=7)], 12.0)
    at_once = meter.rows([worker(0, cpu=0.2, incarnation=2, pid=7)], 12.0)

    assert [row.slot for row in first] == [0, 1]
    assert [row.cpu_percent for row in first] == [None, None]
    assert [row.cpu_percent for row in second] == [50.0, 0.0, None]
    assert [row.cpu_percent for row in replaced + at_once] == [None, None]


def test_the_row_of_a_worker_names_its_step_and_its_words_are_harmless():
    busy = worker(state="busy", procedure="job", type_name="shop.Order", step=3, step_name="ship", message=EVIL)
    (row,) = WorkerMeter().rows([busy], 1.0)

    assert (row.procedure, row.type_name, row.step, row.tone) == ("job", "Order", "3 ship", "good")
    assert "\x1b" not in row.message


# ---------------------------------------------------------------- header
def test_rates_are_those_between_two_looks_and_begin_anew_with_the_manager():
    meter = RateMeter()

    first = meter.take(metrics(uptime=10.0, ended=100, steps=500, commits=50))
    second = meter.take(metrics(uptime=12.0, ended=120, steps=600, commits=60))
    again = meter.take(metrics(uptime=12.0, ended=120, steps=600, commits=60))
    restarted = meter.take(metrics(uptime=0.5, ended=1, steps=1, commits=1))

    assert (first.ended, first.ended_series) == (0.0, ())
    assert (second.ended, second.steps, second.commits) == (10.0, 50.0, 5.0)
    assert again == second
    assert (restarted.ended, restarted.steps_series) == (0.0, ())


def spans_of(rates):
    return [(span.name, span.covers, span.ended, span.steps) for span in rates.spans]


def test_rates_of_longer_spans_cover_what_is_known_of_them():
    meter, late = RateMeter(), RateMeter()

    # Counts begin with the manager, so that its first minutes are known later too.
    assert spans_of(meter.take(metrics(uptime=600.0, ended=600, steps=1200, commits=1))) == [
        ("15 m", 600.0, 1.0, 2.0),
        ("1 h", 600.0, 1.0, 2.0),
    ]
    assert spans_of(meter.take(metrics(uptime=630.0, ended=690, steps=1200, commits=1))) == [
        ("1 m", 30.0, 3.0, 0.0),
        ("15 m", 630.0, 690 / 630, 1200 / 630),
        ("1 h", 630.0, 690 / 630, 1200 / 630),
    ]
    for uptime in range(640, 8000, 10):
        found = meter.take(metrics(uptime=float(uptime), ended=690, steps=uptime, commits=1))
    assert [(span.name, round(span.covers, -2), span.ended, span.steps) for span in found.spans] == [
        ("1 m", 100.0, 0.0, 1.0),
        ("15 m", 900.0, 0.0, 1.0),
        ("1 h", 3600.0, 0.0, 1.0),
    ]
    assert spans_of(late.take(metrics(uptime=9000.0, ended=5, steps=5, commits=5))) == []
    assert [name for name, *_ in spans_of(late.take(metrics(uptime=9001.0, ended=5, steps=5, commits=5)))] == [
        "1 m",
        "15 m",
        "1 h",
    ]
    assert spans_of(meter.take(metrics(uptime=30.0, ended=60, steps=0, commits=0)))[0] == ("1 m", 30.0, 2.0, 0.0)


def test_a_header_says_what_is_known_with_and_without_a_manager():
    live = header_of(
        pid=7,
        health=health("degraded", problems=("a slot is parked",)),
        metrics=metrics(),
        counts={"SUCCESS": 5, "WAITING": 2},
    )
    stopped = header_of(status="stopped", counts={"RUNNABLE": 1})
    hung = header_of(status="hung", pid=7, problems=("kill -CONT 7",))

    assert (live.status, live.tone, live.problems) == ("degraded", "bad", ("a slot is parked",))
    assert (live.workers, live.lock_waiting, live.store_bytes) == (4, 2, 1 << 21)
    assert (stopped.status, stopped.tone, stopped.counts) == ("stopped", "warn", {"RUNNABLE": 1})
    assert (hung.tone, hung.problems) == ("bad", ("kill -CONT 7",))
    assert header_of(health=health()).tone == "good"


@pytest.mark.parametrize(
    ("series", "width", "shown"),
    [
        ([], 5, ""),
        ([0, 0], 5, "▁▁"),
        ([0, 1, 2, 4, 8], 5, "▁▁▂▄█"),
        ([9, 9, 1, 8], 2, "▁█"),
        ([1.0], 0, ""),
    ],
)
def test_a_series_is_drawn_by_its_greatest_value(series, width, shown):
    assert sparkline(series, width) == shown


# ---------------------------------------------------------------- failures
def test_failures_are_grouped_by_type_step_and_error_the_largest_first():
    infos = [
        info("a", state="FAILED", phase="done", error=error(message="old"), finished_at=NOW - 9),
        info("b", state="FAILED", phase="done", error=error(message=EVIL), finished_at=NOW - 1),
        info("c", state="FAILED", phase="done", error=error(step_name="pay")),
        info("d", state="FAILED", phase="done", error=error("WorkerCrashed", "killed", signal="SIGSEGV")),
        info("e", phase="retrying", error=error("WorkerCrashed", "killed", signal="SIGSEGV"), updated_at=NOW),
        info("f"),
    ]
    groups = failure_groups(infos)

    assert [(g.type_name, g.step, g.error, g.count, g.ids) for g in groups] == [
        ("Order", "1", "SIGSEGV", 2, ("e", "d")),
        ("Order", "1", "PriceError", 2, ("b", "a")),
        ("Order", "pay", "PriceError", 1, ("c",)),
    ]
    assert "\x1b" not in groups[1].message


# ---------------------------------------------------------------- locks
def test_a_chain_of_locks_begins_with_the_holder_that_waits_for_nothing():
    graph = wait_graph_of([lock("a", "one", "two", "four"), lock("b", "two", "three"), lock("free", "five")])

    assert graph.roots == ("one",)
    assert graph.cycles == ()
    assert [line for line, _ in graph_lines(graph)] == [
        "one  holds a (write)",
        "├─ 1. for a (write): two  holds b (write)",
        "│  └─ 1. for b (write): three",
        "└─ 2. for a (write): four",
        "five  holds free (write)",
    ]
    assert [id for _, id in graph_lines(graph)] == ["one", "two", "three", "four", "five"]


@pytest.mark.parametrize("length", [2, 3, 7])
def test_a_circle_is_found_and_marked_and_drawn_once(length):
    names = [f"p{number}" for number in range(length)]
    table = [lock(f"k{place}", name, names[place - 1]) for place, name in enumerate(names)]
    graph = wait_graph_of([*table, lock("aside", "other", "waits")])
    lines = [line for line, _ in graph_lines(graph)]

    assert [set(cycle) for cycle in graph.cycles] == [set(names)]
    assert {edge.procedure for edge in graph.edges if edge.in_cycle} == set(names)
    assert lines[0].startswith("circle: ")
    assert sum("holds" in line and "(see above)" not in line for line in lines) == length + 1


def test_a_lock_whose_holder_waits_for_another_path_of_it_is_no_circle_of_one():
    graph = wait_graph_of([lock("a", "one", "one")])

    assert graph.cycles == ()


def test_a_chain_of_ten_thousand_is_no_trouble():
    graph = wait_graph_of([lock(f"k{number}", f"p{number}", f"p{number + 1}") for number in range(10_000)])

    assert graph.roots == ("p0",)
    assert len(list(graph_lines(graph))) < 200


# ---------------------------------------------------------------- timeline
def test_each_step_is_a_row_and_each_attempt_a_bar():
    steps = [step(1, started_at=None, finished_at=None), step(2, "reserve", 0, 1), step(3, "pay", 3, 4, attempts=3)]
    tries = [
        attempt(2, 1, 1, 1.5, error(), step_name="pay"),
        attempt(2, 2, 2, 2.5, error("WorkerCrashed", "died", signal="SIGKILL"), step_name="pay"),
    ]
    shown = timeline_of(info(step=3, step_name="ship", updated_at=NOW + 4), steps, tries, NOW + 8)

    assert [(row.number, row.name, [bar.kind for bar in row.bars]) for row in shown.rows] == [
        (1, "reserve", ["done"]),
        (2, "pay", ["failed", "crashed", "done"]),
        (3, "ship", ["running"]),
    ]
    assert (shown.start, shown.end) == (NOW, NOW + 8)
    assert bar_text(shown.rows[0], shown.start, shown.end, 8) == "██"
    assert bar_text(shown.rows[2], shown.start, shown.end, 8) == "    ▶▶▶▶"


def test_an_undo_is_a_row_of_its_own_and_what_waits_grows():
    undo = step(4, None, 2, 3, kind=StepKind.ROLLBACK, label="reserve", outcome="undone")
    shown = timeline_of(
        info(phase="sleeping", state="WAITING_TIMEOUT", step=9, reason="for a while"), [step(2), undo], [], NOW + 5
    )

    assert [(row.name, row.bars[0].kind) for row in shown.rows] == [
        ("", "waiting"),
        ("", "done"),
        ("undo reserve", "undone"),
    ]
    assert shown.rows[0].bars[0].words == "for a while"


def told_waits(timeline):
    return [(row.name, wait.cause, wait.start - NOW, wait.end - NOW) for row in timeline.rows for wait in row.waits]


SUBMITTED = {"at": NOW, "started_at": None, "finished_at": None, "outcome": "submitted"}


@pytest.mark.parametrize(
    ("fields", "locked_at", "waits"),
    [
        ({"locks": ()}, None, [("worker", 0, 4)]),
        ({"locks": (object(),)}, None, [("queue", 0, 4)]),
        ({"locks": (object(),)}, NOW + 3, [("lock", 0, 3), ("worker", 3, 4)]),
        ({"locks": (object(),)}, NOW - 3, [("worker", 0, 4)]),  # it had it from before
    ],
)
def test_the_wait_before_the_first_step_is_for_a_lock_or_a_worker(fields, locked_at, waits):
    steps = [step(1, **SUBMITTED), step(2, "read", 4, 5, outcome="done")]
    shown = timeline_of(info(phase="done", state="SUCCESS", **fields), steps, [], NOW + 5, locked_at)

    assert told_waits(shown) == [("read", *wait) for wait in waits]
    assert shown.start == NOW


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [("suspended", "children"), ("sleep", "timer"), ("wait", "event"), ("executing", "worker")],
)
def test_a_wait_between_steps_has_the_reason_of_the_step_before(outcome, cause):
    steps = [step(1, **SUBMITTED), step(2, "ask", 0, 1, outcome=outcome), step(3, "go", 7, 8, attempts=2)]
    tries = [attempt(2, 1, 4, 5, error(), step_name="go")]
    shown = timeline_of(info(phase="done", state="SUCCESS"), steps, tries, NOW + 8)

    assert told_waits(shown) == [("go", cause, 1, 4), ("go", "retry", 5, 7)]


@pytest.mark.parametrize(
    ("phase", "cause"),
    [("locked-out", "lock"), ("queued", "worker"), ("retrying", "retry"), ("suspended", "children"), ("waiting", "event"),
     ("sleeping", "timer"), ("paused", "paused"), ("parked", "parked"), ("running", None)],
)  # fmt: skip
def test_what_waits_now_says_for_what(phase, cause):
    shown = timeline_of(info(phase=phase, step=1), [step(1, **SUBMITTED)], [], NOW + 5)

    assert shown.rows[0].bars[-1].cause == cause
    assert shown.rows[0].waits == ()


def test_a_step_that_was_undone_is_marked():
    undo = step(4, None, 4, 5, kind=StepKind.ROLLBACK, label="reserve", outcome="undone")
    steps = [step(1, **SUBMITTED), step(2, "reserve", 0, 1), step(3, "pay", 1, 2, outcome="failed"), undo]
    shown = timeline_of(info(phase="done", state="ROLLEDBACK"), steps, [], NOW + 5)

    assert [(row.name, row.is_undone) for row in shown.rows] == [
        ("reserve", True),
        ("pay", False),
        ("undo reserve", False),
    ]
    assert told_waits(shown) == [("undo reserve", "worker", 2, 4)]


def test_a_killed_attempt_is_told_apart_from_a_crash():
    shown = timeline_of(info(phase="done", state="SUCCESS"), [], [attempt(1, 1, 0, 1, error(kind="killed"))], NOW)

    assert shown.rows[0].bars[0].kind == "killed"


def test_too_many_rows_become_bands_whose_counts_add_up():
    steps = [step(number + 2, None, number, number + 1) for number in range(BAND_ROWS + 1)]
    shown = timeline_of(info(phase="done", state="SUCCESS"), steps, [], NOW)

    assert shown.rows == ()
    assert sum(band.counts.get("done", 0) for band in shown.bands) == BAND_ROWS + 1


def test_a_timeline_of_nothing_and_of_an_instant_can_be_drawn():
    nothing = timeline_of(info(phase="done", state="SUCCESS"), [], [], NOW)
    instant = timeline_of(info(phase="done", state="SUCCESS"), [step(2, None, 0, 0)], [], NOW)

    assert nothing.rows == ()
    assert bar_text(instant.rows[0], instant.start, instant.end, 5) == "█████"
    assert bar_text(instant.rows[0], instant.start, instant.end, 0) == ""


# ---------------------------------------------------------------- lines
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=200), st.integers(20, 90))
def test_wrapped_lines_fit_and_lose_nothing_but_spaces(text, width):
    lines = wrapped(text, width)

    assert all(width_of(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_a_wrapped_line_of_a_tree_is_set_in_below_its_words():
    assert wrapped("   ⇒ actorproc abort flaky  # gives it up and undoes what it did", 40) == [
        "   ⇒ actorproc abort flaky  # gives it",
        "       up and undoes what it did",
    ]
