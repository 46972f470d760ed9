"""Verbs of the page: one by one and in bulk, to a manager and to a stopped store."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from dataclasses import dataclass

import pytest

from actorproc.api.manager import ProcedureManager
from actorproc.api.reader import StoreReader
from actorproc.api.stopped import StoppedStore
from actorproc.errors import UnknownProcedure
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.authoring.status import Status
from tests.kit.exposition import families
from tests.kit.waiting import wait_until
from tests.web.conftest import opened

pytestmark = pytest.mark.processes
BOUND = 30.0


@dataclass
class Waits(Procedure):
    kind: str = ""

    def execute(self, ctx):
        if ctx.event is None:
            return Status.wait("go")
        return Status.done(ctx.event)


@dataclass
class Hangs(Procedure):
    def execute(self, ctx):
        threading.Event().wait()


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    path = tmp_path_factory.mktemp("verbs") / "store"
    with ProcedureManager(path, procedures=[Waits, Hangs], workers=2) as found:
        yield found
        with contextlib.suppress(UnknownProcedure):
            found.abort("hangs", force=True)


@pytest.fixture(scope="module")
def page(manager):
    with opened(manager._path) as found:
        yield found


def waiting(manager, *names, **options):
    for name in names:
        manager.submit(Waits(), id=name, **options)
    for name in names:
        with manager.watch(name) as watch:
            for change in watch:
                if change.phase == "waiting":
                    break


def outcome(response, status=200):
    assert response.status_code == status, response.text
    return response.json()


def test_a_verb_is_done_with_its_reason_and_the_name_of_its_user(manager, page):
    waiting(manager, "v-1")

    assert outcome(page.post("procedures/v-1/pause", {"reason": "for a night"}))["result"] == "paused"
    assert outcome(page.post("procedures/v-1/resume"))["result"] == "goes on"
    assert outcome(page.post("procedures/v-1/resume"))["result"] == "was not paused itself"
    rows = page.get("procedures/v-1/audit").json()["items"]
    assert [(row["verb"], row["reason"] or "") for row in rows][:2] == [("pause", "for a night"), ("resume", "")]
    assert rows[0]["by"].endswith("(web)")
    assert outcome(page.post("procedures/v-1/signal", {"payload": {"a": [1]}}))["result"] == "sent"
    assert manager.get("v-1").result(BOUND) == {"a": [1]}
    assert outcome(page.post("procedures/v-1/ack"))["result"] == "acknowledged"
    assert outcome(page.post("procedures/v-1/delete"))["result"] == "deleted"
    assert outcome(page.get("procedures/v-1"), 410)["audit"][0]["verb"] == "pause"


def test_an_ended_root_is_restarted(manager, page):
    waiting(manager, "v-again")
    assert outcome(page.post("procedures/v-again/restart"), 409)["code"] == "not-allowed"
    manager.signal("v-again", 1)
    assert manager.get("v-again").result(BOUND) == 1

    assert outcome(page.post("procedures/v-again/restart", {"reason": "for a night"}))["result"] == "begins again"
    assert manager.info("v-again").generation == 2
    manager.signal("v-again", 2)
    assert manager.get("v-again").result(BOUND) == 2


def test_a_dry_run_does_nothing(manager, page):
    waiting(manager, "v-2")

    assert "dry run" in outcome(page.post("procedures/v-2/abort", {"dry_run": True}))["result"]
    assert manager.info("v-2").phase == "waiting"
    assert outcome(page.post("procedures/nothing/abort", {"dry_run": True}), 404)["code"] == "unknown-procedure"


def test_a_refusal_of_the_engine_is_told_in_its_words(manager, page):
    waiting(manager, "v-3")

    assert outcome(page.post("procedures/v-3/retry"), 409)["code"] == "not-allowed"
    kill = outcome(page.post("procedures/v-3/kill"), 409)
    assert (kill["code"], "waiting" in kill["says"]) == ("not-allowed", True)
    assert outcome(page.post("procedures/v-3/delete"), 409)["code"] == "not-allowed"
    assert outcome(page.post("procedures/v-3/pause", {"force": True}), 422)["says"] == "pause takes no force"
    assert outcome(page.post("withdraw", {}), 422)["code"] == "invalid"
    assert outcome(page.post("publish", {}), 422)["code"] == "invalid"


def test_a_running_step_is_killed_and_runs_again(manager, page):
    manager.submit(Hangs(), id="hangs")
    with manager.watch("hangs", steps=True) as watch:
        for change in watch:
            if change.phase == "running":
                break
    wait_until(lambda: "threading" in page.get("procedures/hangs/stack").json()["stack"])  # its code has begun
    with manager.watch("hangs", steps=True) as watch:
        assert "runs again" in outcome(page.post("procedures/hangs/kill", {"reason": "stuck"}))["result"]
        assert next(change for change in watch if change.phase == "running" and change.attempt == 2)
    assert page.get("procedures/hangs/attempts").json()["items"][0]["error"]["kind"] == "killed"
    deaths = wait_until(lambda: page.get("deaths").json()["items"])
    assert [(row["procedure"], row["error"]["crash"]["signal"]) for row in deaths] == [("hangs", "SIGKILL")]
    assert wait_until(lambda: page.get("deaths").json()["by_cause"])


def test_everything_is_paused_and_goes_on(page):
    assert outcome(page.post("manager/pause", {"reason": "move"}))["result"] == "paused"
    assert page.get("status").json()["paused"] == "move"
    assert outcome(page.post("manager/resume"))["result"] == "goes on"


def test_events_are_published_and_taken_back(page):
    assert outcome(page.post("publish", {"event": "e-1", "payload": [1]}))["result"] == "published"
    assert len(page.get("signals").json()["items"]) == 1
    assert outcome(page.post("withdraw", {"event": "e-1"}))["result"] == "1 withdrawn"
    assert outcome(page.post("poisons/clear", {"key": "a/b"}))["result"] == "was not poisoned"


# ---------------------------------------------------------------- bulk
def test_a_verb_for_many_is_counted_agreed_on_and_told_one_by_one(manager, page):
    waiting(manager, *(f"b-{number}" for number in range(4)), tags=["bulk"])
    asked = {"verb": "pause", "filter": {"tag": "bulk"}, "reason": "many"}

    look = outcome(page.post("bulk", {**asked, "dry_run": True}))
    assert (look["count"], sorted(look["ids"])) == (4, ["b-0", "b-1", "b-2", "b-3"])
    assert outcome(page.post("bulk", asked), 422)["do"]
    waiting(manager, "b-4", tags=["bulk"])
    changed = outcome(page.post("bulk", {**asked, "expect": 4}), 409)
    assert (changed["code"], changed["count"]) == ("count-changed", 5)
    found = page.post("bulk", {**asked, "expect": 4, "slack": 1})
    rows = [json.loads(line) for line in found.text.splitlines()]

    assert found.headers["content-type"] == "application/x-ndjson"
    assert [row["ok"] for row in rows[:-1]] == [True] * 5
    assert {key: rows[-1][key] for key in ("object", "count", "done", "failed")} == {
        "object": "bulk",
        "count": 5,
        "done": 5,
        "failed": 0,
    }
    assert page.get("procedures/count?tag=bulk&phase=paused").json()["count"] == 5


def test_a_refusal_among_many_does_not_stop_the_others(manager, page):
    waiting(manager, "c-1")
    rows = [
        json.loads(line)
        for line in page.post(
            "bulk", {"verb": "abort", "ids": ["nothing", "c-1", "c-1"], "expect": 2}
        ).text.splitlines()
    ]

    assert [row["ok"] for row in rows[:-1]] == [False, True]
    assert (rows[0]["id"], "nothing" in rows[0]["error"]) == ("nothing", True)
    assert (rows[-1]["done"], rows[-1]["failed"]) == (1, 1)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"verb": "submit", "ids": ["a"]},
        {"verb": "pause"},
        {"verb": "pause", "ids": ["a"], "filter": {"tag": "x"}},
        {"verb": "pause", "filter": {"where": ["a=1", "a=2"]}},
        {"verb": "pause", "filter": {}},
        {"verb": "pause", "filter": {"q": ""}},
        {"verb": "pause", "filter": {"limit": 5}},
        {"verb": "pause", "filter": {"state": "NICE"}},
        {"verb": "pause", "ids": ["a"], "flags": {"force": True}, "dry_run": True},
        {"verb": "pause", "ids": "a"},
        {"verb": "pause", "ids": [f"a-{n}" for n in range(10_001)], "dry_run": True},
    ],
)
def test_a_bulk_request_that_makes_no_sense_is_refused(page, body):
    assert outcome(page.post("bulk", body), 422)["object"] == "error"


# ---------------------------------------------------------------- without a manager
def test_verbs_are_taken_by_a_stopped_store_and_say_so(tmp_path):
    path = tmp_path / "store"
    with ProcedureManager(path, procedures=[Waits], workers=1) as manager:
        waiting(manager, "s-1", "s-2")
    with opened(path) as page:
        done = outcome(page.post("procedures/s-1/abort", {"reason": "late"}))
        assert (done["applied_to"], done["result"]) == ("stopped store", "is asked to abort when a manager starts")
        assert outcome(page.post("procedures/s-2/kill"), 409)["code"] == "not-allowed"
        assert outcome(page.get("procedures/s-1/stack"), 503)["code"] == "no-manager"
        assert outcome(page.get("metrics"), 503)["do"] is not None
        assert outcome(page.get("workers"))["live"] is False
        assert outcome(page.get("procedures/s-1/why"))["lines"]
        down = families(page.request("GET", "/metrics").text)
        assert down.keys() == {"actorproc_manager_up", "actorproc_web_streams"}
        assert down["actorproc_manager_up"].samples[0].value == 0
    with StoreReader(path) as reader:
        assert reader.audit("s-1")[0].reason == "late"


def test_a_store_that_is_not_there_is_told_in_words_and_found_when_it_comes(tmp_path):
    path = tmp_path / "store"
    with opened(path) as page:
        found = outcome(page.get("status"), 503)
        assert (found["code"], "no store" in found["says"]) == ("no-store", True)
        with ProcedureManager(path, procedures=[Waits], workers=1):
            pass
        assert outcome(page.get("status"))["manager"] in ("down", "no store")


def test_while_another_one_owns_the_stopped_store_a_verb_waits_for_a_moment(tmp_path):
    path = tmp_path / "store"
    with ProcedureManager(path, procedures=[Waits], workers=1) as manager:
        waiting(manager, "w-1")
    with opened(path) as page:
        store = StoppedStore(path)
        store.open()
        timer = threading.Timer(0.3, store.close)
        timer.start()
        assert outcome(page.post("procedures/w-1/pause"))["applied_to"] == "stopped store"
        timer.join()


def test_a_manager_that_hangs_is_named_and_what_is_stored_is_shown(tmp_path):
    from tests.web.servers import service

    with service(tmp_path) as (path, process), opened(path) as page:
        assert page.get("status").json()["manager"] == "up"
        os.kill(process.pid, signal.SIGSTOP)
        try:
            found = hung(page)
            assert found["do"] == f"kill -CONT {process.pid}"
            assert outcome(page.get("procedures"))["object"] == "list"
            assert outcome(page.post("procedures/x/kill"), 503)["code"] == "no-manager"
            assert outcome(page.get("procedures/waits/why"))["lines"]
        finally:
            os.kill(process.pid, signal.SIGCONT)
        again(page, "up")
        process.kill()
        process.wait()
        again(page, "down")


def test_the_number_of_workers_is_changed_where_the_page_is_mounted_beside_the_manager(tmp_path, page):
    assert "resize" not in page.get("session").json()["verbs"]
    assert "another one" in outcome(page.post("manager/resize", {"workers": 3}), 409)["says"]
    with ProcedureManager(tmp_path / "store", procedures=[Waits], workers=1) as manager, opened(manager) as mounted:
        assert "resize" in mounted.get("session").json()["verbs"]
        assert outcome(mounted.post("manager/resize", {"workers": 3}))["result"] == "3 workers"
        wait_until(lambda: len(manager.workers()) == 3)
        assert outcome(mounted.post("manager/resize", {"workers": 0}), 422)["code"] == "invalid"
        assert outcome(mounted.post("manager/resize", {}), 422)["code"] == "invalid"
        unaudited = mounted.post("manager/resize", {"workers": 2, "reason": "no audit has it"})
        assert outcome(unaudited, 422)["code"] == "invalid"
        assert mounted.get("workers").json()["slots"] == 3
        assert page.get("workers").json()["slots"] is None
    with opened(manager, read_only=True) as looked:
        assert looked.get("session").json()["verbs"] == []
        assert looked.post("manager/resize", {"workers": 2}).status_code == 403


def hung(page):
    return again(page, "hung")


def again(page, state):
    import time

    end = time.monotonic() + BOUND
    while (found := page.get("status").json())["manager"] != state:
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found
