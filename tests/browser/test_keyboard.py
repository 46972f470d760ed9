"""The keyboard alone is enough, and rows that are not in the document do not lie to screen readers."""

from __future__ import annotations

import signal

import pytest

from tests.browser.conftest import Store, in_page, until

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


@pytest.mark.parametrize(("path", "field"), [("procedures", "q"), ("procedures", "type"), ("activity", "verb")])
def test_what_is_being_typed_stays_when_the_page_is_drawn_meanwhile(window, pages, path, field):
    page = window(pages, path)
    page.focus(f"input[name={field}]")
    page.keyboard.type("Read")
    in_page(page, "app.data = { ...app.data }")
    page.keyboard.type("Region")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{field}=ReadRegion")
    page.go_back()
    page.wait_for_url(pages.address + path)
    until(lambda: page.input_value(f"input[name={field}]") == "")


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


def row_ids(page):
    return page.eval_on_selector_all("main [data-row]", "all => all.map((row) => row.dataset.id)")


def focus_row(page, place):
    """Go to a row by keys. Their script comes after the first rows, and then does what was pressed before."""
    wanted = row_ids(page)[place]
    for _ in range(place + 1):
        page.keyboard.press("j")
    until(lambda: focused(page) == wanted)
    return wanted


def batch(window, pages):
    page = window(pages, "procedures?owner=batch")
    page.wait_for_selector("button.live.open")
    page.wait_for_selector("tr[data-id]")
    return page


def test_the_focus_goes_to_the_next_row_when_its_row_is_removed(window, wide):
    page = batch(window, wide.pages)
    name = focus_row(page, 2)
    following = row_ids(page)[3]
    with wide.client as client:
        client.delete(name)
    page.wait_for_selector(f"tr[data-id='{name}']", state="detached")
    assert focused(page) == following
    page.keyboard.press("j")
    assert focused(page) not in ("", following)


KEPT = (
    ("items.slice(0, -1)", -1, -2),  # the last one goes
    ("items.filter((_, at) => at !== 0 && at !== 2)", 2, 3),  # two at once, one of them above
    ("items.filter((_, at) => at !== 2 && at !== 3)", 2, 4),  # the next one goes with it
    ("items.reverse()", 2, 2),  # another order moves its element
    ("[...items.slice(2, 3), ...items.slice(0, 2)]", 2, 2),
    ("[{ ...items[0], id: 'another' }, ...items]", 2, 2),  # a new one above
    ("items.slice(4)", 2, 4),
    ("[]", 2, None),
)
"""Lists after a change, with the row that has the focus before it and the row that has it then; None: the heading."""


def test_the_focus_stays_with_its_row_or_goes_on_from_its_place(window, wide):
    page = batch(window, wide.pages)
    page.keyboard.press("p")
    page.wait_for_selector("button.live:has-text('paused')")
    ids = row_ids(page)
    in_page(page, "app.first = app.data.items")
    for kept, place, focus in KEPT:
        in_page(page, "document.activeElement.blur(); app.data = { ...app.data, items: app.first }")
        page.locator("tr[data-id]").nth(place).locator("a").first.focus()
        in_page(page, f"const items = [...app.first]; app.data = {{ ...app.data, items: {kept} }}")
        if focus is None:
            assert page.evaluate("document.activeElement.tagName") == "H1"
        else:
            assert focused(page) == ids[focus], kept


def test_the_focus_goes_to_the_row_in_its_place_when_a_filter_leaves_others(window, wide):
    page = batch(window, wide.pages)
    focus_row(page, 2)
    in_page(page, "app.setQuery({ owner: null, type: 'ReadRegion' })")
    page.wait_for_selector("tr[data-id='part-059']", state="detached")
    assert focused(page) == row_ids(page)[2]
    assert focused(page).startswith("read-")


def test_the_focus_goes_on_after_rows_were_removed_while_the_page_was_offline(window, wide, tmp_path):
    pages = wide.page(tmp_path)
    page = batch(window, pages)
    ids = row_ids(page)
    focus_row(page, 3)
    pages.end(signal.SIGKILL)
    page.wait_for_selector("button.live.lost")
    with wide.client as client:
        client.delete(ids[1])
        client.delete(ids[3])
    again = wide.page(tmp_path, port=pages.port)
    page.wait_for_selector(f"tr[data-id='{ids[3]}']", state="detached")
    assert focused(page) == ids[4]
    again.end()


def test_the_focus_goes_on_when_the_verb_of_a_dialog_removes_the_row(window, wide):
    page = batch(window, wide.pages)
    ids = row_ids(page)
    focus_row(page, 1)
    page.keyboard.press("a")
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("textbox", name="Reason").fill("old")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog", state="detached")
    page.wait_for_selector(f"tr[data-id='{ids[1]}']", state="detached")
    assert focused(page) == ids[2]


def test_keys_that_come_before_their_script_count_as_soon_as_it_is_there(window, wide):
    page = window(wide.pages)
    waiting = []

    def hold(route):
        waiting.append(route)

    page.route("**/keys.js", hold)
    page.goto(wide.pages.address + "procedures?owner=batch")
    page.wait_for_selector("tr[data-id]")
    page.keyboard.press("j")
    page.keyboard.press("j")
    until(lambda: page.evaluate("1") and waiting)
    assert focused(page) == ""
    waiting.pop().continue_()
    until(lambda: focused(page) == row_ids(page)[1])


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
    name = focus_row(page, 0)
    with wide.client as client:
        client.pause("flaky", reason="so that something changes")
        client.resume("flaky")
    page.wait_for_selector("button.live.open")
    assert focused(page) == name
