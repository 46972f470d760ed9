"""Schedules from the command line, through a client, and on a store that no manager runs on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta

import pytest

from actorproc import Calendar, Procedure, ProcedureClient, ProcedureManager, Status, StoreReader
from actorproc.cli.main import main
from tests.kit.managers import LIGHT
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes


@dataclass
class Report(Procedure):
    table: str = "orders"

    def execute(self, ctx):
        return Status.done(str(ctx.scheduled_at))


def test_schedules_are_seen_and_steered_while_a_manager_runs_and_when_none_does(tmp_path, capsys):
    path = str(tmp_path / "store")

    def said(*arguments: str) -> tuple[int, str]:
        code = main(["--path", path, "-o", "table", *arguments])
        return code, capsys.readouterr().out

    with ProcedureManager(path, workers=1, **LIGHT, procedures=[Report]) as manager:
        manager.schedule(Calendar("02:00"), Report(), id="nightly", timezone="Europe/Berlin")
        with ProcedureClient(path) as client:
            info = client.schedule(timedelta(seconds=1), Report("visits"), id="each-second", overlap="queue")
            assert (info.declared, info.overlap) == (True, "queue")
            wait_until(lambda: client.schedule_info("each-second").firings >= 2)
            last = client.schedule_info("each-second").last_id
            assert client.get(last).result(timeout=60)[:4].isdigit()
            assert client.why("nightly").kind == "schedule"
        assert [info.id for info in StoreReader(path).schedules()] == ["each-second", "nightly"]
        code, shown = said("schedules")
        assert code == 0
        assert "02:00:00 Europe/Berlin" in shown
        assert said("schedules", "each-second", "--pause", "--reason", "too often")[0] == 0
        assert manager.schedule_info("each-second").reason == "too often"
        assert "too often" in said("why", "each-second")[1]
    code, shown = said("schedules", "nightly")
    assert code == 0
    assert shown.count(" UTC") >= 6, "the next five instants, and when it was declared"
    assert "Calendar" not in shown
    assert said("schedules", "each-second", "--resume")[0] == 0
    assert said("schedules", "nightly", "--remove", "--dry-run")[0] == 0
    code, rows = main(["--path", path, "-o", "json", "schedules"]), json.loads(capsys.readouterr().out)
    assert code == 0
    assert [(row["id"], row["state"], row["declared"]) for row in rows["items"]] == [
        ("each-second", "active", False),
        ("nightly", "active", False),
    ]
    assert rows["items"][0]["next_at"].endswith("Z")
    assert all(at.endswith("Z") for at in rows["items"][0]["upcoming"])
    assert "no manager runs" in said("why", "nightly")[1]
    assert said("schedules", "nightly", "each-second", "--remove")[0] == 0
    assert main(["--path", path, "-o", "table", "schedules"]) == 0
    assert "there is no schedule" in capsys.readouterr().err
    assert main(["--path", path, "schedules", "nightly"]) == 3
    assert main(["--path", path, "schedules", "nightly", "--remove"]) == 3
    assert main(["--path", path, "schedules", "--remove"]) == 2


def test_a_restart_takes_over_where_the_manager_before_was(tmp_path):
    path = str(tmp_path / "store")
    seen = []
    for least in (2, 4):
        with ProcedureManager(path, workers=1, **LIGHT, procedures=[Report]) as manager:
            manager.schedule(timedelta(seconds=1), Report(), id="tick")
            wait_until(lambda least=least: manager.schedule_info("tick").firings >= least)
            seen.append(manager.schedule_info("tick"))
    with StoreReader(path) as reader:
        ids = [info.id for info in reader.list(tag="schedule:tick")]
    assert len(ids) == len(set(ids)) >= 4
    first, second = seen
    assert first.declared_at == second.declared_at
    assert {int(at) % 1 for at in second.upcoming} == {0}
