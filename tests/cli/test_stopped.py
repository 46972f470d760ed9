"""A store that no manager runs on: read, examined, taken out and brought in."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from actorproc.report.metrics import NO_MANAGER
from actorproc.store.lmdb.store import LmdbReader, LmdbStore

pytestmark = pytest.mark.processes


@pytest.fixture
def stopped(quiet):
    """A store whose service was killed with a lock in use and one in line for it."""
    quiet.serve()
    quiet("submit", "jobs:Table", "name=t1", "stuck=true", "--id", "holder")
    quiet.until(lambda: quiet.phase("holder") == "running")
    quiet("submit", "jobs:Table", "name=t1", "--id", "waiter")
    quiet("submit", "jobs:Parent", "--id", "parent")
    quiet.until(lambda: quiet.phase("waiter") == "locked-out" and quiet.phase("parent") == "suspended")
    # Until nothing is being stored: a kill in a commit may leave the store one behind, which an export refuses.
    quiet.until(lambda: {quiet.phase(f"parent.{number}") for number in range(2)} == {"waiting"})
    quiet.end()
    return quiet


def test_reading_needs_no_manager(stopped):
    assert [row["id"] for row in stopped.rows("list", "--roots", "--oldest")] == ["holder", "waiter", "parent"]
    assert stopped.rows("status")[0]["owner"] is None
    assert [row["waiters"][0]["procedure"] for row in stopped.rows("locks", "--waited")] == ["waiter"]
    for command in ("show", "tree", "steps", "why"):
        assert stopped(command, "parent")[0] == 0
    chain = stopped("-o", "table", "why", "waiter")[1]
    assert "held by holder" in chain
    assert "no manager runs on this store\n" in chain
    assert chain.rstrip().endswith("⇒ actorproc run jobs  # starts a manager")


def test_what_only_a_running_manager_knows_says_how_to_start_one(stopped):
    for arguments in (
        ["workers"],
        ["watch", "holder"],
        ["stack", "holder"],
        ["metrics"],
        ["submit", "jobs:add", "a=1", "b=2", "--wait"],
    ):
        code, _, said = stopped(*arguments)
        assert code == 4
        assert "actorproc run MODULE" in said


def test_a_textfile_says_that_no_manager_runs(stopped, tmp_path):
    file = tmp_path / "actorproc.prom"

    code, _, said = stopped("metrics", "--textfile", str(file))

    assert (code, "actorproc run MODULE" in said) == (4, True)
    assert file.read_text() == NO_MANAGER


def test_verbs_are_applied_to_the_stopped_store_and_take_effect_when_a_manager_starts(stopped):
    def outcomes(*arguments):
        done = stopped.run("-o", "jsonl", *arguments)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        if "--dry-run" not in arguments:
            assert {row["applied_to"] for row in rows} == {"stopped store"}
            assert "no manager runs" in done.stderr
            assert "actorproc run" in done.stderr
        return [(row["id"], row["result"]) for row in rows]

    assert outcomes("abort", "--prefix", "parent.", "--all-matching", "--dry-run") == [
        ("parent.0", "would be done (dry run)"),
        ("parent.1", "would be done (dry run)"),
    ]
    assert outcomes("abort", "hold", "--reason", "hangs") == [("holder", "is asked to abort when a manager starts")]
    assert "abort was asked for" in stopped("-o", "table", "why", "holder")[1]
    assert "asked for" in stopped("-o", "table", "show", "holder")[1]
    assert outcomes("signal", "parent.0", "1", "--reason", "by hand")[0][0] == "parent.0"
    assert outcomes("bypass", "parent.1") == [("parent.1", "bypassed")]
    assert outcomes("pause", "--manager", "--reason", "upgrade") == [(None, "paused")]
    assert outcomes("submit", "jobs:add", "a=1", "b=2", "--id", "sum") == [("sum", "submitted")]
    assert outcomes("resume", "--manager") == [(None, "goes on when a manager starts")]
    assert [row["verb"] for row in stopped.rows("audit")] == ["pause", "resume"]
    assert stopped.rows("audit", "parent.0")[0]["reason"] == "by hand"
    assert stopped("compact")[0] == 0
    assert stopped("delete", "holder")[0] == 5
    assert stopped("retry", "nobody")[0] == 3
    assert stopped("doctor")[0] == 0

    stopped.serve()
    for name in ("sum", "parent", "waiter"):
        assert stopped("watch", name, "--timeout", "50s")[0] == 0, name
    assert stopped.phase("holder") == "done"
    assert stopped.rows("show", "holder")[0]["audit"][0]["reason"] == "hangs"
    assert stopped.rows("delete", "sum")[0]["applied_to"] == "manager"


def test_nothing_is_applied_where_there_is_no_store(quiet):
    for arguments in (["abort", "a"], ["signal", "a"], ["pause", "--manager"], ["submit", "jobs:add", "a=1", "b=2"]):
        code, _, said = quiet("--path", "nothing", *arguments)
        assert code == 4
        assert "no store" in said
    assert not (quiet.directory / "nothing").exists()


def test_commands_and_a_manager_that_start_at_the_same_instant_do_not_get_in_each_others_way(stopped):
    def pause(number: int) -> tuple[int, str]:
        done = stopped.run("pause", "parent", "--reason", f"n{number}")
        return done.returncode, done.stderr

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(pause, number) for number in range(8)]
        stopped.serve()
        assert [future.result()[1] for future in done if future.result()[0] != 0] == []

    assert sorted(row["reason"] for row in stopped.rows("audit", "parent")) == [f"n{number}" for number in range(8)]


def test_a_tree_goes_into_another_store_and_runs_on_there(stopped):
    file = stopped.directory / "bug.json"
    assert stopped("export", "parent.0", "holder", "--out", str(file))[0] == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert stopped("export", "holder", "--out", str(file))[0] == 5
    document = json.loads(file.read_text())
    assert (document["object"], document["schema"]) == ("export", 1)
    assert [tree["root"] for tree in document["trees"]] == ["parent", "holder"]

    assert stopped("--path", "other", "import", str(file), "--dry-run")[0] == 0
    assert not (stopped.directory / "other").exists()
    assert stopped("--path", "other", "import", str(file))[0] == 0
    assert stopped("--path", "other", "import", str(file))[0] == 5

    assert {row["id"] for row in stopped.rows("--path", "other", "list")} == {
        "parent",
        "parent.0",
        "parent.1",
        "holder",
    }
    assert [row["holder"] for row in stopped.rows("--path", "other", "locks")] == ["holder"]
    assert stopped.rows("--path", "other", "steps", "parent.0") == stopped.rows("steps", "parent.0")
    assert stopped("--path", "other", "doctor")[0] == 0
    stopped.serve_on("other")
    assert stopped("--path", "other", "signal", "parent.0", "1")[0] == 0
    assert stopped("--path", "other", "signal", "parent.1", "2")[0] == 0
    assert stopped("--path", "other", "watch", "parent", "--timeout", "50s")[0] == 0


def test_an_import_that_only_looks_leaves_a_store_as_it_is(stopped):
    text = stopped.said("export", "--all")
    before = (stopped.store / "data.mdb").read_bytes()

    done = stopped.run("import", "-", "--dry-run", stdin=text)

    assert done.returncode == 5
    assert "is in use in this store" in done.stderr
    assert (stopped.store / "data.mdb").read_bytes() == before


def test_what_goes_out_twice_is_the_same(stopped):
    first = json.loads(stopped.said("export", "--all"))["trees"]
    stopped.run("--path", "other", "import", "-", stdin=stopped.said("export", "--all"))
    second = json.loads(stopped.said("--path", "other", "export", "--all"))["trees"]

    assert [_without_places(tree) for tree in first] == [_without_places(tree) for tree in second]


def _without_places(tree):
    for head in tree["procedures"]:
        for name in ("seq", "ticket", "epoch"):
            del head[name]
    return tree


@pytest.mark.parametrize("text", ["no json", "{}", '{"object": "export", "schema": 9, "trees": []}',
                                  '{"object": "export", "schema": 1, "trees": [{}]}',
                                  '{"object": "export", "schema": 1, "trees": [{"procedures": [{"id": 3}]}]}'])  # fmt: skip
def test_what_is_no_export_is_refused(quiet, text):
    done = quiet.run("--path", "new", "import", "-", stdin=text)

    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_manager_that_runs_keeps_its_store(quiet):
    quiet.serve()

    for options in ((), ("--dry-run",)):
        done = quiet.run("import", "-", *options, stdin='{"object": "export", "schema": 1, "trees": []}')
        assert done.returncode == 5
    quiet.end(signal.SIGTERM)


def test_a_damaged_record_is_found_with_what_hangs_on_it_and_the_rest_is_saved(stopped):
    data = stopped.store / "data.mdb"
    owner = LmdbStore(stopped.store)
    owner.own()
    owner.close()  # what the killed service had in its log alone is in the file now
    raw = data.read_bytes()
    # The name of the type stands in the head behind its length, and in an index: one letter of the first changes.
    place = raw.index(b"\xabjobs.Parent")
    assert stopped("doctor")[0] == 0
    changed = raw.replace(b"\xabjobs.Parent", b"\xabjobs.Varent")
    assert len(changed) == len(raw)
    assert place > 0
    data.write_bytes(changed)

    report = stopped.rows("doctor", "--export-good", "good.json")[0]

    assert stopped("doctor")[0] == 1
    assert not report["ok"]
    damaged = {row["procedure"]: row for row in report["damaged"] if row["table"] == "procedures"}
    assert "parent" in damaged
    assert "2 links to children" in damaged["parent"]["hangs"]
    assert any("--export-good" in (finding["command"] or "") for finding in report["findings"])
    good = json.loads((stopped.directory / "good.json").read_text())
    assert [tree["root"] for tree in good["trees"]] == ["holder", "waiter"]
    assert [row["id"] for row in stopped.rows("list", "--roots", "--oldest")] == ["holder", "waiter"]


def test_a_file_that_was_cut_short_kills_nobody(stopped):
    data = stopped.store / "data.mdb"
    with LmdbReader(stopped.store) as reader:
        used = reader.size().used  # behind that there may be free pages only
    data.write_bytes(data.read_bytes()[: used // 2])

    code, out, _ = stopped("-o", "table", "doctor")

    assert code == 1
    assert "damage" in out


def test_what_others_may_write_is_told_with_the_command_that_mends_it(stopped):
    (stopped.store / "data.mdb").chmod(0o666)

    code, out, _ = stopped("-o", "table", "doctor")

    assert code == 1
    assert "chmod go-w" in out


def test_a_stopped_store_takes_a_restart_that_its_next_manager_runs(quiet):
    quiet.serve()
    quiet("submit", "jobs:add", "a=1", "b=2", "--id", "sum", "--wait")
    quiet.end()

    assert "exists and is SUCCESS" in quiet("submit", "jobs:add", "a=1", "b=2", "--id", "sum", "--on-existing=error")[2]
    assert quiet("submit", "jobs:add", "a=3", "b=4", "--id", "sum", "--on-existing", "restart")[0] == 0
    refused = quiet("submit", "jobs:add", "a=3", "b=4", "--id", "sum", "--on-existing", "restart")
    assert refused[0] == 5
    assert "sum cannot be restarted: it has not ended" in refused[2]

    quiet.serve()
    quiet("watch", "sum", "--timeout", "50s")
    (shown,) = quiet.rows("show", "sum")
    assert (shown["generation"], shown["state"]) == (2, "SUCCESS")
    code, _, said = quiet("submit", "jobs:add", "a=1", "b=2", "--on-existing", "restart")
    assert code == 2
    assert "give --id as well" in said
