"""The audit log: who asked for what and why, through any way in, also about what has been removed since."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from actorproc import Procedure, ProcedureClient, ProcedureManager, Status, StoreReader
from actorproc.api.stopped import StoppedStore
from actorproc.cli.main import main
from actorproc.control.checks import checked_request
from actorproc.errors import UnknownProcedure
from actorproc.model.messages.events import AbortRequested, Acknowledged, PauseRequested, Signalled
from actorproc.support.login_name import login_name
from tests.kit.managers import LIGHT

pytestmark = pytest.mark.processes


@dataclass
class Waits(Procedure):
    """Waits for an event; undone by doing nothing."""

    def execute(self, ctx):
        return Status.wait("go") if ctx.event is None else Status.done(ctx.event)

    def rollback(self, ctx):
        return None


def told(capsys, store, *arguments):
    capsys.readouterr()
    code = main(["--path", str(store), *arguments])
    return code, capsys.readouterr().out


def rows(capsys, store, *arguments):
    code, out = told(capsys, store, "-o", "json", "audit", *arguments)
    assert code == 0
    return json.loads(out)["items"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store in which a manager, a client, the stopped store and the command line were asked for something."""
    path = tmp_path_factory.mktemp("audit") / "state"
    with ProcedureManager(path, workers=1, procedures=[Waits], **LIGHT) as manager:
        for name in ("a", "b", "c", "gone"):
            manager.submit(Waits(), name)
        manager.pause("a", "a look", by="ann")
        manager.signal("c", 1)  # of a program: not recorded
        with ProcedureClient(path) as client:
            client.abort("gone", force=True, reason="too late", by="bob <b@example.org>")
            client.pause(reason="upgrade")
            client.resume()
        manager.get("gone").wait(30)
        assert manager.delete("gone", by="ann")
    with StoppedStore(path) as stopped:
        stopped.resume("a", "looked", by="cy")
    assert main(["--path", str(path), "-o", "name", "signal", "b", "1", "--as", "dee"]) == 0
    assert main(["--path", str(path), "-o", "name", "pause", "b", "--reason", "night"]) == 0
    return path


def test_all_requests_are_listed_newest_first_with_the_names_of_those_who_asked(store, capsys):
    me = login_name()

    assert [(row["id"], row["verb"], row["by"], row["reason"]) for row in rows(capsys, store, "--all")] == [
        ("b", "pause", me, "night"),
        ("b", "signal", "dee", None),
        ("a", "resume", "cy", "looked"),
        ("gone", "delete", "ann", None),
        (None, "resume", me, None),
        (None, "pause", me, "upgrade"),
        ("gone", "abort", "bob <b@example.org>", "too late"),
        ("a", "pause", "ann", "a look"),
    ]


def test_the_log_is_filtered_by_time_verb_name_and_number(store, capsys):
    everything = rows(capsys, store, "--all")
    with StoreReader(store) as reader:
        times = [row.at for row in reader.audit_log()]

    assert rows(capsys, store, "--all", "--since", "1d") == everything
    assert rows(capsys, store, "--all", "--until", "1d") == []
    assert rows(capsys, store, "--all", "--since", repr(times[5]), "--until", repr(times[2])) == everything[3:6]
    assert rows(capsys, store, "--all", "--verb", "pause", "--verb", "abort") == [everything[i] for i in (0, 5, 6, 7)]
    assert rows(capsys, store, "--all", "--by", "ann") == [everything[3], everything[7]]
    assert rows(capsys, store, "--all", "--limit", "2") == everything[:2]
    with StoreReader(store) as reader:
        chosen = reader.audit_log(since=times[5], verb={"pause", "delete"}, by="ann", limit=1)
        assert [row.verb for row in chosen] == ["delete"]


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [({"limit": -1}, ValueError), ({"by": 3}, TypeError), ({"verb": 3}, TypeError), ({"since": "now"}, TypeError)],
)
def test_a_filter_that_is_none_is_refused(arguments, wrong, store):
    with StoreReader(store) as reader, pytest.raises(wrong, match=next(iter(arguments))):
        reader.audit_log(**arguments)


def test_what_was_asked_of_a_removed_procedure_stays(store, capsys):
    assert [row["verb"] for row in rows(capsys, store, "gone")] == ["abort", "delete"]
    with StoreReader(store) as reader, pytest.raises(UnknownProcedure):
        reader.audit("never")


def test_without_all_those_of_a_procedure_and_those_of_the_manager_are_apart(store, capsys):
    assert [row["verb"] for row in rows(capsys, store, "a")] == ["pause", "resume"]
    assert [row["verb"] for row in rows(capsys, store)] == ["pause", "resume", "delete"]


def test_a_table_has_the_names_and_show_tells_them(store, capsys):
    _, table = told(capsys, store, "-o", "table", "audit", "--all")
    _, shown = told(capsys, store, "-o", "table", "show", "a")

    assert "BY" in table.splitlines()[0]
    assert "bob <b@example.org>" in table
    assert "resume by cy: looked" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("audit", "--all", "a"), "leave the id out"),
        (("audit", "--verb", "explode"), "the verbs are abort"),
        (("audit", "never"), "no procedure has the id"),
    ],
)
def test_a_wrong_question_is_answered_in_words(arguments, words, store, capsys):
    capsys.readouterr()

    assert main(["--path", str(store), *arguments]) in (2, 3)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "x" * 257, "\ud800", 3])
def test_a_name_that_cannot_be_kept_is_refused(name, store):
    with StoppedStore(store) as stopped, pytest.raises((ValueError, TypeError), match="by"):
        stopped.pause("a", by=name)


def test_a_request_that_comes_by_the_socket_without_a_name_gets_that_of_the_user():
    assert checked_request(AbortRequested("a", 1), 100).by == login_name()
    assert checked_request(PauseRequested(None, 1, by="ann"), 100).by == "ann"
    assert checked_request(Signalled("a", b"", 1), 100).by is None
    assert checked_request(Acknowledged("a", 1, reason="read"), 100).by == login_name()
    with pytest.raises(ValueError, match="by"):
        checked_request(AbortRequested("a", 1, by="x" * 1000), 100)


@pytest.mark.parametrize(
    ("caller", "name"), [("ann", "{} (sudo by ann)"), ("", "{}"), ("a\x1b[31m", "{}"), ("a\u202eb", "{}")]
)
def test_the_name_of_a_user_under_sudo_tells_who_called_it(caller, name, monkeypatch):
    monkeypatch.delenv("SUDO_USER", raising=False)
    login_name.cache_clear()
    alone = login_name()
    login_name.cache_clear()
    monkeypatch.setenv("SUDO_USER", caller)

    assert login_name() == name.format(alone)
    login_name.cache_clear()


def test_a_user_without_a_name_is_named_by_the_number(monkeypatch):
    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 4_000_000)
    login_name.cache_clear()

    assert login_name() == "uid 4000000"
    login_name.cache_clear()
