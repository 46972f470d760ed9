"""Verbs from a page: each asks first, is done, and stands in the audit; many at once need an agreed count."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Store, until

UNRECORDED = ("Send a signal", "Acknowledge")
"""They are no repairs, and the audit does not have them."""


@pytest.fixture(scope="module")
def acted(chromium, tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("acted"), children=30)
    store.pages = store.page(tmp_path_factory.mktemp("acted-pages"))
    yield store
    assert store.pages.end() == 0
    store.end()


def ask(page, button, reason, name=None):
    """Open the dialog, give the reason, and confirm."""
    page.get_by_role("button", name=button, exact=True).first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Reason").fill(reason)
    if name == "Send":
        dialog.get_by_label("Value").fill('"paid"')
    dialog.get_by_role("button", name=name or button, exact=True).click()
    dialog.wait_for(state="detached")


@pytest.mark.parametrize(
    ("id", "button", "seen"),
    [
        ("flaky", "Pause", "paused"), ("flaky", "Resume", "retrying"),  ("flaky", "Abort", "FAILED"),
        ("wide.17", "Send a signal", "SUCCESS"), ("order-1", "Acknowledge", "SUCCESS"), ("crash-kill", "Bypass", "SUCCESS"),
    ],
)  # fmt: skip
def test_a_verb_asks_for_a_reason_and_is_done(window, acted, id, button, seen):
    page = window(acted.pages, f"procedures/{id}")
    reason = f"{button} of the test"
    ask(page, button, reason, "Send" if button == "Send a signal" else None)
    page.wait_for_selector(".note.good")
    page.wait_for_selector(f".under .badge:has-text('{seen}')")
    if button not in UNRECORDED:
        page.get_by_role("link", name="Audit").click()
        page.wait_for_selector(f"text={reason}")


def test_a_refused_verb_says_why_in_its_dialog(window, acted):
    page = window(acted.pages, "procedures/wide")
    page.wait_for_selector(".verbs button")
    page.evaluate(
        "import(document.baseURI + 'static/app/main.js').then(({ app }) => import(document.baseURI + 'static/app/verbs.js').then(({ askVerb }) => askVerb(app, 'kill', 'wide')))"
    )
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Kill the step").click()
    dialog.get_by_role("alert").wait_for()
    assert "no worker has a step of it" in dialog.inner_text()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


def test_a_poisoned_key_is_given_back(window, acted):
    page = window(acted.pages, "locks")
    ask(page, "Clear shop/items", "looked after", "Clear")
    page.wait_for_selector("text=poisoned key", state="detached")


def test_many_are_acted_on_after_their_count_was_agreed(window, acted):
    page = window(acted.pages, "procedures?owner=batch&state=SUCCESS")
    page.get_by_label("Choose all shown").check()
    page.get_by_role("button", name="Choose all that match").click()
    page.wait_for_selector("text=All that match")
    page.get_by_role("toolbar").get_by_role("button", name="Delete …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("heading", name="Delete: 60 procedures").wait_for()
    # Meanwhile the count changes: nothing is done before it is agreed again.
    with acted.client as client:
        client.delete("part-000", reason="one less")
    dialog.get_by_role("textbox", name="Reason").fill("old ones")
    dialog.get_by_role("button", name="Delete: 60").click()
    dialog.get_by_role("alert").wait_for()
    assert "there are 59 instead of 60" in dialog.inner_text()
    dialog.get_by_role("button", name="Delete: 59").click()
    dialog.get_by_text("59 of 59 asked, 0 refused; finished").wait_for()
    dialog.get_by_role("button", name="Close").click()
    page.wait_for_selector(".empty:has-text('Nothing matches')")
    with acted.client as client:
        assert list(client.list(owner="batch")) == []


def test_a_page_that_only_reads_has_no_verbs(window, acted, tmp_path):
    pages = acted.page(tmp_path, "--read-only")
    try:
        page = window(pages, "procedures/wide")
        page.wait_for_selector(".why-box")
        assert page.locator(".verbs button, .repairs button").count() == 0
        assert page.get_by_text("read-only").count() == 1
        page.keyboard.press("a")
        page.get_by_role("dialog").wait_for()
        assert "read-only" in page.get_by_role("dialog").inner_text()
        page.goto(pages.address + "procedures")
        page.wait_for_selector("tbody tr")
        assert page.locator("tbody input[type=checkbox]").count() == 0
        status = page.evaluate(
            "fetch('api/v1/procedures/wide/pause', {method: 'POST', headers: {'X-Actorproc': '1', 'Content-Type': 'application/json'}, body: '{}'}).then((answer) => answer.status)"
        )
        assert status == 403
    finally:
        pages.end()


def test_another_site_can_do_nothing(window, acted, chromium):
    """A page of another port of the same host is of the same site, but not of the same origin."""
    import http.server
    import threading

    window(acted.pages)
    context = chromium.contexts[-1]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    server.RequestHandlerClass.log_message = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        evil = context.new_page()
        evil.goto(f"http://127.0.0.1:{server.server_address[1]}/")
        done = evil.evaluate(
            """(address) => fetch(address + "api/v1/procedures/wide/abort", {method: "POST", mode: "no-cors", credentials: "include", headers: {"Content-Type": "text/plain"}, body: "{}"}).then((answer) => answer.type, (error) => String(error))""",
            acted.pages.address,
        )
        assert done == "opaque" or "TypeError" in done
        read = evil.evaluate(
            "(address) => fetch(address + 'api/v1/status', {credentials: 'include'}).then(() => 'read', () => 'refused')",
            acted.pages.address,
        )
        assert read == "refused"
    finally:
        server.shutdown()
        server.server_close()
    with acted.client as client:
        until(lambda: client.info("wide").phase in ("suspended", "done"))
        assert not client.info("wide").aborting
