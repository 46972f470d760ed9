"""Commands with the URL of a store in a database: with a manager on it, and without."""

from __future__ import annotations

import json

import pytest

from actorproc import ProcedureManager, Saga, step
from actorproc.cli.main import main
from tests.databases import database_or_skip, emptied, give_back

pytestmark = pytest.mark.processes


class Filled(Saga):
    number: int

    @step
    def add(self, ctx):
        self.number += 1

    @step
    def tell(self, ctx):
        if self.number > 5:
            raise ValueError(self.number)
        return self.number


def fill(url):
    with ProcedureManager(url, procedures=[Filled], workers=1) as manager:
        manager.run(Filled(1), id="good")
        manager.submit(Filled(9), id="bad").wait()
        manager.submit(Filled(2), id="later", delay=3600)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Files and logs of a test go into its own directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def looked_at(filled, here):
    """The store that is filled once, for one test that changes nothing in it."""
    database_or_skip()
    return filled


@pytest.fixture
def url(database_url, here):
    fill(database_url)
    return database_url


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A store that is filled once, for commands that change nothing in it."""
    database_or_skip()
    url = emptied()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-home")))
        fill(url)
    yield url
    give_back(url)


LOOKS = [
    "status", "list", "list --state FAILED -o json", "show good", "steps bad", "tree good", "why later", "audit good",
    "locks", "poisons", "signals", "logs good", "doctor", "doctor -o json", "export --all", "export good",
    "compact", "compact --dry-run", "backup copy", "backup copy2 --dry-run", "rotate-key --dry-run", "states good",
    "state good",
]  # fmt: skip
CHANGES = ["rotate-key", "retry bad", "abort later", "ack good", "delete good", "gc --older-than 7d"]


def works_on(url, command, capsys):
    code = main([*command.split(), "--path", url])

    told = capsys.readouterr()
    assert code == 0, told
    assert "Traceback" not in told.err


@pytest.mark.parametrize("command", LOOKS)
def test_a_command_that_looks_works_on_a_stopped_store_in_a_database(looked_at, capsys, command):
    works_on(looked_at, command, capsys)


@pytest.mark.parametrize("command", CHANGES)
def test_a_command_that_changes_works_on_a_stopped_store_in_a_database(url, capsys, command):
    works_on(url, command, capsys)


def test_an_export_goes_into_another_store_in_a_database(looked_at, tmp_path, capsys):
    assert main(["export", "--all", "--out", "trees.json", "--path", looked_at]) == 0
    other = f"{looked_at}_imported"

    assert main(["import", "trees.json", "--path", other, "--dry-run"]) == 0
    assert main(["import", "trees.json", "--path", other]) == 0
    capsys.readouterr()
    assert main(["list", "--path", other, "-o", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["id"] for row in rows} == {"good", "bad", "later"}


def test_verbs_reach_the_manager_that_runs(url, capsys):
    with ProcedureManager(url, procedures=[Filled], workers=1) as manager:
        assert main(["abort", "later", "--path", url]) == 0
        assert manager.get("later").wait(30)
        assert main(["pause", "--path", url, "--all"]) in (0, 2)
        assert main(["workers", "--path", url]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_the_url_may_come_from_the_environment_with_a_password(looked_at, monkeypatch, capsys):
    monkeypatch.setenv("ACTORPROC_PATH", looked_at.replace("actorproc@", "actorproc:secret@"))

    assert main(["list", "-o", "name"]) == 0
    assert main(["status"]) == 0
    assert main(["doctor"]) == 0

    told = capsys.readouterr()
    assert "secret" not in told.out + told.err


def test_good_trees_are_saved_from_a_database(looked_at, tmp_path, capsys):
    assert main(["doctor", "--export-good", "good.json", "--path", looked_at]) == 0
    assert len(json.loads((tmp_path / "good.json").read_text())["trees"]) == 3
    assert "3 trees" in capsys.readouterr().out
