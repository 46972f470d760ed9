"""The live screen over looks that are made by hand: what is drawn at two sizes, and what each key does.

The drawings are kept as text in ``screens/``. After a wanted change, write them anew with ``ACTORPROC_SCREENS=write``.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from pathlib import Path

import pytest

from actorproc.cli.inspect.top import parsed_filter
from actorproc.ui.top import app as app_module
from actorproc.ui.top.app import TopApp
from actorproc.ui.top.look import Look, Wanted
from actorproc.ui.top.rendering import plain_look
from actorproc.ui.top.table import RowTable
from actorproc.ui.views.failures import failure_groups
from actorproc.ui.views.header import RateMeter, header_of
from actorproc.ui.views.rows import row_of
from actorproc.ui.views.wait_graph import graph_lines, wait_graph_of
from actorproc.ui.views.workers import WorkerMeter
from tests.ui.made import EVIL, NOW, error, health, host, info, lock, metrics, worker

SCREENS = Path(__file__).parent / "screens"
SIZES = [(80, 24), (150, 40)]
LONG = "evil" + "-:@." * 31


def infos():
    return [
        info("order-1", phase="stuck", error=error(message="the bank is gone"), attempt=9, errors=9),
        info("order-2", phase="locked-out", reason="waits for write of 'region/eu' held by order-9"),
        info("order-3", state="FAILED", phase="done", error=error("WorkerCrashed", "killed by signal 11", signal="SIGSEGV")),
        info("order-4", state="FAILED", phase="done", error=error(message="no price"), step=3, step_name="pay"),
        info("wide.17", state="WAITING", phase="waiting", reason="for the event 'paid'", type_name="shop.Leaf"),
        info(LONG, phase="retrying", error=error(message=EVIL), reason=EVIL, type_name="[red]Order", step_name="[b]x"),
        info("日本語-の-注文", state="SUCCESS", phase="done"),
    ]  # fmt: skip


def header(**fields):
    meter = RateMeter()
    for place in range(8):
        rates = meter.take(metrics(uptime=10.0 + place, ended=place * place, steps=9 * place, commits=5 * place))
    usual = {
        "pid": 4711,
        "health": health(busy=2),
        "metrics": metrics(uptime=4000.0),
        "rates": rates,
        "counts": {"RUNNABLE": 9_871, "WAITING": 2, "SUCCESS": 120_000, "FAILED": 2},
    }
    return header_of(**(usual | fields))


def workers():
    found = WorkerMeter()
    busy = {"state": "busy", "procedure": "order-9", "type_name": "shop.Order", "step": 2, "step_name": "pay"}
    for cpu in (1.0, 1.87):
        rows = found.rows(
            [
                worker(0, cpu=cpu, **busy, step_age=125.0, progress=0.4, message="42 of 105"),
                worker(1, cpu=3.0, **(busy | {"procedure": LONG}), step_age=0.5, progress=0.93, message=EVIL),
                worker(2, cpu=0.0),
            ],
            10.0 * cpu,
        )
    return tuple(rows)


def hosts():
    return (
        host(1, busy=8, labels=("gpu", "ssd"), resources={"gpu": 2.0}),
        host(2, state="silent", busy=3, silent_for=4.2, outstanding=3 << 20),
        host(3, state="draining", machine=EVIL, round_trip=None),
    )


class MadeSource:
    """Looks made by hand; remembers what was asked for."""

    def __init__(self, **fields):
        self.path = "state"
        self.asked: list[Wanted] = []
        self.closed = 0
        self.header = header(**fields)
        self.infos = infos()
        self.trouble = ""
        self.is_more = False
        self.hosts = ()

    def look(self, wanted):
        self.asked.append(wanted)
        found = Look(
            wanted=wanted, at=NOW, header=self.header, workers=workers(), hosts=self.hosts, trouble=self.trouble
        )
        rows = tuple(row_of(one) for one in self.infos)
        parts = {}
        match wanted.pane:
            case "now":
                parts = {"rows": rows[:3], "groups": tuple(failure_groups(self.infos))}
            case "procedures":
                shown = [
                    row
                    for row in rows
                    if wanted.text in row.id and wanted.filters.get("state", [row.state]) == [row.state]
                ]
                parts = {"rows": tuple(shown), "is_more": self.is_more}
            case "locks":
                graph = wait_graph_of(
                    [lock("region/eu", "order-9", "order-2"), lock("[red]k", "a", "b"), lock("k2", "b", "a")]
                )
                parts = {"lines": tuple(graph_lines(graph))}
            case "activity":
                parts = {
                    "lines": (
                        ("order-1  3s ago abort (by force) by ada: it hangs", "order-1"),
                        (f"order-2  {EVIL}", "order-2"),
                    )
                }
            case "procedure":
                parts = {
                    "lines": ((f"{wanted.detail} of {wanted.id}", ""), ("record 4, at pay: executing", ""), (EVIL, ""))
                }
                if wanted.detail == "state":
                    parts = {"lines": ((f"record {wanted.record or 4}: executing 3s ago", ""),)}
        return type(found)(**({name: getattr(found, name) for name in found.__struct_fields__} | parts))

    def close(self):
        self.closed += 1


def drawn(app):
    """The text on the screen, line by line."""
    strips = app.screen._compositor.render_strips(app.size)
    return "\n".join(strip.text.rstrip() for strip in strips)


@pytest.fixture(autouse=True)
def _clock_of_utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def play(source, keys=(), size=(80, 24), check=None, **options):
    """The screen after these keys: its text, and what `check` returns of the application."""

    async def run():
        app = TopApp(source, every=3600.0, parse=parsed_filter, **options)
        async with app.run_test(size=size) as pilot:
            await settled(app, pilot)
            for key in keys:
                await pilot.press(key)
                await settled(app, pilot)
            return drawn(app), check(app) if check is not None else None

    return asyncio.run(run())


async def settled(app, pilot):
    await pilot.pause()
    while app._is_asking or any(work.is_running for work in app.workers):
        await pilot.pause(0.01)
    await pilot.pause()


# ---------------------------------------------------------------- what is drawn
PANES = {
    "now": [],
    "procedures": ["2"],
    "locks": ["3"],
    "activity": ["4"],
    "procedure": ["2", "enter"],
    "steps": ["2", "enter", "e"],
    "help": ["question_mark"],
    "menu": ["2", "j", "x", "x", "a"],
    "question": ["2", "j", "x", "x", "a", "f"],
    "filter": ["2", "slash", *"--state FAILED"],
}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", PANES)
def test_a_pane_looks_as_it_did(name, size):
    keys = ["space" if key == " " else "minus" if key == "-" else key for key in PANES[name]]
    text, _ = play(MadeSource(), keys, size)

    kept = SCREENS / f"{name}-{size[0]}x{size[1]}.txt"
    if os.environ.get("ACTORPROC_SCREENS") == "write":
        kept.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == kept.read_text(encoding="utf-8")


def with_hosts():
    source = MadeSource(health=health(busy=11, hosts=hosts()))
    source.hosts = hosts()
    return source


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_hosts_have_a_pane(size):
    text, _ = play(with_hosts(), ["5"], size)

    kept = SCREENS / f"hosts-{size[0]}x{size[1]}.txt"
    if os.environ.get("ACTORPROC_SCREENS") == "write":
        kept.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == kept.read_text(encoding="utf-8")
    assert "3 hosts, 1 silent" in text or size[0] == 80
    assert re.search(r"h2 .*silent .*3/8", text)


@pytest.mark.parametrize("size", [(80, 24), (150, 40), (40, 12), (20, 6), (200, 60)])
@pytest.mark.parametrize(
    "keys", [[], ["2"], ["3"], ["4"], ["5"], ["2", "enter"], ["2", "a"], ["2", "a", "k"], ["question_mark"]]
)
def test_no_size_and_no_data_breaks_the_screen_or_leaves_it(size, keys):
    text, _ = play(with_hosts(), keys, size)

    harmful = set("\x1b\x9b\u202e\u2066\u200b\r\U000e0041")
    assert not harmful & set(text)
    assert len(text.split("\n")) == size[1]
    assert not any(line.startswith("fake  FAILED") for line in text.split("\n"))


@pytest.mark.parametrize("keys", [[], ["2"], ["4"], ["2", "enter"]])
def test_markup_in_data_is_shown_as_it_is(keys):
    text, _ = play(MadeSource(), keys, (400, 40))

    assert "[bold red]evil[/] \\x1b[31m\\x9b2J\\u202e\\u2066" in text


STATES = {
    "stopped": ({"status": "stopped", "pid": None, "health": None, "metrics": None, "rates": None}, "no manager runs"),
    "hung": ({"status": "hung", "health": None, "metrics": None, "problems": ("no answer: kill -CONT 4711",)}, "kill -CONT 4711"),
    "missing": ({"status": "no store", "pid": None, "health": None, "metrics": None, "counts": {}, "problems": ("no store at state",)}, "no store at state"),
    "trouble": ({"health": health("storage-trouble", problems=("commits are refused", "and more"))}, "commits are refused (and 1 more)"),
    "paused": ({"health": health("paused", paused="for the night")}, "paused: for the night"),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_the_header_says_how_the_manager_does(name):
    fields, words = STATES[name]
    source = MadeSource(**fields)
    text, _ = play(source)

    status = source.header.status
    assert words in text
    assert status in text.split("\n")[0]


def test_a_part_that_cannot_be_read_says_so_and_the_rest_is_there():
    source = MadeSource()
    source.trouble = "the record of order-7 is damaged: actorproc doctor"
    text, _ = play(source)

    assert "the record of order-7 is damaged" in text
    assert "running  pid 4711" in text


def test_a_fault_in_a_look_is_shown_and_the_next_look_is_another_try():
    source = MadeSource()
    works = source.look

    def look(wanted):
        if len(source.asked) == 1:
            source.asked.append(wanted)
            raise RuntimeError(EVIL)
        return works(wanted)

    source.look = look
    failed, _ = play(source, ["2"])
    again, _ = play(source, ["2"])

    assert "RuntimeError: [bold red]evil[/] \\x1b[31m" in failed
    assert "order-1" in again


def test_no_colour_is_wanted_and_none_is_there(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    def colours(app):
        strips = app.screen._compositor.render_strips(app.size)
        styles = [segment.style for strip in strips for segment in strip if segment.style is not None]
        return {
            style.color.name
            for style in styles
            if style.color is not None and style.color.name in ("red", "green", "yellow", "cyan")
        }

    _, found = play(MadeSource(), ["2"], check=colours)
    monkeypatch.delenv("NO_COLOR")
    _, others = play(MadeSource(), ["2"], check=colours)

    assert found == set()
    assert {"red", "yellow", "green"} <= others


# ---------------------------------------------------------------- keys
@pytest.mark.parametrize(
    ("keys", "pane"),
    [
        (["2"], "procedures"),
        (["3"], "locks"),
        (["4"], "activity"),
        (["5"], "hosts"),
        (["g", "h"], "hosts"),
        (["5", "escape"], "now"),
        (["4", "1"], "now"),
        (["g", "p"], "procedures"),
        (["g", "l"], "locks"),
        (["g", "a"], "activity"),
        (["2", "g", "n"], "now"),
        (["g", "j"], "now"),
        (["2", "enter", "escape"], "procedures"),
        (["3", "enter"], "procedure"),
        (["4", "enter"], "procedure"),
        (["2", "enter", "escape", "escape"], "now"),
        (["2", "enter", "t", "e", "escape"], "procedures"),
    ],
)
def test_keys_lead_from_pane_to_pane(keys, pane):
    source = MadeSource()
    play(source, keys)

    assert source.asked[-1].pane == pane


@pytest.mark.parametrize(
    ("keys", "detail"),
    [
        (["enter"], "why"),
        (["w"], "why"),
        (["t"], "tree"),
        (["s"], "stack"),
        (["o"], "logs"),
        (["e"], "steps"),
        (["y"], "state"),
        (["enter", "tab"], "steps"),
        (["enter", "shift+tab"], "stack"),
        (["enter", "tab", "tab", "y"], "state"),
    ],
)
def test_a_procedure_is_looked_at_from_all_sides(keys, detail):
    source = MadeSource()
    play(source, ["2", "j", *keys])

    assert (source.asked[-1].pane, source.asked[-1].detail) == ("procedure", detail)
    assert source.asked[-1].id == "order-3"


def test_records_are_stepped_through_and_not_beyond_the_first():
    source = MadeSource()
    text, _ = play(source, ["2", "enter", "y", *["left_square_bracket"] * 5, "right_square_bracket"])

    assert [wanted.record for wanted in source.asked if wanted.detail == "state"] == [None, 3, 2, 1, 2]
    assert "record 2" in text


def test_the_cursor_stays_on_its_procedure_when_rows_come_and_go():
    source = MadeSource()

    async def run():
        app = TopApp(source, every=3600.0)
        async with app.run_test() as pilot:
            await pilot.press("2", "z", "z", "z", "z", "z", "z", "home", "j", "j")
            await settled(app, pilot)
            table = app.query_one("#rows", RowTable)
            before = table.key
            source.infos = [info("aaa"), *source.infos]
            app.look()
            await settled(app, pilot)
            kept = table.key
            source.infos = [one for one in source.infos if one.id != before]
            app.look()
            await settled(app, pilot)
            return before, kept, table.key in table.keys

    before, kept, is_there = asyncio.run(run())

    assert before == kept
    assert is_there


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        (["end"], -1),
        (["end", "home"], 0),
        (["k"], 0),
        (["j", "j"], 2),
        (["down", "up"], 0),
        (["pagedown"], -1),
        (["end", "j"], -1),
    ],
)
def test_the_cursor_moves_and_stays_within_the_rows(keys, place):
    _, (key, keys_) = play(MadeSource(), ["2", *keys], check=lambda app: (app.focused.key, app.focused.keys))

    assert key == keys_[place]


def test_rows_beyond_the_last_are_read_when_the_cursor_gets_there():
    source = MadeSource()
    source.is_more = True
    play(source, ["2", "end", "j"])

    assert [wanted.limit for wanted in source.asked][-3:] == [100, 200, 400]


def test_orders_of_rows_come_in_turn():
    tops = []
    for count in range(8):
        _, key = play(MadeSource(), ["2", *["z"] * count, "home"], check=lambda app: (app._sort, app.focused.key))
        tops.append(key)

    assert [name for name, _ in tops] == ["trouble", "newest", "oldest", "changed", "attempts", "type", "id", "trouble"]
    assert tops[0] == tops[7]
    assert dict(tops)["id"] == LONG
    assert dict(tops)["attempts"] == "order-1"


def test_a_look_that_ends_while_a_dialog_is_open_is_shown_below_it():
    source = MadeSource()
    free, works = threading.Event(), source.look

    def look(wanted):
        assert free.wait(30)
        return works(wanted)

    async def run():
        app = TopApp(source, every=3600.0)
        async with app.run_test() as pilot:
            source.look = look
            app.look()
            await pilot.press("question_mark")
            source.header = header(health=health("paused", paused="meanwhile"))
            free.set()
            await settled(app, pilot)
            below = drawn(app)
            await pilot.press("escape")
            await settled(app, pilot)
            return below, drawn(app)

    below, shown = asyncio.run(run())

    assert "Esc leaves" in below
    assert "paused: meanwhile" in shown
    assert "in trouble" in shown


# ---------------------------------------------------------------- the filter
@pytest.mark.parametrize(
    ("line", "filters", "text"),
    [
        ("--state FAILED", {"state": ["FAILED"]}, ""),
        ("--stuck", {"phase": ["stuck"]}, ""),
        ("--type Order --roots bank", {"type_name": "Order", "roots_only": True}, "bank"),
        ("no price", {}, "no price"),
        ("'--tag' '[red]x y'", {"tag": ["[red]x y"]}, ""),
        ("", {}, ""),
    ],
)
def test_the_filter_is_that_of_the_command_line(line, filters, text):
    assert parsed_filter(line) == (filters, text)


@pytest.mark.parametrize("line", ["--state WRONG", "--nothing", "'open", "--state", "--since yesterday"])
def test_a_filter_that_makes_no_sense_is_refused_in_words(line):
    with pytest.raises(ValueError, match=r"\w"):
        parsed_filter(line)


def typed(text):
    names = {" ": "space", "-": "minus", "'": "apostrophe", "[": "left_square_bracket", "]": "right_square_bracket"}
    return [names.get(letter, letter) for letter in text]


def test_a_filter_is_typed_kept_over_looks_and_taken_away():
    source = MadeSource()
    text, _ = play(source, ["slash", *typed("--state FAILED"), "enter"])
    _, _ = play(other := MadeSource(), ["2", "slash", *typed("order-4"), "enter", "escape"])

    assert (source.asked[-1].pane, source.asked[-1].filters) == ("procedures", {"state": ["FAILED"]})
    assert "--state FAILED" in text
    assert "order-1" not in text
    assert [wanted.text for wanted in other.asked][-2:] == ["order-4", ""]


def test_a_wrong_filter_leaves_the_rows_and_says_what_is_wrong():
    source = MadeSource()
    text, _ = play(source, ["2", "slash", *typed("--state X"), "enter"])

    assert "invalid choice" in text
    assert source.asked[-1].filters == {}


def test_keys_typed_into_the_filter_are_letters_and_escape_leaves_it():
    source = MadeSource()
    text, focused = play(source, ["2", "slash", *typed("qapx"), "escape"], check=lambda app: type(app.focused).__name__)

    assert focused == "RowTable"
    assert "procedures" in text
    assert source.asked[-1].text == ""


def test_the_screen_is_held_and_goes_on():
    source = MadeSource()
    text, _ = play(source, ["p"])
    again, _ = play(MadeSource(), ["p", "p"])

    assert " held" in text.split("\n")[0]
    assert " held" not in again.split("\n")[0]


# ---------------------------------------------------------------- verbs
@pytest.fixture
def done(monkeypatch):
    """Verbs that the screen asked for: path, verb, ids, reason."""
    found = []

    def carry_out(path, action, ids, reason):
        found.append((path, action.name, list(ids), reason))
        return [
            f"{action.name} {id}: {'refused: not now' if id == 'order-1' else action.done}" for id in ids or ["manager"]
        ]

    monkeypatch.setattr(app_module, "carry_out", carry_out)
    return found


@pytest.mark.parametrize(
    ("key", "verb"),
    [("k", "kill"), ("a", "abort"), ("f", "abort --force"), ("r", "retry"), ("R", "restart"), ("u", "rollback"), ("p", "pause"), ("o", "resume"), ("b", "bypass"), ("c", "ack"), ("d", "delete")],
)  # fmt: skip
def test_a_verb_is_done_once_it_was_confirmed(done, key, verb):
    text, _ = play(MadeSource(), ["2", "j", "a", key, "enter"])

    assert done == [("state", verb, ["order-3"], None)]
    assert f"{verb} order-3" in text


def test_the_reason_goes_along_and_a_verb_is_for_all_marked_rows(done):
    text, _ = play(MadeSource(), ["2", "x", "x", "a", "a", *typed("it hangs"), "enter"])

    assert done == [("state", "abort", ["order-1", "order-3"], "it hangs")]
    assert "1 of 2 done; abort order-1: refused: not now" in text


@pytest.mark.parametrize("keys", [["a", "escape"], ["a", "k", "escape"], ["a", "y"], ["a", "q"]])
def test_a_verb_that_is_not_confirmed_is_not_done(done, keys):
    play(MadeSource(), ["2", *keys])

    assert done == []


def test_a_verb_in_the_detail_is_for_the_procedure_that_is_open(done):
    play(MadeSource(), ["2", "j", "enter", "a", "k", "enter"])

    assert done == [("state", "kill", ["order-3"], None)]


@pytest.mark.parametrize(("key", "verb"), [("P", "pause --manager"), ("O", "resume --manager")])
def test_the_whole_manager_is_paused_and_resumed(done, key, verb):
    source = MadeSource()
    source.infos = []
    play(source, ["2", "a", key, "enter"])

    assert done == [("state", verb, [], None)]


def test_without_a_row_no_verb_of_a_procedure_is_offered(done):
    source = MadeSource()
    source.infos = []
    text, _ = play(source, ["2", "a", "k"])

    assert "kill" not in text
    assert done == []


def test_a_read_only_screen_offers_no_verb(done):
    text, _ = play(MadeSource(), ["2", "a"], is_read_only=True)
    play(MadeSource(), ["2", "a", "k", "enter"], is_read_only=True)

    assert "read-only" in text
    assert done == []


# ---------------------------------------------------------------- as text
@pytest.mark.parametrize("width", [None, 80, 150])
def test_a_plain_look_has_workers_trouble_and_failures(width):
    lines = list(plain_look(MadeSource().look(Wanted()), width))
    text = "\n".join(lines)

    assert lines[0].startswith("08:00:00  running  pid 4711, up 1h")
    assert {"workers", "in trouble", "failures"} <= set(lines)
    assert "10%" in text
    assert not set("\x1b\x9b\u202e\r") & set(text)
    assert "order-1" in text


def test_the_source_is_closed_when_the_screen_is_left():
    source = MadeSource()
    play(source)

    assert source.closed
