"""States of the manager in which nothing runs, or nothing is stored: told in words while they last, without a reload."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.browser.conftest import Pages, Program


@pytest.fixture
def standing(chromium, tmp_path):
    """A manager that was started for a task, with its server of pages."""
    opened = []

    def start(task):
        path = tmp_path / "standing"
        opened.append(Program([sys.executable, "-m", "tests.browser.depot", str(path), "0", task], "ready"))
        opened[0].path = path
        opened.append(Pages(path, tmp_path))
        return opened

    yield start
    for program in reversed(opened):
        program.end()


def test_a_manager_behind_its_gate_says_so_until_it_is_opened(window, standing):
    manager, pages = standing("gated")
    page = window(pages)
    page.wait_for_selector("header .badge:has-text('gated')")
    page.wait_for_selector(".banner:has-text('started behind a gate')")
    page.wait_for_selector("button.live.open")
    manager.send(signal.SIGUSR1)
    page.wait_for_selector(".banner", state="detached")
    page.wait_for_selector("header .badge:has-text('running')")


def test_storage_trouble_is_told_while_it_lasts(window, standing):
    manager, pages = standing("full")
    page = window(pages, "procedures")
    page.wait_for_selector("button.live.open")
    mark = Path(f"{manager.path}.full")
    mark.touch()
    manager.send(signal.SIGUSR1)
    page.wait_for_selector(".banner:has-text('no space left on device')")
    page.wait_for_selector("header .badge:has-text('storage-trouble')")
    page.goto(pages.address)
    page.wait_for_selector(".banner:has-text('commits are refused since')")
    page.goto(pages.address + "procedures")
    page.wait_for_selector(".empty")
    mark.unlink()
    page.wait_for_selector(".banner", state="detached", timeout=60_000)
    page.wait_for_selector("header .badge:has-text('running')")
    page.wait_for_selector("tr[data-id=late] .badge:has-text('SUCCESS'), tr[data-id=late]:has-text('SUCCESS')")
