"""Metrics in an application of the program: one line, the manager's values in every process, and no login."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from actorproc import Procedure, ProcedureManager, Status
from actorproc.web import create_metrics_app
from tests.kit.exposition import families

pytestmark = pytest.mark.processes


class Quick(Procedure):
    def execute(self, ctx):
        return Status.done()


def scrape(app, path, method="GET", **headers):
    async def ask():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://host.test", headers=headers) as client:
            return await client.request(method, path)

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    with ProcedureManager(tmp_path_factory.mktemp("scraped") / "store", procedures=[Quick], workers=1) as manager:
        for _ in range(3):
            manager.run(Quick(), timeout=60)
        yield manager


def fastapi(source):
    app = FastAPI()
    app.add_route("/metrics", create_metrics_app(source))
    return app


def starlette(source):
    return Starlette(routes=[Route("/metrics", create_metrics_app(source))])


def mounted(source):
    return Starlette(routes=[Mount("/metrics/", create_metrics_app(source)), Route("/", PlainTextResponse("home"))])


def alone(source):
    return create_metrics_app(source)


@pytest.mark.parametrize("make", [fastapi, starlette, mounted, alone])
@pytest.mark.parametrize("place", ["manager", "path"])
def test_one_line_adds_the_metrics_of_the_manager(manager, make, place):
    app = make(manager if place == "manager" else manager._path)

    answers = [scrape(app, "/metrics/" if make is mounted else "/metrics") for _ in range(2)]

    for answer in answers:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        found = families(answer.text)
        assert found["actorproc_manager_up"].samples[0].value == 1
        (run,) = found["actorproc_steps_run_total"].samples
        assert (run.labels, run.value) == ({"type": Quick.type_name}, 3)


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("POST", 405), ("DELETE", 405)])
def test_scrapers_ask_with_get_and_head(manager, method, status):
    answer = scrape(create_metrics_app(manager), "/", method)

    assert answer.status_code == status
    assert (answer.headers.get("allow") == "GET, HEAD") == (status == 405)


def test_the_text_is_packed_where_the_scraper_takes_that(manager):
    packed = scrape(create_metrics_app(manager), "/", **{"Accept-Encoding": "gzip"})
    plain = scrape(create_metrics_app(manager), "/", **{"Accept-Encoding": "identity"})

    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert int(packed.headers["content-length"]) < len(plain.content) / 3
    assert families(packed.text).keys() == families(plain.text).keys()


def test_without_a_manager_or_a_store_a_scrape_says_so(tmp_path):
    app = create_metrics_app(tmp_path / "none yet")
    ProcedureManager(tmp_path / "stopped", procedures=[Quick], workers=1).start().stop()

    for found in (app, create_metrics_app(tmp_path / "stopped")):
        answer = scrape(found, "/")
        assert answer.status_code == 200
        assert families(answer.text)["actorproc_manager_up"].samples[0].value == 0
