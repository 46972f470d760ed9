"""Answers of the page's API: what a store holds, with a manager and without one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from actorproc.api.manager import ProcedureManager
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.authoring.status import Status
from actorproc.web import create_app
from actorproc.web.api import filters
from tests.web.conftest import HOST, TOKEN, opened


@dataclass
class Greeting(Procedure):
    name: str = ""

    def execute(self, ctx):
        ctx.log.info("greets %s", self.name)
        return Status.done(f"hello {self.name}")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("web") / "store"
    with ProcedureManager(path, procedures=[Greeting], workers=1) as manager:
        for number in range(5):
            manager.submit(Greeting(f"n{number}"), id=f"greet-{number}").result(20)
    return path


@pytest.fixture(scope="module")
def page(store):
    with opened(store) as found:
        yield found


def test_the_status_of_a_stopped_store_says_that_no_manager_runs(page):
    found = page.get("status").json()

    assert (found["object"], found["manager"], found["live"]) == ("status", "down", False)
    assert found["states"] == {"SUCCESS": 5}
    assert found["do"].endswith("run MODULE")


def test_a_list_is_paged_newest_first_and_has_its_total(page):
    first = page.get("procedures?limit=3&order=newest").json()
    second = page.get(f"procedures?limit=3&order=newest&after={first['next']}").json()

    assert [row["id"] for row in first["items"] + second["items"]] == [f"greet-{n}" for n in (4, 3, 2, 1, 0)]
    assert (first["total"], second["next"]) == (5, None)


NEVER, ALWAYS = "1970-01-01T00:00:01Z", "9999-12-31T23:59:59.5Z"


@pytest.mark.parametrize("path", ["procedures?{}", "procedures/count?{}", "activity?{}"])
@pytest.mark.parametrize("name", ["since", "until", "changed_since", "changed_until"])
@pytest.mark.parametrize(
    "text", [NEVER, ALWAYS, "1960-01-01", "0001-01-01T00:00Z", "0001-01-01T00:00%2B14:00", "1000000000"]
)
def test_any_date_is_a_moment(page, path, name, text):
    if path.startswith("activity") and name.startswith("changed"):
        assert page.get(path.format(f"{name}={text}")).status_code == 422
        return
    found = page.get(path.format(f"{name}={text}"))

    assert found.status_code == 200, found.text
    if not path.startswith("activity"):
        is_all = name.endswith("since") != (text == ALWAYS)
        seen = found.json()["count"] if "count" in path else len(found.json()["items"])
        assert seen == (5 if is_all else 0)


@pytest.mark.parametrize(
    "text", ["1", "0", "999999999", "-1", "1e9", "999999999999999999", "10000-01-01", "nan", "inf"]
)
def test_a_number_that_is_a_duration_and_what_is_no_date_are_refused(page, text):
    found = page.get(f"procedures?changed_until={text}")

    assert (found.status_code, found.json()["code"]) == (422, "invalid")


def test_the_shell_is_the_same_for_every_page_and_knows_its_prefix(store):
    with opened(store, prefix="/ops/x") as page:
        found = page.request("GET", "/ops/x/procedures/greet-1", headers={"Authorization": ""})

        assert '<base href="/ops/x/">' in found.text
        assert found.headers["content-security-policy"].startswith("default-src 'none'")
        assert page.request("GET", "/ops/x/static/app/main.js").headers["content-type"].startswith("text/javascript")
        assert page.request("GET", "/ops/x/nothing").status_code == 404


def test_the_token_is_swapped_for_a_cookie_and_the_cookie_opens_the_api(page):
    asked = {"X-Actorproc": "1", "Origin": f"http://{HOST}", "Authorization": ""}
    assert page.get("status", headers={"Authorization": ""}).status_code == 401
    assert page.request("POST", "/session", headers=asked, json={"token": "wrong"}).status_code == 401

    found = page.request("POST", "/session", headers=asked, json={"token": TOKEN})
    cookie = found.headers["set-cookie"].partition(";")[0]

    assert found.json()["object"] == "session"
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {
        part.strip() for part in found.headers["set-cookie"].split(";")
    }
    assert page.get("status", headers={"Authorization": "", "Cookie": cookie}).status_code == 200


def test_an_application_without_a_login_is_refused_in_words(store):
    with pytest.raises(Exception, match="say who may come in"):
        create_app(store)


def pages(page, query):
    """Ids on all pages of a list, the most procedures that one page looked at, and the number of pages."""
    found, looked, number, after = [], 0, 0, None
    while True:
        answer = page.get(f"procedures?{query}" + (f"&after={after}" if after else "")).json()
        found += [item["id"] for item in answer["items"]]
        looked, number, after = max(looked, answer["searched"]), number + 1, answer["next"]
        if after is None:
            return found, looked, number


@pytest.mark.parametrize("order", ["trouble", "newest", "oldest"])
@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("owner=nothing", []),
        ("owner=ada", ["many-03", "many-19"]),
        ("prefix=many-1", [f"many-{number}" for number in range(10, 20)]),
        ("q=many-07", ["many-07"]),
        ("troubled=1", []),
        ("roots=1&owner=ada&state=SUCCESS", ["many-03", "many-19"]),
    ],
)
def test_a_filter_that_matches_little_reads_a_bounded_part_of_the_store_for_each_page(
    many, monkeypatch, order, query, wanted
):
    monkeypatch.setattr(filters, "LOOKED", 7)

    found, looked, number = pages(many, f"{query}&order={order}")

    assert sorted(found) == wanted
    assert looked <= 7
    assert number > 1 or query == "troubled=1"


def test_all_that_match_are_only_told_where_that_is_a_bounded_work(many, monkeypatch):
    monkeypatch.setattr(filters, "ALL_LOOKED", 7)

    counted = many.get("procedures/count?owner=ada").json()
    assert (counted["count"], counted["is_exact"]) == (1, False)
    refused = many.post("bulk", {"verb": "ack", "filter": {"owner": "ada"}, "dry_run": True})
    assert refused.status_code == 422
    assert "narrow the filter" in refused.json()["do"]


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "store"
    with ProcedureManager(path, procedures=[Greeting], workers=1) as manager:
        handles = [
            manager.submit(Greeting(), id=f"many-{number:02}", owner="ada" if number in (3, 19) else None)
            for number in range(20)
        ]
        for handle in handles:
            handle.result(30)
    with opened(path) as found:
        yield found
