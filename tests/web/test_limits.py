"""Limits of the page: requests at once, time for an answer, and what the page costs when nothing asks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import httpx
import pytest

from actorproc.api.manager import ProcedureManager
from actorproc.web import app as application, create_app, http as requests


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("limits") / "store"
    ProcedureManager(path, workers=1).start().stop()
    return path


async def answers(app, count):
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://page.test", timeout=30) as client:
        return await asyncio.gather(*(client.get("/api/v1/procedures") for _ in range(count)))


def test_requests_that_are_too_many_are_refused_and_the_others_are_answered(path):
    app = create_app(path, authorize="host")
    gate, real = threading.Event(), app.board.source.read
    app.board.source.read = lambda ask, **options: (gate.wait(20), real(ask, **options))[1]

    async def work():
        found = asyncio.ensure_future(answers(app, 80))
        while app._waiting < application._QUEUE:  # noqa: ASYNC110 - the page tells of no such moment
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        gate.set()
        return await found

    statuses = [found.status_code for found in asyncio.run(work())]
    assert statuses.count(200) == application._QUEUE
    assert statuses.count(429) == 80 - application._QUEUE


def test_an_answer_that_takes_too_long_is_given_up_and_says_so(path, monkeypatch):
    monkeypatch.setattr(application, "WITHIN", 0.2)
    app = create_app(path, authorize="host")
    gate = threading.Event()
    app.board.source.read = lambda ask, **options: gate.wait(20)

    (found,) = asyncio.run(answers(app, 1))
    gate.set()

    assert (found.status_code, found.json()["code"]) == (503, "too-late")
    assert found.headers["retry-after"] == "1"


def test_a_body_that_comes_too_slowly_is_given_up(path, monkeypatch):
    monkeypatch.setattr(requests, "WITHIN", 0.2)
    app = create_app(path, authorize="host")

    async def work():
        sent = []
        headers = [
            (b"origin", b"http://x"),
            (b"host", b"x"),
            (b"x-actorproc", b"1"),
            (b"content-type", b"application/json"),
        ]
        scope = {"type": "http", "method": "POST", "path": "/api/v1/bulk", "headers": headers, "query_string": b""}

        async def receive():
            await asyncio.sleep(0.05)
            return {"type": "http.request", "body": b" ", "more_body": True}

        async def send(message):
            sent.append(message)

        await app({**scope, "root_path": "", "scheme": "http", "server": ("x", 80)}, receive, send)
        return sent[0]["status"]

    assert asyncio.run(work()) == 503


def test_importing_actorproc_loads_nothing_of_the_page():
    """The place of a page, which `why` looks up, needs no server either."""
    program = "import actorproc, actorproc.web.place, sys; print([n for n in sys.modules if n.split('.')[0] in ('starlette', 'uvicorn', 'anyio')])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
