"""The same pages over a store in PostgreSQL with two hosts: the leader is killed, the other one takes over, the page goes on."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.browser.conftest import Pages, Program, until


@pytest.fixture
def url(chromium, database_url):
    return database_url


def test_a_page_over_a_database_goes_on_when_another_host_takes_over(window, url, tmp_path):
    command = [sys.executable, "-m", "tests.browser.depot", url, "20"]
    first = Program([*command, "fill"], "ready")
    second = Program([*command, "follow"], "ready")
    host = Program([*command, "host"], "ready")
    pages = Pages(url, tmp_path)
    try:
        page = window(pages, "workers")
        # The leader's own workers, and those of the host that has joined it, with where they are.
        page.wait_for_selector("section[aria-labelledby=hosts] .badge:has-text('joined')")
        page.wait_for_selector("thead th:has-text('Host')")
        joined = page.inner_text("section[aria-labelledby=hosts] tbody td")
        page.wait_for_selector(f"#main > .scroll tbody tr td:text-is('{joined}')")
        page.goto(pages.address + "procedures/read-eu")
        page.wait_for_selector("text=held by read-us")
        page.wait_for_selector("button.live.open")
        first.end(signal.SIGKILL)
        # The hung step was charged to its host; the next attempt is whole, and so is all that waited for it.
        page.wait_for_selector(".under .badge:has-text('SUCCESS')", timeout=60_000)
        page.wait_for_selector(".banner", state="detached", timeout=30_000)
        for path in ("", "procedures", "locks", "workers", "activity", "types"):
            page.goto(pages.address + path)
            page.wait_for_selector("main h1")
        page.goto(pages.address + "workers")
        page.wait_for_selector("tbody tr")
        page.wait_for_selector("section[aria-labelledby=hosts] .badge:has-text('joined')", timeout=60_000)
        until(lambda: page.locator("header .badge:has-text('running')").count() == 1)
    finally:
        assert pages.end() == 0
        host.end()
        second.end()
        first.end()
