"""The page below a path of another application: links under every kind of prefix, middleware, and logins of hosts."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount

from actorproc.api.manager import ProcedureManager
from actorproc.web import create_app
from tests.examples.test_web_examples import running
from tests.web.test_live import Stream, open_streams, served, until

pytestmark = pytest.mark.processes
EXAMPLES = Path(__file__).parents[2] / "examples"
BOUND = 60.0


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("mounted") / "store"
    ProcedureManager(path, workers=1).start().stop()
    return path


def stripping(app, prefix):
    """A proxy that takes a prefix away before it passes a request on."""

    async def proxy(scope, receive, send):
        if scope["type"] == "http" and scope["path"].startswith(f"{prefix}/"):
            path = scope["path"].removeprefix(prefix)
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await app(scope, receive, send)

    return proxy


def rooted(app, root):
    """A server that is told its prefix, as ``uvicorn --root-path`` is."""

    async def server(scope, receive, send):
        await app({**scope, "root_path": root, "path": root + scope["path"]}, receive, send)

    return server


def shapes(path):
    """Applications by the base of their links."""
    plain = {"authorize": "host"}
    mounted = FastAPI()
    mounted.mount("/ops", create_app(path, **plain))
    deep = Starlette(routes=[Mount("/a", routes=[Mount("/ops/", create_app(path, **plain))])])
    both = FastAPI()
    both.mount("/ops", create_app(path, **plain))
    named = create_app(path, public_url="https://ops.test/deep/page", **plain)
    return {
        "alone": (create_app(path, **plain), "/"),
        "mounted": (mounted, "/ops/"),
        "mounted twice": (deep, "/a/ops/"),
        "a proxy that strips": (stripping(create_app(path, prefix="/ops/x/", **plain), "/ops/x"), "/ops/x/"),
        "a proxy that does not": (create_app(path, prefix="/ops/x", **plain), "/ops/x/"),
        "mounted behind a proxy that strips": (stripping(rooted(both, "/x"), "/x"), "/x/ops/"),
        "an address that is told": (stripping(named, "/deep/page"), "/deep/page/"),
    }


SHAPES = tuple(shapes("state"))


async def _crawl(app, base):
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://ops.test") as client:
        for page in ("", "procedures", "procedures/a%20b/steps/3", "locks/a%2Fb", "nothing/at/all"):
            shell = await client.get(f"{base}{page}")
            assert shell.status_code == (404 if page == "nothing/at/all" else 200), (base, page)
            (found,) = re.findall(r'<base href="([^"]*)">', shell.text)
            assert found == base
            for link in re.findall(r'(?:src|href)="([^"]+)"', shell.text):
                if link != found:
                    assert not link.startswith("/"), link
                    assert (await client.get(f"{base}{link}")).status_code == 200, link
        assert (await client.get(f"{base}api/v1/status")).json()["object"] == "status"
        assert (await client.get(f"{base}static/app/main.js")).status_code == 200


@pytest.mark.parametrize("name", SHAPES)
def test_every_link_leads_somewhere_below_every_kind_of_prefix(path, name):
    import asyncio

    app, base = shapes(path)[name]
    asyncio.run(_crawl(app, base))


def test_a_path_that_only_begins_like_the_prefix_is_another_one(path):
    import asyncio

    async def ask():
        app = create_app(path, authorize="host", prefix="/ops")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://ops.test") as client:
            return [(await client.get(part)).status_code for part in ("/ops", "/ops/", "/opsx", "/opsx/api/v1/status")]

    assert asyncio.run(ask()) == [200, 200, 404, 404]


class Eats(BaseHTTPMiddleware):
    """Logging and logins of many programs are made so; it stands between a stream and its browser."""

    async def dispatch(self, request, call_next):
        return await call_next(request)


@pytest.mark.parametrize("middleware", [[Eats], [GZipMiddleware], [Eats, GZipMiddleware, Eats]], ids=str)
def test_events_come_at_once_through_middleware_and_streams_end_with_their_browsers(path, middleware):
    pages = create_app(path, authorize="host")
    app = Starlette(routes=[Mount("/ops", pages)], middleware=[Middleware(kind) for kind in middleware])
    with served(app) as port:
        began = time.monotonic()
        with open_streams(port, "status", 3, path="/ops/events", headers={"Accept-Encoding": "gzip"}) as found:
            for stream in found:
                assert stream.until("hello")["manager"] == "down"
            assert time.monotonic() - began < 5
            until(lambda: len(pages.hub.streams) == 3)
        until(lambda: not pages.hub.streams)


def test_a_second_running_is_harmless_and_the_page_opens_again(path):
    import asyncio

    async def work():
        app = create_app(path, authorize="host")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://ops.test") as client:
            async with app.running(), app.running():
                first = await client.get("/api/v1/status")
            return first.status_code, (await client.get("/api/v1/status")).status_code

    assert asyncio.run(work()) == (200, 200)


def test_a_fastapi_application_with_the_page_behind_its_login(tmp_path, monkeypatch):
    monkeypatch.setenv("STATE", str(tmp_path / "state"))
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    spec = importlib.util.spec_from_file_location("dashboard_app", EXAMPLES / "11_dashboard" / "app.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "dashboard_app", module)
    spec.loader.exec_module(module)
    sys.dont_write_bytecode = before
    module.manager.__class__  # noqa: B018 - it is not started: the lifespan does that
    with served(module.app) as port:
        site = f"http://127.0.0.1:{port}"
        with module.manager, httpx.Client(base_url=site) as client:
            own = {"X-Actorproc": "1", "Origin": site}
            assert client.get("/ops/api/v1/status").status_code == 401
            client.post("/login/guest")
            client.post("/reports/may", json=[3, 1, 2])
            until(lambda: client.get("/ops/api/v1/procedures/may").json()["state"] == "SUCCESS")
            assert client.get("/ops/api/v1/procedures/may").json()["output"] == [1, 2, 3]
            assert client.post("/ops/api/v1/procedures/may/abort", json={}, headers=own).status_code == 403
            client.post("/login/ada")
            assert (
                client.post("/ops/api/v1/procedures/may/abort", json={}, headers=own).json()["result"]
                == "has ended already"
            )


def test_django_with_a_real_login_and_a_stream_that_ends_with_the_session(tmp_path):
    example = EXAMPLES / "10_django"
    variables = {
        "SHOP_DIRECTORY": str(tmp_path),
        "DJANGO_SUPERUSER_PASSWORD": "a long one",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    _manage(example, variables, "migrate", "--run-syncdb")
    _manage(example, variables, "createsuperuser", "--noinput", "--username", "ada", "--email", "a@example.org")
    ProcedureManager(tmp_path / "state", workers=1).start().stop()
    words = ("shop.asgi:application", "--port", "0", "--timeout-graceful-shutdown", "2", "--lifespan", "off")
    with running("uvicorn", *words, cwd=example, says=r"running on http://127.0.0.1:(\d+)", **variables) as (_, found):
        port = int(found[1])
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=BOUND) as client:
            assert client.get("/ops/api/v1/status").status_code == 401
            assert client.get("/ops/").status_code == 200
            assert client.post("/login", data={"name": "ada", "password": "wrong"}).status_code == 403
            assert client.post("/login", data={"name": "ada", "password": "a long one"}).status_code == 200
            assert client.get("/ops/api/v1/session").json()["user"] == "ada"
            cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in client.cookies.jar)
            stream = Stream(port, "status", path="/ops/events", headers={"Authorization": "", "Cookie": cookies})
            assert stream.until("hello")
            client.post("/logout")
            assert "logged in" in stream.until("bye")["says"]
            stream.close()
            assert client.get("/ops/api/v1/status", headers={"Cookie": cookies}).status_code == 401


def _manage(folder, variables, *words):
    import os
    import subprocess

    subprocess.run(
        [sys.executable, "manage.py", *words], cwd=folder, env=os.environ | variables, check=True, capture_output=True
    )
