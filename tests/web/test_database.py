"""The page over a store in a database: a role that may only look, and two hosts of which the leading one is killed."""

from __future__ import annotations

import http.client
import json
import os
from urllib.parse import urlsplit

import pytest

from actorproc.web.place import place_of_page
from tests.databases import new_store
from tests.store.test_database_roles import made, urls  # noqa: F401 - fixtures
from tests.web.servers import MODULE, command, until

pytestmark = pytest.mark.processes


def ask(address, path, token, method="GET", body=None):
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    headers = {"Authorization": f"Bearer {token}", "X-Actorproc": "1", "Content-Type": "application/json"}
    connection.request(method, f"/api/v1/{path}", body, headers=headers)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def ended(process):
    process.kill()
    return process.communicate()


def page_of(url, process):
    address = process.stdout.readline().strip()
    assert address.startswith("http"), ended(process)
    return address, place_of_page(url).token


def submitted(environment, folder):
    process = command("submit", "works:Waits", "--id", "waits", env=environment, cwd=folder)
    process.communicate()
    return process.returncode == 0


def test_a_page_with_the_url_of_a_looker_only_reads_and_says_so(urls, tmp_path):  # noqa: F811 - the fixture
    process = command("web", env={**os.environ, "ACTORPROC_PATH": urls["looker"]}, cwd=tmp_path)
    try:
        address, token = page_of(urls["looker"], process)
        status, session = ask(address, "session", token)
        assert (status, session["read_only"], "may only read" in session["why_read_only"]) == (200, True, True)
        assert ask(address, "procedures/w", token)[1]["state"] in ("RUNNABLE", "WAITING", "WAITING_TIMEOUT")
        assert ask(address, "procedures/w/why", token)[0] == 200
        assert ask(address, "status", token)[1]["states"]
        assert ask(address, "procedures/w/abort", token, "POST", "{}")[1]["code"] == "read-only"
    finally:
        ended(process)


def test_a_page_over_two_hosts_shows_the_next_leader_when_the_first_is_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    url = new_store()
    (tmp_path / "works.py").write_text(MODULE)
    environment = {**os.environ, "ACTORPROC_PATH": url}
    hosts = [command("run", "works", "--workers", "1", env=environment, cwd=tmp_path)]
    page = None
    try:
        until(lambda: submitted(environment, tmp_path), hosts[0])
        hosts.append(command("run", "works", "--workers", "1", env=environment, cwd=tmp_path))
        page = command("web", env=environment, cwd=tmp_path)
        address, token = page_of(url, page)
        first = until(lambda: (found := ask(address, "status", token)[1])["manager"] == "up" and found, page)
        leader = next(host for host in hosts if host.pid == first["pid"])
        leader.kill()
        leader.wait()
        next_one = until(
            lambda: (
                (found := ask(address, "status", token)[1])["manager"] == "up"
                and found["pid"] != first["pid"]
                and found
            ),
            page,
        )
        assert next_one["epoch"] > first["epoch"]
        assert ask(address, "procedures/waits/signal", token, "POST", '{"payload": 1}')[1]["result"] == "sent"
        until(lambda: ask(address, "procedures/waits", token)[1]["state"] == "SUCCESS", page)
    finally:
        for process in (*hosts, *(() if page is None else (page,))):
            ended(process)
