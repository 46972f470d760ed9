"""The guide's table of settings is that of `Config`: its headings, its fields in their order, and their defaults."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from actorproc import Config
from docs._extensions.tables import in_words

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guide.md").read_text().partition("\n## Settings\n")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (★ )?`(\w+)` \| ([^|]+) \| ([^|]+) \|$", GUIDE, re.MULTILINE)


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
