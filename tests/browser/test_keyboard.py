"""The keyboard alone is enough, and rows that are not in the document do not lie to screen readers."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Store, until

CHILDREN = 3000


@pytest.fixture(scope="module")
def wide(chromium, tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("wide"), children=CHILDREN)
    store.pages = store.page(tmp_path_factory.mktemp("wide-pages"))
    yield store
    assert store.pages.end() == 0
    store.end()


def focused(page):
    return page.evaluate("document.activeElement.closest('[data-row]')?.dataset.id ?? document.activeElement.id")


def active(page):
    """The row that a screen reader is told of."""
    return page.evaluate(
        """() => { const row = document.getElementById(document.querySelector('[role=treegrid]').getAttribute('aria-activedescendant'));
        return row && {id: row.dataset.id, index: Number(row.getAttribute('aria-rowindex')), size: Number(row.getAttribute('aria-setsize')), place: Number(row.getAttribute('aria-posinset')), level: Number(row.getAttribute('aria-level'))}; }"""
    )


def test_all_is_reached_by_keys(window, pages):
    page = window(pages)
    page.keyboard.press("g")
    page.keyboard.press("p")
    page.wait_for_selector("table.list tbody tr")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.type("ReadRegion")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=ReadRegion")
    until(lambda: page.locator("tbody tr").count() == 3)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    first = focused(page)
    page.keyboard.press("j")
    assert first.startswith("read-")
    assert focused(page).startswith("read-")
    assert focused(page) != first
    page.keyboard.press("k")
    assert focused(page) == first
    page.keyboard.press("x")
    page.wait_for_selector("[role=toolbar]:has-text('1 chosen')")
    page.keyboard.press("a")
    page.wait_for_selector("dialog[open]")
    assert first in page.inner_text("dialog")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/procedures/{first}")
    for key, path in (("t", "tree"), ("s", "stack"), ("w", "")):
        page.keyboard.press(key)
        page.wait_for_url(f"**/procedures/{first}/{path}".rstrip("/"))
        page.wait_for_selector("nav.tabs [aria-current]")
    for key, path in (("l", "locks"), ("w", "workers"), ("a", "activity"), ("t", "types"), ("o", "")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(pages.address + path)


def test_the_palette_finds_ids_and_commands(window, pages):
    page = window(pages)
    page.keyboard.press("Control+k")
    page.wait_for_selector("[role=combobox]")
    page.keyboard.type("order-2")
    page.wait_for_selector("[role=option][aria-selected=true]:has-text('order-2')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/procedures/order-2")
    page.keyboard.press("Control+k")
    page.keyboard.type("is stuck")
    page.wait_for_selector("[role=option][aria-selected=true]:has-text('stuck')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/procedures?phase=stuck")


def test_tab_begins_with_the_skip_link_and_dialogs_keep_the_focus(window, pages):
    page = window(pages, "procedures/read-us")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "H1"
    button = page.get_by_role("button", name="Kill the step").first
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] input[name=reason]")
    for _ in range(8):
        page.keyboard.press("Tab")
        assert page.evaluate(
            "document.activeElement === document.body || document.activeElement.closest('dialog') !== null"
        )
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    until(lambda: page.evaluate("document.activeElement.textContent").startswith("Kill the step"))


def test_states_are_stepped_through_by_keys(window, pages):
    page = window(pages, "procedures/order-1/state?n=3")
    page.wait_for_selector("text=States over time")
    page.keyboard.press("[")
    page.wait_for_url("**n=2")
    page.keyboard.press("]")
    page.wait_for_url("**n=3")
    page.wait_for_selector("td:has-text('lines')")


def test_thousands_of_children_are_told_truly_and_keep_the_focus(window, wide):
    page = window(wide.pages, "procedures/wide/tree")
    grid = page.get_by_role("treegrid")
    grid.focus()
    assert grid.get_attribute("aria-rowcount") == str(CHILDREN + 1)
    assert active(page) == {"id": "wide", "index": 1, "size": 1, "place": 1, "level": 1}
    page.keyboard.press("End")
    until(lambda: (active(page) or {}).get("id") == f"wide.{CHILDREN - 1}")
    assert active(page) == {
        "id": f"wide.{CHILDREN - 1}",
        "index": CHILDREN + 1,
        "size": CHILDREN,
        "place": CHILDREN,
        "level": 2,
    }
    page.keyboard.press("Home")
    for _ in range(100):
        page.keyboard.press("PageDown")
    until(lambda: (active(page) or {}).get("id") is not None)
    row = active(page)
    assert row["index"] > 1000
    assert row["place"] == row["index"] - 1
    assert page.evaluate("document.querySelectorAll('[role=treegrid] *').length") <= 500
    # The row with the focus stays in the document wherever one scrolls to, and through live updates.
    page.evaluate("document.querySelector('[role=treegrid]').scrollTop = 0")
    page.wait_for_selector("[role=row][data-id='wide.1']")
    assert active(page)["id"] == row["id"]
    with wide.client as client:
        client.signal("wide.17", "go")
        until(lambda: client.info("wide.17").state == "SUCCESS")
    page.wait_for_selector("[role=row][data-id='wide.17'] .badge:has-text('SUCCESS')")
    assert active(page)["id"] == row["id"]
    assert page.evaluate("document.activeElement.getAttribute('role')") == "treegrid"
    page.keyboard.press("ArrowUp")
    assert active(page)["index"] == row["index"] - 1
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    until(lambda: grid.get_attribute("aria-rowcount") == "1")
    page.keyboard.press("ArrowRight")
    until(lambda: grid.get_attribute("aria-rowcount") == str(CHILDREN + 1))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_url("**/procedures/wide.0")


def test_the_focus_goes_to_the_next_row_when_its_row_is_removed(window, wide):
    page = window(wide.pages, "procedures?owner=batch")
    page.wait_for_selector("button.live.open")
    page.wait_for_selector("tr[data-id]")
    for _ in range(3):
        page.keyboard.press("j")
    name = focused(page)
    following = page.evaluate("document.activeElement.closest('tr').nextElementSibling.dataset.id")
    with wide.client as client:
        client.delete(name)
    page.wait_for_selector(f"tr[data-id='{name}']", state="detached")
    assert focused(page) == following
    page.keyboard.press("j")
    assert focused(page) not in ("", following)


def test_the_manager_is_paused_and_resumed_from_the_palette(window, wide):
    page = window(wide.pages)
    for verb, button in (("pause", "Pause all"), ("resume", "Resume all")):
        page.keyboard.press("Control+k")
        page.keyboard.type(f"{verb} the")
        page.wait_for_selector(f"[role=option][aria-selected=true]:has-text('{verb} the manager')")
        page.keyboard.press("Enter")
        page.get_by_role("textbox", name="Reason").fill("all of it")
        page.get_by_role("button", name=button).click()
        page.wait_for_selector(".banner:has-text('paused')", state="visible" if verb == "pause" else "detached")


def test_a_focused_row_survives_live_updates_of_the_list(window, wide):
    page = window(wide.pages, "procedures?type=Order")
    page.wait_for_selector("tbody tr")
    page.keyboard.press("j")
    name = focused(page)
    with wide.client as client:
        client.pause("flaky", reason="so that something changes")
        client.resume("flaky")
    page.wait_for_selector("button.live.open")
    assert focused(page) == name
