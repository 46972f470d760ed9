"""Admission to the page: every route with every method, and what each rule refuses."""

from __future__ import annotations

import itertools
import json
import logging
import re
from pathlib import Path

import pytest

from actorproc.api.manager import ProcedureManager
from actorproc.errors import UsageError
from actorproc.web import create_app
from actorproc.web.access import cookie_name
from actorproc.web.api.table import OPERATIONS
from tests.web.conftest import HOST, TOKEN, opened

STATIC = Path(__file__).parents[2] / "actorproc" / "web" / "static"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
VALUES = {"id": "order-1", "n": "1", "type": "Order"}
ROUTES = sorted({f"/api/v1{op.path}".format(**VALUES) for op in OPERATIONS})
CLOSED = [*ROUTES, "/api/v1/session", "/api/v1/openapi.json", "/api/v1/nothing", "/api", "/metrics", "/events"]
"""Paths that answer nothing without a session."""
OPEN = ["/", "/procedures/order-1", "/locks/a%2Fb", "/nothing", "/static/index.html", "/static/app/main.js"]
"""Paths without any data."""
OWN = {"X-Actorproc": "1", "Origin": f"http://{HOST}", "Content-Type": "application/json"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("access") / "store"
    ProcedureManager(path, workers=1).start().stop()
    return path


@pytest.fixture(scope="module")
def page(path):
    with opened(path) as found:
        yield found


def refused(response, *statuses):
    """An answer that refuses, as an object where it has a body, and tells nothing of the store."""
    assert response.status_code in statuses, (response.request.method, response.request.url, response.status_code)
    if response.request.method != "HEAD":
        found = response.json()
        assert (found["object"], bool(found["says"])) == ("error", True)


@pytest.mark.parametrize("route", CLOSED)
def test_s11_without_a_session_every_method_of_every_path_with_data_is_refused(page, route):
    for method, headers in itertools.product(METHODS, ({}, OWN)):
        for login in ({"Authorization": ""}, {"Authorization": "Bearer wrong"}, {"Authorization": "", "Cookie": "a=b"}):
            refused(page.request(method, route, headers={**headers, **login}), 401, 403, 405, 415)


@pytest.mark.parametrize("route", [*CLOSED, *OPEN, "/session"])
@pytest.mark.parametrize(
    "host", ["evil.test", f"{HOST}.", f"{HOST}.evil.test", f"evil.test/{HOST}", "", f"x@{HOST}", "[::1]", "page.test:x"]
)
def test_s10_a_name_that_is_not_ours_is_refused_before_anything_else(page, route, host):
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        if host == "page.test:x":
            continue  # without a port of its own a name has any
        response = page.request(method, route, headers={**OWN, "Host": host})

        refused(response, 403)
        assert response.json()["code"] == "bad-host"


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("page.test:81", True),
        ("page.test:80", False),
        ("page.test", False),
        ("PAGE.TEST:81", True),
        ("page.test:81.", False),
    ],
)
def test_s10_a_name_with_a_port_of_its_own_has_this_port_alone(path, host, is_ours):
    with opened(path, hosts=["page.test:81"]) as page:
        assert (page.get("status", headers={"Host": host}).status_code == 200) == is_ours


FOREIGN = {
    "another site": {"Origin": "http://evil.test"},
    "another scheme of nothing": {"Origin": "ftp://page.test"},
    "null": {"Origin": "null"},
    "another port": {"Origin": "http://page.test:8000"},
    "a name with ours in front": {"Origin": "http://page.test.evil.test"},
    "caused by another site": {"Sec-Fetch-Site": "cross-site"},
    "caused by the same site": {"Sec-Fetch-Site": "same-site"},
    "both": {"Origin": "http://page.test", "Sec-Fetch-Site": "cross-site"},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN.keys())
@pytest.mark.parametrize(
    "route", ["/api/v1/status", "/api/v1/procedures/order-1/kill", "/api/v1/bulk", "/events", "/session"]
)
def test_s11_what_another_site_has_caused_is_refused_also_with_a_session(page, headers, route):
    for method in ("GET", "POST", "DELETE"):
        refused(page.request(method, route, headers={**OWN, **headers}, content="{}"), 403, 405)


def test_s11_a_change_needs_an_origin_unless_its_program_has_the_token_itself(page):
    cookie = session_of(page)
    bare = {name: value for name, value in OWN.items() if name != "Origin"}

    missing = page.request(
        "POST", "/api/v1/manager/pause", headers={**bare, "Authorization": "", "Cookie": cookie}, content="{}"
    )
    program = page.request("POST", "/api/v1/procedures/order-1/kill", headers=bare, content="{}")
    own = page.request(
        "POST", "/api/v1/manager/resume", headers={**OWN, "Authorization": "", "Cookie": cookie}, content="{}"
    )

    assert (missing.status_code, missing.json()["code"]) == (403, "bad-origin")
    assert program.status_code == 404  # there is no such procedure
    assert own.status_code == 200


def test_s11_a_cookie_alone_changes_nothing(page):
    cookie = {"Authorization": "", "Cookie": session_of(page), "Origin": f"http://{HOST}"}

    no_header = page.request(
        "POST", "/api/v1/manager/pause", headers={**cookie, "Content-Type": "application/json"}, content="{}"
    )
    form = page.request("POST", "/api/v1/manager/pause", headers={**cookie, "X-Actorproc": "1"}, data={"reason": "x"})
    text = page.request(
        "POST",
        "/api/v1/manager/pause",
        headers={**cookie, "X-Actorproc": "1", "Content-Type": "text/plain"},
        content="{}",
    )

    assert [no_header.status_code, form.status_code, text.status_code] == [403, 415, 415]
    assert page.get("status").json()["paused"] is None


def test_s11_reading_is_from_the_page_itself_or_from_a_typed_address(page):
    assert page.get("status", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert page.get("status", headers={"Sec-Fetch-Site": "none"}).status_code == 200
    assert page.request("GET", "/procedures/order-1", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def session_of(page):
    found = page.request("POST", "/session", headers={**OWN, "Authorization": ""}, json={"token": TOKEN})
    assert found.status_code == 200
    return found.headers["set-cookie"].partition(";")[0]


def test_s9_the_cookie_is_for_this_page_only_and_not_for_scripts(page):
    found = page.request("POST", "/session", headers={**OWN, "Authorization": ""}, json={"token": TOKEN})
    parts = [part.strip().lower() for part in found.headers["set-cookie"].split(";")]

    assert {"httponly", "samesite=strict", "path=/"} <= set(parts)
    assert TOKEN not in found.headers["set-cookie"]
    assert cookie_name("/a/store", 1) != cookie_name("/a/store", 2) != cookie_name("/b/store", 2)


def test_s9_of_the_cookies_of_pages_that_were_a_few_stay(page):
    old = "; ".join(f"actorproc_{number:012x}=x" for number in range(30))
    found = page.request("POST", "/session", headers={**OWN, "Authorization": "", "Cookie": old}, json={"token": TOKEN})

    gone = [text for text in found.headers.get_list("set-cookie") if "Max-Age=0" in text]
    assert len(gone) == 22


@pytest.mark.parametrize("url", [f"https://{HOST}:443/ops", f"https://{HOST.upper()}/ops/", f"https://{HOST}/ops"])
def test_s11_an_origin_is_compared_as_browsers_write_it(path, url):
    with opened(path, hosts=[HOST], public_url=url) as page:
        for origin, status in ((f"https://{HOST}", 404), (f"https://{HOST}:443", 403), (f"http://{HOST}", 403)):
            assert page.post("procedures/nothing/pause", headers={"Origin": origin}).status_code == status


def test_s9_behind_tls_the_cookie_is_for_tls(path):
    with opened(path, hosts=[HOST], public_url=f"https://{HOST}/ops/") as page:
        headers = {**OWN, "Origin": f"https://{HOST}", "Authorization": ""}
        found = page.request("POST", "/session", headers=headers, json={"token": TOKEN})

        assert {"Secure", "Path=/ops/"} <= {part.strip() for part in found.headers["set-cookie"].split(";")}
        assert page.request("POST", "/session", headers=OWN, json={"token": TOKEN}).status_code == 403


@pytest.mark.parametrize(
    "given", [None, "", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), 7, [TOKEN], {"a": 1}, "ü" * 40]
)
def test_s9_only_the_whole_token_is_the_token(page, given):
    found = page.request("POST", "/session", headers={**OWN, "Authorization": ""}, json={"token": given})

    refused(found, 401)
    assert "set-cookie" not in found.headers


@pytest.mark.parametrize("route", [op for op in OPERATIONS if op.method == "POST"], ids=lambda op: op.path)
def test_s12_a_page_that_only_reads_refuses_every_change_and_offers_none(path, route):
    with opened(path, read_only=True) as page:
        found = page.post(route.path.format(**VALUES).lstrip("/"), {})

        assert (found.status_code, found.json()["code"]) == (403, "read-only")
        assert page.get("session").json()["verbs"] == []


def test_s12_a_get_changes_nothing_and_a_head_has_no_body(page):
    before = page.get("status").json()
    for operation in OPERATIONS:
        if operation.method == "GET":
            head = page.request("HEAD", f"/api/v1{operation.path}".format(**VALUES))
            assert head.content == b""
        else:
            assert page.get(operation.path.format(**VALUES).lstrip("/")).status_code in (404, 405)
    after = page.get("status").json()

    assert {name: before[name] for name in ("states", "paused", "epoch", "procedures")} == {
        name: after[name] for name in ("states", "paused", "epoch", "procedures")
    }


@pytest.mark.parametrize("route", [*CLOSED[:4], *OPEN, "/session", "/events?topics=nonsense"])
def test_s13_every_answer_forbids_frames_inline_scripts_and_guesses(page, route):
    found = page.request("GET", route)
    policy = dict(part.strip().partition(" ")[::2] for part in found.headers["content-security-policy"].split(";"))

    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == policy["base-uri"] == "'self'"
    assert policy["frame-ancestors"] == policy["form-action"] == "'none'"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "no-referrer"
    assert found.headers["cross-origin-resource-policy"] == "same-origin"
    assert found.headers["cross-origin-opener-policy"] == "same-origin"
    assert found.headers["cache-control"] == ("no-cache" if route.startswith("/static/") else "no-store")
    assert not [name for name in found.headers if name.startswith("access-control-")]


def test_s13_no_answer_is_of_html_but_the_shell_which_holds_no_data(page):
    for route in ("/api/v1/procedures/<img src=x onerror=alert(1)>", "/api/v1/types/<script>", "/api/v1/<b>"):
        found = page.request("GET", route)
        assert found.headers["content-type"] == "application/json"
    shell = page.request("GET", "/procedures/<script>alert(1)<%2Fscript>")
    assert "alert(1)" not in shell.text


def test_s13_names_of_hosts_put_nothing_into_the_shell(path):
    with opened(path, title='"><script>alert(1)</script>') as page:
        assert "<script>alert(1)" not in page.request("GET", "/").text


def test_s13_scripts_and_styles_are_files_and_no_template_has_a_style():
    shell = (STATIC / "index.html").read_text()

    assert re.findall(r"<script(?![^>]*\bsrc=)", shell) == []
    assert re.findall(r"<style|\son\w+=|\sstyle=|https?://", shell) == []
    for file in STATIC.glob("app/**/*.js"):
        text = file.read_text()
        assert (
            re.findall(
                r"styleMap|\sstyle=|unsafeHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function",
                text,
            )
            == []
        ), file


@pytest.mark.parametrize(
    "name",
    ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "/etc/passwd", "app/../../app.py", "app", "", ".", "index.html%00"],
)
def test_s13_only_files_of_the_page_are_served(page, name):
    found = page.request("GET", f"/static/{name}")

    assert found.status_code in (200, 404)
    assert "PageApp" not in found.text


def test_s9_the_token_is_in_no_answer_and_in_no_log(path, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.WARNING, logger="httpx")  # of the test's own client
    with opened(path) as page:
        cookie = session_of(page)
        monkeypatch.setattr(page.app.board.source, "look", lambda: 1 / 0)
        answers = [
            page.get("status"),
            page.request("GET", f"/nothing?token={TOKEN}"),
            page.request("POST", "/session", headers=OWN, content=json.dumps({"token": TOKEN}) + "x"),
            page.get(f"procedures/{TOKEN[:20]}"),
            page.get("status", headers={"Cookie": cookie, "Authorization": ""}),
        ]

    told = "".join(f"{found.headers}{found.text}" for found in answers) + caplog.text
    assert TOKEN not in told
    assert cookie.partition("=")[2] not in told
    assert answers[0].status_code == 500
    assert "ZeroDivisionError" not in answers[0].text
    assert "ZeroDivisionError" in caplog.text


def test_s9_a_body_has_a_limit(page):
    long = page.request("POST", "/api/v1/bulk", headers=OWN, content=b"{" + b" " * (1 << 20) + b"}")
    said = page.request("POST", "/api/v1/bulk", headers={**OWN, "Content-Length": str(1 << 30)}, content=b"{}")
    deep = page.request("POST", "/api/v1/bulk", headers=OWN, content=b"[" * 100_000)
    other = page.request("POST", "/api/v1/bulk", headers=OWN, content=b"[1]")

    assert [found.status_code for found in (long, said, deep, other)] == [413, 413, 400, 400]


def test_s12_the_api_takes_no_classes_and_no_unknown_fields(page):
    for body in ({"module": "os"}, {"pickle": "gASV"}, {"reason": 7}, {"force": "yes"}):
        refused(page.post("procedures/order-1/abort", body), 422)
    assert not [operation for operation in OPERATIONS if "submit" in operation.path]


# ---------------------------------------------------------------- logins of a host
def test_s12_a_host_says_who_may_look_and_who_may_act(path):
    asked = []

    def authorize(request, verb, id):
        asked.append((verb, id))
        name = request.headers.get("x-user")
        return name if verb == "look" or name == "ops" else None

    with opened(path, authorize=authorize) as page:
        assert page.get("status").status_code == 401
        assert page.get("status", headers={"X-User": "eve"}).status_code == 200
        assert page.post("manager/pause", headers={"X-User": "eve"}).status_code == 403
        assert page.post("manager/pause", {"reason": "a night"}, headers={"X-User": "ops"}).status_code == 200
        assert page.get("activity", headers={"X-User": "eve"}).json()["items"][0]["by"] == "ops"
        assert page.post("procedures/order-1/kill", headers={"X-User": "ops"}).status_code == 404
        assert page.post("manager/resume", headers={"X-User": "ops"}).status_code == 200
    assert ("kill", "order-1") in asked
    assert {verb for verb, _ in asked} == {"look", "pause", "kill", "resume"}


@pytest.mark.parametrize("answer", [None, False, ""])
def test_s12_no_name_is_no_login(path, answer):
    async def authorize(request, verb, id):
        return answer

    with opened(path, authorize=authorize) as page:
        assert page.get("status").status_code == 401


def test_s12_an_authorize_that_fails_lets_nothing_pass(path, caplog):
    with opened(path, authorize=lambda request, verb, id: 1 / 0) as page:
        assert page.get("status").status_code == 500
    with opened(path, authorize=lambda request, verb, id: True) as page:
        assert page.get("status").status_code == 500
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"authorize": "host", "token": TOKEN},
        {"authorize": "host", "public_url": "ops.example.org"},
        {"authorize": "host", "prefix": "ops"},
    ],
)
def test_s12_an_application_says_who_may_come_in_or_is_refused(path, options):
    with pytest.raises(UsageError):
        create_app(path, **options)
