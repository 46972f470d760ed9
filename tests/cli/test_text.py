"""Text that is safe to print."""

from __future__ import annotations

import argparse
import time

import pytest

from actorproc.cli.output.columns import Columns
from actorproc.cli.select.filters import moment, seconds
from actorproc.report.listing import ListFilter
from actorproc.support.durations import EARLIEST, LATEST
from actorproc.ui.text import ago, clipped, duration, plain_line, size_of, width_of


@pytest.mark.parametrize(
    "text",
    ["\x1b[31mred", "a\nb", "a\rb", "\x9b31m", "\x00", "\x7f", "\u202eevil", "\u2066x", "\u2028", "\ufeff", "\ud800"],
)
def test_no_control_character_of_data_reaches_the_terminal(text):
    shown = plain_line(text)

    assert shown.isprintable()
    assert "\\" in shown


def test_ordinary_text_of_all_languages_stays_as_it_is():
    assert plain_line("tablo größe 表 🎉") == "tablo größe 表 🎉"


def test_spans_are_said_in_at_most_two_parts():
    spans = [0, 0.04, 1, 9.5, 59, 200, 7500, 9 * 86_400 + 3 * 3600]

    assert [duration(span) for span in spans] == ["0s", "40ms", "1s", "9.5s", "59s", "3m20s", "2h5m", "9d3h"]


def test_moments_are_relative_to_now():
    assert (ago(None, 100.0), ago(88.0, 100.0), ago(112.0, 100.0)) == ("-", "12s", "in 12s")


def test_sizes_and_clips():
    assert [size_of(size) for size in (None, 312, 4608, 5 << 30)] == ["-", "312 B", "4.5 KiB", "5.0 GiB"]
    assert clipped("abcdef", 4) == "abc…"


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("1970-01-01T00:00:01Z", EARLIEST),
        ("1960-01-01", EARLIEST),
        ("0001-01-01T00:00:00Z", EARLIEST),
        ("3000w", EARLIEST),
        ("99999999999w", EARLIEST),
        ("9999-12-31T23:59:59.9Z", LATEST),
    ],
)
def test_dates_and_spans_beyond_all_moments_are_the_first_or_the_last_one(text, nearest):
    """They are no durations that were meant as moments, which a list refuses."""
    assert moment(text) == nearest
    assert ListFilter.of(updated_until=moment(text)).updated_until == nearest


def test_wide_letters_take_two_columns_and_accents_none():
    assert (width_of("ab"), width_of("表"), width_of("e\u0301")) == (2, 2, 1)


def test_each_row_of_a_table_is_one_line():
    table = Columns(("A", "B"))

    assert table.lines([("x\ny", "1"), ("z", "22")]) == ["A     B", "x\\ny  1", "z     22"]
    assert table.lines([("q", "3")]) == ["q     3"]


def test_spans_and_moments_are_read_as_people_write_them():
    assert [seconds(text) for text in ("90", "90s", "5m", "2h", "1.5d", "20ms")] == [90, 90, 300, 7200, 129_600, 0.02]
    assert abs(moment("2h") - (time.time() - 7200)) < 5
    assert moment("2026-01-01T00:00:00+00:00") == 1_767_225_600
    with pytest.raises(argparse.ArgumentTypeError):
        seconds("soon")
    with pytest.raises(argparse.ArgumentTypeError):
        moment("tomorrow")
