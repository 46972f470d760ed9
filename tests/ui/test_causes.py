"""Lines of a chain of causes: wrapped for people, with commands that can be copied whole."""

from __future__ import annotations

import pytest

from actorproc.model.rows.record_parts import ErrorInfo
from actorproc.report.why_terms import Cause
from actorproc.ui.causes import cause_lines, error_lines
from actorproc.ui.text import width_of
from tests.ui.made import EVIL

LONG = "order-1 (Order) waits for write of 'region/eu/north/rack-7' held by order-2 for 24 m, behind 3 others that came before"


def chain():
    root = Cause(
        kind="running",
        procedure="order-2",
        says="order-2 (Order) runs step 1",
        repairs=("actorproc stack order-2", "actorproc abort order-2 --force"),
    )
    return Cause(
        kind="lock", procedure="order-1", says=LONG, causes=(root, Cause(kind="failed", procedure="c", says="c failed"))
    )


def test_without_a_width_each_link_is_one_line():
    assert list(cause_lines(chain())) == [
        LONG,
        "├─ order-2 (Order) runs step 1",
        "│     ⇒ actorproc stack order-2          # shows where it is",
        "│     ⇒ actorproc abort order-2 --force  # kills its step and undoes what it did",
        "└─ c failed",
    ]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_sentences_are_wrapped_and_commands_stay_whole(width):
    lines = list(cause_lines(chain(), width=width))

    assert all(width_of(line) <= width for line in lines if "⇒" not in line and "#" not in line)
    commands = [line.partition("⇒ ")[2].partition("  # ")[0].rstrip() for line in lines if "⇒" in line]
    assert commands == ["actorproc stack order-2", "actorproc abort order-2 --force"]
    assert [line.partition("# ")[2] for line in lines if "# " in line] == [
        "shows where it is",
        "kills its step and undoes what it did",
    ]
    assert [word for word in LONG.split() if len(word) < 10 and not any(word in line for line in lines)] == []


def test_colours_mark_the_ends_of_the_chain_and_the_commands():
    painted = list(cause_lines(chain(), paint=lambda text, tone: f"<{tone}>{text}"))

    assert painted[0] == f"<plain>{LONG}"
    assert painted[1] == "├─ <warn>order-2 (Order) runs step 1"
    assert painted[2].startswith("│     ⇒ <strong>actorproc stack order-2")
    assert painted[4] == "└─ <bad>c failed"


@pytest.mark.parametrize(
    ("traceback", "lines"),
    [("OSError: disk", 2), ("OSError: disk\n", 2), ("", 2), ('  File "shop.py", line 3, in last\nOSError: disk', 4)],
)
def test_the_words_of_a_failure_stand_once_unless_a_traceback_ends_with_them(traceback, lines):
    error = ErrorInfo(kind="error", type_name="OSError", message="disk", traceback=traceback, step=1, procedure="x")

    assert len(list(error_lines("error", error))) == lines


def test_hostile_words_stay_within_their_line():
    lines = list(
        cause_lines(
            Cause(kind="event", procedure="x", says=EVIL, repairs=(f"actorproc signal {EVIL}",)), "/tmp/a b", width=80
        )
    )

    assert not set("\x1b\x9b\n\r\u202e") & set("".join(lines))
    assert any(line.strip().startswith("⇒ actorproc --path '/tmp/a b' signal") for line in lines)
