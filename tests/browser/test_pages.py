"""Each page in a real browser: it can be read by all, in both schemes and all sizes, and leads nowhere wrong."""

from __future__ import annotations

import re
from urllib.parse import quote, urljoin

import pytest

from tests.browser.conftest import in_page, picture, until
from tests.browser.depot import EVIL, LONG

AXE_RUN = "axe.run({resultTypes: ['violations'], elementRef: false})"
SIZES = ((360, 640), (1280, 800), (3840, 2160))
PAGES = {
    "overview": "", "procedures": "procedures", "nothing-found": "procedures?q=nothing-has-this", "why": "procedures/read-eu",
    "failed": "procedures/order-2", "crashed": "procedures/crash-segv", "steps": "procedures/order-1/steps", "record": "procedures/order-1/steps/2",
    "state": "procedures/order-1/state?n=3", "timeline": "procedures/order-2/timeline", "tree": "procedures/wide/tree",
    "stack": "procedures/read-us/stack", "logs": "procedures/read-us/logs", "audit": "procedures/order-2/audit", "locks": "locks",
    "key": f"locks/{quote('region/eu', safe='')}", "workers": "workers", "activity": "activity", "types": "types",
    "type": "types/tests.browser.depot.Order", "hostile": f"procedures/{quote(LONG, safe='')}", "no-page": "nothing/here", "unknown": "procedures/none",
}  # fmt: skip
SHOWN = {
    "overview": "light",
    "procedures": "light",
    "why": "light",
    "locks": "dark",
    "state": "light",
    "workers": "light",
}
"""Pages with a picture in the documentation, and its scheme."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_by_all_in_both_schemes_and_all_sizes(window, pages, axe, name):
    page = window(pages, PAGES[name])
    page.evaluate(axe)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        if SHOWN.get(name) == scheme:
            picture(page, name)
        found = page.evaluate(AXE_RUN)["violations"]
        assert [(one["id"], one["nodes"][0]["html"], one["nodes"][0]["failureSummary"]) for one in found] == []
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"wider than {width}"
    assert page.locator("main h1").count() == 1
    assert page.title() not in ("", "actorproc")


@pytest.mark.parametrize("kind", ["reading", "acting"])
def test_dialogs_can_be_read_by_all(window, pages, axe, kind):
    page = window(pages, "procedures/read-us")
    page.keyboard.press("?" if kind == "reading" else "a")
    page.wait_for_selector("dialog[open]")
    if kind == "acting":
        page.get_by_role("dialog").get_by_role("button", name="Kill the step").click()
        page.wait_for_selector("dialog input[name=reason]")
        picture(page, "kill")
    page.evaluate(axe)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert [one["id"] for one in page.evaluate(AXE_RUN)["violations"]] == []


def test_every_link_below_a_prefix_leads_to_a_page(window, store, tmp_path):
    pages = store.page(tmp_path, "--prefix", "/ops/x")
    try:
        assert pages.address.endswith("/ops/x/")
        page = window(pages)
        todo, seen, links = ["."], set(), set()
        while todo and len(seen) < 40:
            path = todo.pop(0)
            page.goto(urljoin(pages.address, path))
            page.wait_for_selector("main h1")
            seen.add(_kind(path))
            for link in page.eval_on_selector_all(
                "a[href]", "all => all.map((one) => new URL(one.getAttribute('href'), document.baseURI).href)"
            ):
                assert link.startswith(pages.address), f"{path} leads to {link}"
                relative = link.removeprefix(pages.address)
                links.add(relative)
                if _kind(relative) not in seen and not relative.startswith("#"):
                    seen.add(_kind(relative))
                    todo.append(relative)
        answers = {
            link: page.request.get(urljoin(pages.address, link.partition("#")[0])).status for link in sorted(links)
        }
        assert {link for link, status in answers.items() if status != 200} == set()
        assert {_kind(link) for link in links} >= {
            "procedures",
            "procedures/*",
            "procedures/*/tree",
            "locks/*",
            "workers",
            "types/*",
        }
    finally:
        assert pages.end() == 0


def _kind(path):
    """Pages of one form, whatever their id and number."""
    path = re.sub(r"\?.*", "", path)
    path = re.sub(r"^(procedures|locks|types)/[^/]+", r"\1/*", path)
    return re.sub(r"/\d+$", "/*", path)


def test_text_of_users_is_text(window, pages):
    page = window(pages, f"procedures?owner={quote(EVIL, safe='')}")
    page.wait_for_selector("tbody tr")
    page.goto(pages.address + f"procedures/{quote(LONG, safe='')}")
    page.wait_for_selector("dl.facts")
    text = page.inner_text("main")

    assert "<img src=x onerror=alert(1)></script>\\x1b[31m\\u202eowned" in text
    assert page.locator("main img, main script").count() == 0
    page.goto(pages.address + "procedures/flaky")
    page.wait_for_selector("text=onerror")
    assert "\u202e" not in page.inner_text("main")


def test_a_timeline_says_in_words_for_what_it_waited(window, pages):
    page = window(pages)
    for id, words in (
        ("read-eu", "waits for a lock"),
        ("flaky", "waits for the next attempt"),
        ("wide", "waits for children"),
        (quote(LONG, safe=""), "waits for an event"),
    ):
        page.goto(f"{pages.address}procedures/{id}/timeline")
        page.wait_for_selector(f".legend li:has-text('{words}')")
        page.get_by_text("As a table").click()
        page.wait_for_selector(f"table td:has-text('{words}')")


@pytest.mark.parametrize("workers", ["all", "none"])
def test_the_number_of_workers_is_changed_from_that_which_the_manager_was_asked_for(window, pages, workers):
    page = window(pages)
    answer = page.evaluate("fetch('api/v1/workers').then((one) => one.json())") | {"slots": 7}
    assert answer["items"]
    if workers == "none":
        answer["items"] = []
    sent = []

    def take(route):
        sent.append(route.request.post_data_json)
        route.fulfill(json={"result": "5 workers"})

    page.route("**/api/v1/workers", lambda route: route.fulfill(json=answer))
    page.route("**/manager/resize", take)
    page.keyboard.press("p")
    page.wait_for_selector("button.live:has-text('paused')")
    in_page(page, "app.session.verbs.push('resize')")
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.get_by_role("button", name="Resize …").click()
    field = page.get_by_role("dialog").get_by_label("Workers")
    assert field.input_value() == "7"
    assert page.get_by_role("dialog").get_by_label("Reason").count() == 0
    field.fill("5")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog", state="detached")
    assert sent == [{"workers": 5}]


def test_secrets_are_masked(window, pages):
    page = window(pages, "procedures/order-1/state?n=3")
    page.wait_for_selector("dl.value-tree")

    assert "4711" not in page.content()
    assert "**********" in page.inner_text("main")


def test_filters_stand_in_the_address_and_the_back_button_undoes_them(window, pages):
    page = window(pages, "procedures")
    page.select_option("select[name=state]", "FAILED")
    page.wait_for_url("**/procedures?state=FAILED")
    page.wait_for_selector("text=crash-segv")
    page.fill("input[name=q]", "order")
    page.keyboard.press("Enter")
    page.wait_for_url("**/procedures?state=FAILED&q=order")
    until(lambda: page.locator("tbody tr").count() == 1)
    page.go_back()
    page.wait_for_url("**/procedures?state=FAILED")
    until(lambda: page.locator("tbody tr").count() == 3)
    assert page.input_value("input[name=q]") == ""
    page.reload()
    page.wait_for_selector("tbody tr")
    assert page.input_value("select[name=state]") == "FAILED"


def test_the_token_leaves_the_address_and_a_window_without_a_session_says_so(window, pages, chromium):
    page = window(pages)
    assert "token" not in page.url
    assert pages.token not in page.evaluate(
        "JSON.stringify(history.state) + document.cookie + JSON.stringify({...localStorage})"
    )

    context = chromium.new_context()
    other = context.new_page()
    asked = []
    other.on("request", lambda request: asked.append(request.url))
    other.goto(pages.address + "procedures")
    other.wait_for_selector("text=This link has expired")
    other.goto(pages.address + "#token=wrong")
    other.wait_for_selector("text=This link has expired")
    assert len([url for url in asked if "/session" in url]) == 2
    context.close()


def test_a_browser_without_scripts_is_told_the_command(chromium, pages):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages.address)
    assert "actorproc status" in page.inner_text("body")
    context.close()
