"""Commands as scripts and daemons give them: empty variables, closed streams, filters that do not belong there."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from actorproc.cli.main import build_parser, main

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def lonely(place):
    """A place with one procedure, which waits."""
    place("submit", "jobs:Waits", "event=never", "--id", "only")
    place.until(lambda: place.phase("only") == "waiting")
    return place


def closed(place, redirections, *arguments):
    """Run a command whose standard streams the shell has closed."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-m", "actorproc", *arguments],
        cwd=place.directory, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_an_empty_id_is_not_the_beginning_of_the_only_one(lonely):
    for arguments in (["show", ""], ["abort", "--force", ""], ["list", "--root", ""]):
        code, _, said = lonely(*arguments)
        assert code == 2
        assert "an id is empty" in said
    assert lonely.state("only") == "WAITING"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "operators asked for nothing of the store; those about procedures: actorproc audit --all"),
        (["--by", "bob"], "no request matches of the store; those about procedures: actorproc audit --all"),
        (["--all", "--by", "bob"], "no request matches"),
        (["only"], "operators asked for nothing"),
        (["only", "--verb", "kill"], "no request matches"),
    ],
    ids=lambda value: " ".join(value) or "none" if isinstance(value, list) else "",
)
def test_an_empty_audit_says_what_was_looked_through(lonely, arguments, words):
    _, out, said = lonely("-o", "table", "audit", *arguments)

    assert (out + said).strip() == words


def test_a_filter_does_not_pause_everything(lonely):
    for verb in ("pause", "resume"):
        code, _, said = lonely(verb, "--manager", "--type", "jobs.Waits")
        assert code == 2
        assert "leave ids and filters out" in said
    assert lonely.rows("status")[0]["paused"] is None


def test_a_program_gets_an_empty_list_when_nothing_matches(lonely):
    code, out, said = lonely("-o", "json", "retry", "--state", "FAILED", "--type", "jobs.None", "--all-matching")

    assert (code, said) == (0, "no procedure matches; try without one of --state, --type, --roots\n")
    assert json.loads(out) == {"schema": 1, "object": "list", "of": "outcome", "items": []}


def test_what_is_no_json_is_text_in_a_field_and_refused_as_a_payload(lonely):
    code, out, _ = lonely("-o", "table", "submit", "jobs:add", "a=NaN", "b=!", "--wait")
    assert (code, out) == (0, '"NaN!"\n')
    assert lonely("signal", "only", "Infinity")[0] == 2
    assert lonely("submit", "jobs:add", "--json", '{"a": NaN, "b": 1}')[0] == 2


def test_a_class_that_refuses_its_fields_is_quoted(lonely):
    (lonely.directory / "strict.py").write_text(
        "from dataclasses import dataclass\nfrom actorproc import Procedure\n\n@dataclass\nclass Strict(Procedure):\n"
        "    count: int\n    def __post_init__(self):\n        raise ValueError('count must be even')\n"
    )

    code, _, said = lonely("submit", "strict:Strict", "count=3")

    assert code == 2
    assert said == "actorproc: strict:Strict cannot be made of these fields: count must be even\n"


def test_a_path_in_the_place_of_a_module_is_told(lonely):
    for command in ("run", "submit"):
        code, _, said = lonely(command, "./jobs.py")
        assert code == 2
        assert "there is no module './jobs.py' here" in said
        assert "Traceback" not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def what(: pass", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("import json\nx = nope", "NameError: name 'nope' is not defined ({place}, line 2)"),
        ("raise OSError('gone\\nfor good')", "OSError: gone\\nfor good ({place}, line 1)"),
    ],
)
def test_a_check_of_a_module_that_cannot_be_imported_says_why_in_a_line(lonely, text, said):
    place = lonely.directory / "broken.py"
    place.write_text(text + "\n")

    code, _, words = lonely("check", "broken")

    assert code == 2
    assert words == f"actorproc: broken cannot be imported: {said.format(place=place)}\n"


def test_what_a_script_submitted_is_replayed_with_the_script_as_module(lonely):
    (lonely.directory / "shop.py").write_text(
        "from actorproc import Procedure, ProcedureManager, Status, procedure\nfrom dataclasses import dataclass\n\n"
        "@dataclass\nclass Sum(Procedure):\n    n: int\n    def execute(self, ctx):\n"
        "        return Status.done(self.n + 1)\n\n@procedure\ndef double(n):\n    return 2 * n\n\n"
        "if __name__ == '__main__':\n    with ProcedureManager('script', workers=1) as manager:\n"
        "        manager.run(Sum(1), id='sum')\n        manager.run(double(2), id='double')\n"
    )
    subprocess.run([sys.executable, "shop.py"], cwd=lonely.directory, check=True, timeout=60)

    assert lonely("--path", "script", "replay", "sum")[2] == (
        "actorproc: __main__.Sum is of a script: give that as a module with --module (shop for shop.py)\n"
    )
    for name in ("sum", "double"):
        code, said, _ = lonely("-o", "table", "--path", "script", "replay", name, "--module", "shop")
        assert (code, "same: the same output" in said) == (0, True)


def test_a_name_that_nearly_fits_is_answered_with_the_one_that_is_meant(lonely):
    assert "for what is in jobs write jobs:Waits" in lonely("submit", "jobs.Waits")[2]
    assert "leave .py out: jobs" in lonely("run", "jobs.py")[2]
    assert lonely("-o", "name", "list", "--type", "Waits")[1] == "only\n"
    assert "this would abort 1 procedure:" in lonely("abort", "--type", "Waits", "--all-matching")[2]


def test_a_signal_is_for_a_procedure_that_is_there_and_an_event_for_whichever_waits(lonely):
    lonely("submit", "jobs:Waits", "event=never", "--id", "heard")

    assert [row["result"] for row in lonely.rows("signal", "hea", "1")] == ["sent"]
    assert lonely("signal", "herd", "1")[0] == 3
    assert [row["result"] for row in lonely.rows("publish", "herd", '{"a": 1}', "--dedup", "k")] == ["published"]
    found = [(row["event"], row["id"], row["number"], row["dedup"]) for row in lonely.rows("signals")]
    assert ("herd", None, 1, "k") in found
    status = lonely.rows("status")[0]
    assert status["signals"] == len(found)
    assert "that no procedure has taken" in lonely("-o", "table", "status")[1]


@pytest.mark.parametrize(
    ("arguments", "code", "left"),
    [
        (("--event", "a"), 0, ["b#1"]),
        (("--older-than", "0s"), 2, ["a#1", "a#2", "b#1"]),
        (("--event", "a", "--number", "2"), 0, ["a#1", "b#1"]),
        (("--event", "a", "--dry-run"), 0, ["a#1", "a#2", "b#1"]),
        (("--all", "--yes"), 0, []),
        (("--older-than", "1h"), 3, ["a#1", "a#2", "b#1"]),
        (("--to", "heard"), 3, ["a#1", "a#2", "b#1"]),
        (("--event", "c"), 3, ["a#1", "a#2", "b#1"]),
        ((), 2, ["a#1", "a#2", "b#1"]),
        (("--all", "--event", "a"), 2, ["a#1", "a#2", "b#1"]),
        (("--all", "--number", "1"), 2, ["a#1", "a#2", "b#1"]),
        (("--to", "heard", "--event", "a"), 2, ["a#1", "a#2", "b#1"]),
        (("--all",), 2, ["a#1", "a#2", "b#1"]),
    ],
)
def test_events_are_withdrawn_by_name_number_and_age(lonely, arguments, code, left):
    lonely("withdraw", "--all", "--yes")
    for name in ("a", "a", "b"):
        assert lonely("publish", name)[0] == 0

    assert lonely("withdraw", *arguments)[0] == code
    assert sorted(lonely("signals", "-o", "name")[1].split()) == left


def test_a_dry_run_where_there_is_no_store_says_so(lonely):
    for arguments in (["pause", "--manager"], ["signal", "only"]):
        assert lonely("--path", "nowhere", *arguments, "--dry-run")[0] == 4


def test_keys_are_looked_at_before_any_is_given_back(lonely):
    code, out, said = lonely("clear-poison", "a/b", "//")

    assert (code, out) == (2, "")
    assert "lock key '//'" in said
    assert [row["id"] for row in lonely.rows("clear-poison", "a/b", "a/b")] == ["a/b"]


def test_metrics_are_printed_whatever_the_terminal_can_show(lonely):
    (lonely.directory / "umlaut.py").write_text(
        "from actorproc import Procedure, Status\n\nclass Größe(Procedure):\n"
        "    def execute(self, ctx):\n        return Status.done()\n"
    )
    assert lonely("submit", "umlaut:Größe", "--wait")[0] == 0

    done = lonely.run("metrics", PYTHONIOENCODING="ascii")

    assert done.returncode == 0
    assert r"Gr\xf6\xdfe" in done.stdout


def test_commands_whose_streams_are_closed_do_what_they_are_to_do(lonely):
    assert closed(lonely, "<&- >&- 2>&-", "list").returncode == 0
    failed = closed(lonely, "2>&-", "show", "nobody")
    assert (failed.returncode, failed.stdout) == (3, "")
    asked = closed(lonely, "<&-", "delete", "--state", "WAITING", "--all-matching")
    assert asked.returncode == 2
    assert "say --yes" in asked.stderr


def test_a_complaint_that_nobody_reads_ends_as_output_does(lonely):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "actorproc", "show", "nobody"],
            cwd=lonely.directory, stdout=subprocess.DEVNULL, stderr=writing, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(writing)

    assert done.returncode == 141


def test_the_command_to_type_next_means_the_same_store(lonely):
    for command in (["status"], ["show", "only"]):
        assert "actorproc why only" in lonely("-o", "table", *command)[1]
        assert "actorproc --path ./state why only" in lonely("-o", "table", "--path", "./state", *command)[1]


def test_the_next_page_is_found_by_the_beginning_of_an_id(lonely):
    code, _, said = lonely("list", "-o", "json", "--after", "on")

    assert (code, said) == (0, "")
    assert "only" not in {row["id"] for row in lonely.rows("list", "--after", "on")}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "jobs", "--workers", "two"], "'two' is no whole number of at least 0"),
        (["run", "jobs", "--stop-timeout", "soon"], "'soon' is no span of time"),
        (["steps", "only", "--last", "-1"], "'-1' is no whole number"),
        (["tree", "only", "--limit", "0"], "'0' is no whole number"),
        (["top", "--every", "often"], "'often' is no span of time"),
        (["submit", "jobs:add", "a=1", "b=2", "--timeout", "5s"], "--timeout is how long --wait waits"),
    ],
)
def test_a_number_that_can_be_none_is_refused_in_words(lonely, arguments, words):
    code, out, said = lonely(*arguments)

    assert (code, out) == (2, "")
    assert words in said


def test_every_command_tells_where_the_store_is_and_takes_times_alike():
    parser = build_parser()
    (commands,) = (action for action in parser._actions if action.dest == "command")

    without = {"demo", "torture", "schema", "completion"}
    assert {name for name, inner in commands.choices.items() if "--path" not in inner.format_help()} == without
    assert parser.parse_args(["run", "shop", "--stop-timeout", "1m"]).stop_timeout == 60.0


SUSPENDED = [
    (("why", "only"), 0, "is suspended: nothing goes on"),
    (("why", "only"), 0, "⇒ kill -CONT"),
    (("stack", "only"), 4, "does not answer"),
    (("watch",), 4, "does not answer"),
    (("watch", "only"), 4, "does not answer"),
    (("watch", "--digest", "1s"), 4, "does not answer"),
    (("workers",), 4, "does not answer"),
    (("kill", "only"), 4, "does not answer"),
    (("pause", "only"), 4, "It is suspended (kill -CONT"),
]


def test_a_manager_that_is_suspended_is_named(lonely):
    """All commands at once: each waits for its answer for seconds."""
    commands = list(dict.fromkeys(command for command, _, _ in SUSPENDED))
    lonely.tell_service(signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(len(commands)) as threads:
            found = dict(zip(commands, threads.map(lambda one: lonely("-o", "table", *one), commands), strict=True))
    finally:
        lonely.tell_service(signal.SIGCONT)

    assert {command: found[command][0] for command in commands} == {command: code for command, code, _ in SUSPENDED}
    assert [(command, words) for command, _, words in SUSPENDED if words not in "".join(found[command][1:])] == []


def test_the_output_of_a_procedure_is_shown_also_while_the_manager_does_not_answer(quiet):
    quiet.serve(workers=1)
    quiet("submit", "jobs:Waits", "event=never", "text=hello", "--id", "waits")
    quiet.until(lambda: quiet.rows("logs", "waits"))

    quiet.tell_service(signal.SIGSTOP)
    try:
        code, out, said = quiet("-o", "name", "logs", "waits")
    finally:
        quiet.tell_service(signal.SIGCONT)

    assert code == 0
    assert "hello" in out.split("\n")
    assert "does not answer" in said


@pytest.mark.parametrize("arguments", [["workers"], ["abort", "a"], ["top"], ["list"]], ids=" ".join)
def test_a_program_that_plays_a_command_hears_the_log_as_before(arguments, tmp_path, capsys):
    logger = logging.getLogger("actorproc")
    before = logger.propagate, list(logger.handlers)

    assert main(["--path", str(tmp_path / "nothing"), *arguments]) != 0

    assert capsys.readouterr().err
    assert (logger.propagate, logger.handlers) == before
