"""Every command on a live service: formats, exit codes, ids by their beginning."""

from __future__ import annotations

import json
import re

import pytest

from actorproc.cli.main import COMMANDS, GROUPS
from actorproc.core.operator.verbs import VERBS
from tests.kit.exposition import families

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module", autouse=True)
def _some(place):
    place("submit", "jobs:Waits", "event=never", "text=hello", "--id", "waits-a", "--tag", "red", "--owner", "me")
    place("submit", "jobs:Waits", "event=never", "--id", "waits-b")
    place("submit", "jobs:Fails", "message=as planned", "--id", "fails")
    place("submit", "jobs:Parent", "--id", "parent")
    place.until(lambda: place.phase("waits-a") == "waiting" and place.phase("parent") == "suspended")
    place("watch", "fails", "--timeout", "50s")


def test_a_table_is_a_table_also_in_a_pipe_and_json_is_asked_for(place):
    piped, asked = place.run("list").stdout, place.run("list", ACTORPROC_OUTPUT="jsonl").stdout

    assert piped.split()[:2] == ["ID", "TYPE"]
    assert "\x1b" not in piped
    assert json.loads(asked.splitlines()[0])["object"] == "procedure"
    assert place.run("list", ACTORPROC_OUTPUT="yaml").returncode == 2


def test_colours_are_for_terminals_or_asked_for(place):
    always, never = (place.said("list", "--type", "Fails", "--color", when) for when in ("always", "never"))

    assert "\x1b[31mFAILED\x1b[0m" in always
    assert re.sub(r"\x1b\[\d+m", "", always).split()[:13] == never.split()[:13]
    assert "\x1b" not in never


def test_a_list_without_filters_shows_roots_with_trouble_first_and_says_how_to_see_more(place):
    done = place.run("list")
    shown = [line.split()[0] for line in done.stdout.splitlines()[1:]]

    assert "parent.0" not in shown
    assert shown.index("parent") < shown.index("waits-b") < shown.index("waits-a")
    assert "actorproc list --all" in done.stderr
    assert len(place.said("list", "--all").splitlines()) == 1 + len(place.rows("list"))


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["lsit"], 2, "unknown command 'lsit', did you mean 'list'"),
        (["stauts"], 2, "did you mean 'status'"),
        (["-o", "table", "shwo", "x"], 2, "did you mean 'show'"),
        (["qqq"], 2, "all of them: actorproc --help"),
        (["list", "--oldset"], 2, "did you mean --oldest"),
        (["show", "wiats-a"], 3, "did you mean waits-a"),
        (["show", "waits-aa"], 3, "did you mean waits-a"),
        (["why", "xwaits-b"], 3, "did you mean waits-b"),
        (["list", "--type", "Wiats"], 2, "did you mean Waits"),
        (["show", "zzzzzzz"], 3, "no procedure has the id 'zzzzzzz', or one that begins so"),
    ],
)
def test_near_misses_are_answered_with_what_was_meant(place, arguments, code, says):
    found = place(*arguments)

    assert found[0] == code
    assert says in found[2]


def test_the_help_shows_every_command_in_its_group(place):
    text = place.said("--help")

    commands = {*COMMANDS, *(verb.name for verb in VERBS if verb.help)}
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(commands)
    for heading, names in GROUPS.items():
        part = text.partition(f"\n{heading}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in part.splitlines() if line[2] != " "] == list(names)
    assert max(map(len, text.splitlines())) <= 80


def test_a_call_without_a_command_tells_the_status_and_what_to_type(place):
    assert place("--path", "nowhere")[:1] == (0,)
    bare = place.said()
    assert bare.startswith("store ")
    assert "actorproc why ID" in bare


def test_json_lines_have_utc_times(place):
    rows = place.rows("list", "--type", "jobs.Waits", "--roots", "--oldest")

    assert [row["id"] for row in rows] == ["waits-a", "waits-b"]
    assert {(row["schema"], row["object"]) for row in rows} == {(1, "procedure")}
    assert rows[0]["created_at"].endswith("Z")
    assert rows[0]["tags"] == ["red"]


def test_each_format_of_a_list(place):
    table = place("-o", "table", "list", "--tag", "red")[1].splitlines()
    wide = place("list", "-o", "wide", "--tag", "red")[1].splitlines()
    names = place("-o", "name", "list", "--prefix", "waits", "--oldest")[1].split()
    whole = json.loads(place("-o", "json", "list", "--limit", "2")[1])

    assert table[0].split()[:4] == ["ID", "TYPE", "STATE", "PHASE"]
    assert table[1].split()[:4] == ["waits-a", "Waits", "WAITING", "waiting"]
    assert "me" in wide[1]
    assert names == ["waits-a", "waits-b"]
    assert (whole["object"], whole["of"], len(whole["items"])) == ("list", "procedure", 2)


def test_lists_are_filtered_and_paged(place):
    def ids(*filters):
        return [row["id"] for row in place.rows("list", "--oldest", *filters)]

    assert ids("--state", "failed", "--prefix", "fails") == ["fails"]
    assert ids("--state", "failed", "--prefix", "waits") == []
    assert ids("--parent", "parent") == ["parent.0", "parent.1"]
    assert ids("--owner", "me") == ["waits-a"]
    assert ids("--limit", "1", "--after", "waits-a") == ["waits-b"]
    assert place.rows("list", "--limit", "1")[0]["id"].startswith("parent")
    assert ids("--phase", "waiting", "--root", "parent") == ["parent.0", "parent.1"]
    assert ids("--stuck") == []
    assert ids("--retrying") == []
    assert ids("--since", "2100-01-01") == []


def test_show_tells_error_and_traceback(place):
    shown = place("-o", "table", "show", "fails")[1]

    assert "ValueError: as planned" in shown
    assert "in execute" in shown
    assert "last steps" in shown


def test_a_death_that_an_undo_survived_is_shown(place):
    place("submit", "jobs:Fragile", "--id", "fragile")
    place("watch", "fragile", "--timeout", "50s")

    shown = place("-o", "table", "show", "fragile")[1]
    (undone,) = [row for row in place.rows("steps", "fragile") if row["outcome"] == "undone"]

    assert "ValueError: the second step fails" in shown
    assert "last crash (crash, in step 3 of fragile)" in shown
    assert "killed by signal 6 (SIGABRT)" in shown
    assert undone["attempts"] == 2
    assert undone["crash"]["crash"]["signal"] == "SIGABRT"
    assert "SIGABRT" in place("-o", "wide", "steps", "fragile", "--failed")[1]


def test_trees_are_drawn_and_nested(place):
    drawn = place("-o", "table", "tree", "parent")[1].splitlines()

    assert [line[:11] for line in drawn] == ["parent  Par", "├─ parent.0", "└─ parent.1"]
    assert len(place.rows("tree", "parent")[0]["children"]) == 2


def test_steps_logs_workers_locks_and_metrics(place):
    assert [row["outcome"] for row in place.rows("steps", "waits-a")] == ["submitted", "wait"]
    assert place.rows("steps", "fails", "--failed")[-1]["error"]["message"] == "as planned"
    assert "hello" in {row["text"] for row in place.rows("logs", "waits-a")}
    assert len(place.rows("workers")) == 2
    assert place.rows("locks") == []
    assert "actorproc_workers 2" in place("metrics")[1]
    assert place.rows("metrics", "-o", "jsonl")[0]["workers"] == 2
    code, shown, said = place("top")
    assert (code, said) == (0, "")
    assert {"workers", "failures"} <= set(shown.splitlines())


def test_metrics_replace_a_file_for_a_textfile_collector(place, tmp_path):
    file = tmp_path / "actorproc.prom"
    file.write_text("of yesterday")

    assert place("metrics", "--textfile", str(file)) == (0, "", "")
    found = families(file.read_text(encoding="utf-8"))
    assert found["actorproc_workers"].samples[0].value == 2
    assert "actorproc_oldest_unfinished_seconds" in found
    assert list(tmp_path.iterdir()) == [file]
    assert place("metrics", "--textfile", str(tmp_path / "no" / "place.prom"))[0] == 2
    assert place("metrics", "--textfile", str(tmp_path), "-o", "json")[0] == 2
    assert place("metrics", "--textfile", str(tmp_path))[0] == 2
    assert list(tmp_path.iterdir()) == [file]
    assert families(place("metrics")[1]).keys() == found.keys()


def test_status_counts_and_finds_the_oldest(place):
    status = place.rows("status")[0]

    assert status["states"]["FAILED"] == len(place.rows("list", "--state", "failed")) >= 1
    assert status["oldest"]["id"] == "waits-a"
    assert status["health"]["status"] == "running"
    assert "2 workers busy" in place("-o", "table", "status")[1]


def test_any_beginning_that_only_one_id_has_is_an_id(place):
    assert place.rows("show", "fai")[0]["id"] == "fails"
    code, _, said = place("show", "waits")
    assert code == 2
    assert "waits-a, waits-b" in said
    assert place.rows("show", "parent")[0]["id"] == "parent"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["show", "nobody"], 3),
        (["watch", "nobody"], 3),
        (["abort"], 2),
        (["abort", "--all-matching"], 2),
        (["nonsense"], 2),
        (["list", "--state", "HAPPY"], 2),
        (["delete", "waits-a"], 5),
        (["retry", "waits-a"], 5),
        (["watch", "waits-a", "--timeout", "50ms"], 124),
        (["watch", "fails"], 1),
        (["submit", "jobs:Nothing"], 2),
        (["submit", "jobs:add", "a=1", "c=2"], 2),
        (["submit", "jobs:Fails", "message=x", "--wait"], 1),
        (["submit", "jobs:Waits", "event=never", "--wait", "--timeout", "50ms"], 124),
        (["signal", "waits-a", "no json"], 2),
        (["--path", "nowhere", "list"], 4),
    ],
)
def test_exit_codes(place, arguments, code):
    done = place.run(*arguments)

    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_an_output_is_waited_for_and_printed(place):
    assert place("-o", "table", "submit", "jobs:add", "a=1", "b=2", "--wait")[1] == "3\n"
    assert place.rows("submit", "jobs:add", "--json", '{"a": "x", "b": "y"}', "--wait")[0]["result"] == "xy"


def test_a_failure_that_was_waited_for_is_one_line(place):
    code, said, hint = place("-o", "table", "submit", "jobs:Fails", "message=broken", "--id", "one-line", "--wait")

    assert (code, len(said.splitlines())) == (1, 1)
    assert said.endswith("broken\n")
    assert "Traceback" not in said
    assert "actorproc show one-line" in hint
    assert "Traceback" in place.rows("submit", "jobs:Fails", "message=broken", "--id", "one-line", "--wait")[0]["error"]


def test_a_dry_run_submits_nothing(place):
    assert place("submit", "jobs:add", "a=1", "b=2", "--id", "dry", "--dry-run")[0] == 0
    assert place("show", "dry")[0] == 3


def test_the_directory_comes_from_the_environment_too(place):
    done = place.run("list", "--limit", "1", ACTORPROC_PATH=str(place.store))

    assert done.returncode == 0
    assert place.run("list", ACTORPROC_PATH="nowhere").returncode == 4


def test_a_live_store_is_backed_up_compacted_and_found_sound(place):
    copy = place.directory / "copy"

    assert place("backup", str(copy))[0] == 0
    assert place("backup", str(copy))[0] == 5
    assert place("compact", "--dry-run")[0] == 0
    assert place("compact")[0] == 0
    assert place("doctor")[0] == 0
    assert place.rows("--path", str(copy), "list") != []


def test_a_list_imports_neither_actors_nor_psutil(place):
    done = place.run("list", "--limit", "1", PYTHONPROFILEIMPORTTIME="1")

    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "actorproc.store.lmdb.reader" in imported
    assert not imported & {"pykka", "psutil", "cloudpickle", "logging", "actorproc.engine", "actorproc.api.manager"}


def test_a_list_finds_by_tags_with_values_and_by_searchable_fields(place):
    for name in ("ann", "ben"):
        place("submit", "jobs:Parcel", f"to={name}", "--id", name, "--tag", f"line={name}", "--tag", "post", "--wait")

    def found(*filters):
        return [row["id"] for row in place.rows("list", "--oldest", *filters)]

    assert found("--tag", "scale=a") == found("--where", "weight=7") == ["ann", "ben"]
    assert found("--tag", "scale=a", "--tag", "line=ben") == found("--where", "to=ben", "--tag", "post") == ["ben"]
    assert found("--where", "to=ann", "--where", "weight=7", "--type", "Parcel") == ["ann"]
    assert found("--where", "weight=0") == found("--where", "to") == []
    assert "finds fields that a class declares searchable" in place("list", "--where", "none=1")[2]
    assert place("list", "--where", "to=1", "--where", "to=2")[0] == 2
    assert place.rows("list", "--where", "to=ann")[0]["tags"] == ["line=ann", "post", "scale=a"]
