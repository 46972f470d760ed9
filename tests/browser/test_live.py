"""Pages that stay open: what happens is seen without a reload, and pages come back by themselves."""

from __future__ import annotations

import re
import signal
import time

import lmdb
import pytest

from actorproc import ProcedureManager
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.rows.keys import head_key
from actorproc.store.rows.tables import Table
from tests.browser.conftest import Pages, Store, until
from tests.browser.depot import Part


@pytest.fixture(scope="module")
def moving(chromium, tmp_path_factory):
    """A store that tests change, with its server of pages."""
    store = Store(tmp_path_factory.mktemp("moving"), children=40)
    store.pages = store.page(tmp_path_factory.mktemp("moving-pages"))
    yield store
    assert store.pages.end() == 0
    store.end()


def count_of(page, path):
    """Answers of the API so far that the page has asked for."""
    return page.evaluate(
        "(path) => performance.getEntriesByType('resource').filter((one) => one.name.includes(path)).length", path
    )


def test_a_newcomer_finds_why_one_stands_still_and_kills_the_right_step(window, moving):
    began = time.monotonic()
    page = window(moving.pages)
    page.get_by_role("link", name="read-eu").first.click()
    page.wait_for_selector("text=waits for write of 'region/eu' held by read-us")
    assert "400 of 1000 blocks" in page.inner_text(".why-box")
    other = window(moving.pages, "procedures/read-us", context=page.context)
    page.locator(".repairs").get_by_role("button", name="Kill the step").click()
    dialog = page.get_by_role("dialog")
    assert "read-us" in dialog.inner_text()
    dialog.get_by_role("textbox", name="Reason").fill("hangs since noon")
    dialog.get_by_role("button", name="Kill the step").click()
    page.wait_for_selector(".note:has-text('kill read-us')")
    # Both windows see the end without being asked again.
    page.wait_for_selector(".under .badge:has-text('SUCCESS')")
    other.wait_for_selector(".under .badge:has-text('SUCCESS')")
    other.get_by_role("navigation", name="Pages of read-us").get_by_role("link", name="Steps").click()
    other.wait_for_selector("text=SIGKILL")
    other.get_by_role("link", name="Why").click()
    other.wait_for_selector("h2:has-text('Last death of a worker, attempt 1')")
    other.get_by_role("link", name="Audit").click()
    other.wait_for_selector("text=hangs since noon")
    assert "(web)" in other.inner_text("main")
    other.get_by_role("link", name="Activity").click()
    other.wait_for_selector("section[aria-labelledby=deaths] tr:has-text('read-us'):has-text('SIGKILL')")
    assert time.monotonic() - began < 60


def test_a_change_is_seen_within_a_second(window, moving):
    page = window(moving.pages, "procedures?type=Part&phase=waiting")
    page.wait_for_selector("tr[data-id='wide.17']")
    page.wait_for_selector("button.live.open")
    with moving.client as client:
        began = time.monotonic()
        client.signal("wide.17", "now")
        page.wait_for_selector("tr[data-id='wide.17']", state="detached")
        assert time.monotonic() - began < 5  # about one second where the machine has nothing else to do


def test_eight_windows_of_a_browser_share_one_stream(window, moving):
    """HTTP/1.1 gives a browser six connections to a host."""
    first = window(moving.pages, "activity")
    others = [
        window(moving.pages, path, context=first.context)
        for path in ("", "procedures", "locks", "workers", "activity", "activity", "types")
    ]
    for page in (first, *others):
        page.wait_for_selector("button.live.open")
    with moving.client as client:
        client.pause("flaky", reason="seen by all windows")
        for page in (first, others[4], others[5]):
            page.wait_for_selector("text=seen by all windows")
        client.resume("flaky")
    streams = first.request.get(moving.pages.address + "api/v1/metrics", headers={"Accept": "text/plain"}).text()
    assert re.search(r"^actorproc_web_streams 1\b", streams, re.MULTILINE)


def test_live_updates_can_be_paused(window, moving):
    page = window(moving.pages, "activity")
    page.wait_for_selector("button.live.open")
    page.keyboard.press("p")
    page.wait_for_selector("text=Live updates are paused")
    with moving.client as client:
        client.pause("flaky", reason="while the page is paused")
        client.resume("flaky")
    assert page.get_by_text("while the page is paused").count() == 0
    page.keyboard.press("p")
    page.wait_for_selector("text=while the page is paused")


def test_a_page_outlives_its_manager(window, moving):
    page = window(moving.pages, "procedures/flaky")
    page.wait_for_selector("button.live.open")
    moving.send(signal.SIGSTOP)
    page.wait_for_selector(f".banner:has-text('kill -CONT {moving.process.pid}')", timeout=40_000)
    moving.send(signal.SIGCONT)
    page.wait_for_selector(".banner", state="detached")
    moving.end(signal.SIGKILL)
    page.wait_for_selector(".banner:has-text('manager')")
    # Reading goes on.
    page.get_by_role("link", name="Procedures").click()
    page.wait_for_selector("tr[data-id='order-2']")
    page.get_by_role("link", name="Workers").click()
    page.wait_for_selector("text=No worker runs")
    page.get_by_role("link", name="Overview").click()
    page.wait_for_selector("text=Failures in groups")
    moving.start()
    page.wait_for_selector(".banner", state="detached")
    page.wait_for_selector("header .badge:has-text('running')")


def test_a_page_comes_back_when_its_server_does(window, moving, tmp_path):
    pages = moving.page(tmp_path)
    page = window(pages, "procedures/order-1")
    page.wait_for_selector("button.live.open")
    pages.end(signal.SIGKILL)
    page.wait_for_selector(".banner:has-text('comes back by itself')")
    page.wait_for_selector("main.stale")
    again = moving.page(tmp_path, port=pages.port)
    page.wait_for_selector("button.live.open")
    page.wait_for_selector(".banner", state="detached")
    again.end()
    # With another token the session is void: said once, and not asked again and again.
    third = moving.page(tmp_path, port=pages.port, token="another-token-" + "y" * 30)
    page.wait_for_selector(".banner:has-text('This link has expired')", timeout=40_000)
    before = count_of(page, "session")
    page.wait_for_selector("button.live.expired")
    assert count_of(page, "session") == before
    third.end()


def test_logs_and_the_stack_are_live(window, moving):
    page = window(moving.pages, "procedures/order-1/logs")
    page.wait_for_selector("text=reserved for Ada")
    page.goto(moving.pages.address + "procedures/flaky/stack")
    page.wait_for_selector(".empty")


def test_a_removed_procedure_says_so(window, moving):
    page = window(moving.pages, "procedures/part-000")
    page.wait_for_selector("button.live.open")
    with moving.client as client:
        client.delete("part-000", reason="not needed any more")
    page.wait_for_selector("h1:has-text('Removed'), h1:has-text('No such procedure')")
    assert "part-000" in page.inner_text("main")


def test_an_empty_store_shows_a_first_program(window, tmp_path):
    with ProcedureManager(tmp_path / "empty", workers=1):
        pass
    pages = Pages(tmp_path / "empty", tmp_path)
    try:
        page = window(pages)
        page.wait_for_selector("text=The store is empty")
        assert "ProcedureManager" in page.inner_text("pre")
        page.wait_for_selector(".banner:has-text('manager')")
        for path, words in (
            ("procedures", "no procedure in this store yet"),
            ("locks", "Nothing waits"),
            ("workers", "No worker runs"),
            ("activity", "No operator"),
            ("types", "No procedure was submitted"),
        ):
            page.goto(pages.address + path)
            page.wait_for_selector(f".empty:has-text('{words}')")
    finally:
        pages.end()


def test_a_stop_of_the_server_does_not_wait_for_open_windows(window, moving, tmp_path):
    pages = moving.page(tmp_path)
    page = window(pages)
    page.wait_for_selector("button.live.open")
    began = time.monotonic()
    assert pages.end() == 0
    assert time.monotonic() - began < 10
    page.wait_for_selector("button.live.lost")
    until(lambda: page.locator(".banner").count() > 0)


def test_a_store_of_a_later_format_says_so_and_what_to_do(window, tmp_path, monkeypatch):
    monkeypatch.setattr("actorproc.store.lmdb.store.FORMAT", 99)
    store = LmdbStore(tmp_path / "later", map_size=1 << 24)
    store.own()
    store.close()
    monkeypatch.undo()
    pages = Pages(tmp_path / "later", tmp_path)
    try:
        page = window(pages, "procedures")
        page.wait_for_selector("h1:has-text('A store of another version')")
        assert "99" in page.inner_text("main")
    finally:
        assert pages.end() == 0


def test_a_damaged_record_is_told_in_words_and_the_others_are_shown(window, tmp_path):
    with ProcedureManager(tmp_path / "spoilt", workers=1, procedures=[Part]) as manager:
        for name in ("whole", "broken"):
            manager.submit(Part(waits=True), name)
        until(lambda: manager.info("broken").phase == manager.info("whole").phase == "waiting")
    with (
        lmdb.open(str(tmp_path / "spoilt"), max_dbs=32, map_size=1 << 30, lib_version=0) as env,
        env.begin(write=True) as txn,
    ):
        rows = env.open_db(Table.PROCEDURES.label.encode(), txn=txn)
        row = txn.get(head_key("broken"), db=rows)
        txn.put(head_key("broken"), row[:-1] + bytes([row[-1] ^ 1]), db=rows)
    pages = Pages(tmp_path / "spoilt", tmp_path)
    try:
        page = window(pages, "procedures/broken")
        page.wait_for_selector("h1:has-text('Damaged')")
        assert "broken" in page.inner_text("main")
        assert "doctor" in page.inner_text("main code")
        page.goto(pages.address + "procedures/whole")
        page.wait_for_selector(".why-box")
        page.goto(pages.address)
        page.wait_for_selector("dl.tiles")
    finally:
        assert pages.end() == 0
