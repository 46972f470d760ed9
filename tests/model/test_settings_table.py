"""The guide's table of settings is that of `Config`: its headings, its fields in their order, and their defaults."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from actorproc import Config

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guide.md").read_text().partition("\n## Settings\n")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (★ )?`(\w+)` \| ([^|]+) \| ([^|]+) \|$", GUIDE, re.MULTILINE)
IN_BYTES = ("max_state", "max_call", "max_frame", "log_")


def in_words(name: str, default: object, annotation: str) -> str:
    """A default as the table has it."""
    if "Seconds" in annotation and default is not None:
        assert isinstance(default, float)
        return f"{default / 86400:g} days" if default >= 86400 else f"{default:g} s"
    if name.startswith(IN_BYTES):
        assert isinstance(default, int)
        units = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))
        return next(f"{default // size} {unit}" for size, unit in units if not default % size)
    if isinstance(default, dict):
        return "none"
    return f"{default:,}" if type(default) is int else str(default)


def test_each_setting_is_in_the_table_with_its_default_in_the_order_of_the_class():
    config = Config()
    fields = [
        (field.name, in_words(field.name, getattr(config, field.name), str(field.type)))
        for field in dataclasses.fields(Config)
    ]

    assert [(name, default) for _, name, default, _ in ROWS] == fields


def test_the_headings_are_those_of_the_class():
    headings = re.findall(r"^    # -{20,} (.+)$", (ROOT / "actorproc" / "config.py").read_text(), re.MULTILINE)

    assert re.findall(r"^\*\*(.+)\*\*$", GUIDE, re.MULTILINE) == headings


def test_ten_settings_have_a_star():
    assert sum(bool(star) for star, *_ in ROWS) == 10
