"""Pages over real stores: in this process without a socket, or behind a real server."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager

import httpx
import pytest

from actorproc.web import create_app
from actorproc.web.app import PageApp
from tests.kit.warm_workers import warm_workers

__all__ = ["HOST", "TOKEN", "Loop", "Page", "opened", "page_of", "shut_pages", "warm_workers"]

TOKEN = "t0ken-of-the-tests-" + "x" * 24
HOST = "page.test"


class Loop:
    """An event loop in a thread."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def close(self):
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Page:
    """A page without a socket: requests go to the application itself."""

    def __init__(self, app, loop, host=HOST, token=TOKEN):
        self.app = app
        self._loop = loop
        self._host = host
        self.given = {"Authorization": f"Bearer {token}"} if token is not None else {}

    def request(self, method, path, headers=None, **options):
        async def send():
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=True)
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{self._host}") as client:
                return await client.request(method, path, headers={**self.given, **(headers or {})}, **options)

        return self._loop.run(send())

    def get(self, path, **options):
        return self.request("GET", f"/api/v1/{path}", **options)

    def post(self, path, body=None, headers=None, **options):
        own = {"X-Actorproc": "1", "Origin": f"http://{self._host}", **(headers or {})}
        return self.request("POST", f"/api/v1/{path}", headers=own, json=body or {}, **options)

    def close(self):
        self._loop.run(self.app.close())
        self.app.shut()


@contextmanager
def opened(source, **options):
    """A page over a store or a manager."""
    loop = Loop()
    options = {"hosts": [HOST], **options}
    if "authorize" not in options:
        options = {"token": TOKEN, **options}
    page = Page(create_app(source, **options), loop, token=options.get("token"))
    try:
        yield page
    finally:
        page.close()
        loop.close()


@pytest.fixture(autouse=True)
def shut_pages(monkeypatch):
    """Let go of the threads and the stores of all pages that a test has made."""
    made, begin = [], PageApp.__init__

    def noted(app, *parts, **options):
        begin(app, *parts, **options)
        made.append(app)

    monkeypatch.setattr(PageApp, "__init__", noted)
    yield
    for app in made:
        app.shut()
        app.board.source.close()


@pytest.fixture
def page_of():
    return opened
