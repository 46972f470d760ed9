"""The table of operators' verbs: it is what the core records, and a new verb is an event, a handler and an entry."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import actorproc.core
from actorproc.control.checks import checked_request
from actorproc.control.methods import REPEATABLE, REQUESTS
from actorproc.core.operator.verbs import VERBS, verb_named
from actorproc.core.rules import HANDLERS
from actorproc.errors import InvalidId
from actorproc.model.messages.events import Event, RestartRequested
from actorproc.ui import verbs as words

CORE = Path(actorproc.core.__file__).parent
OF_EACH = {"id", "reply", "reason", "by"}
"""Fields that a command of any verb fills in."""
FILLED = {"restart": {"new", "generation"}, "ack": {"head"}, "delete": {"tree"}}
"""Fields that the engine fills in, and no operator, by the verb."""


def audit_words() -> set[str]:
    """The words under which the core records what operators asked for."""
    calls = [node for path in CORE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    return {
        word.value
        for call in calls
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "audit"
        for word in ast.walk(call.args[1])
        if isinstance(word, ast.Constant) and isinstance(word.value, str)
    }


def test_the_words_of_the_audit_log_are_the_names_of_the_table():
    assert audit_words() == {verb.name for verb in VERBS} | {"ask"}  # a signal that has a reply


def test_each_request_with_a_reason_is_in_the_table():
    with_reason = {event for event in get_args(Event) if {"reply", "reason"} <= set(event.__struct_fields__)}

    assert {verb.event for verb in VERBS} == with_reason


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_a_verb_is_handled_sent_and_checked_as_its_entry_says(verb):
    assert verb_named(verb.name) is verb
    assert HANDLERS[verb.event] is verb.handle
    assert REQUESTS[verb.event.__name__] is verb.event
    assert (verb.event.__name__ in REPEATABLE) == verb.is_repeatable
    if set(verb.event.__struct_fields__) <= {"id", "reply", "reason", "by", "force", "children", "ancestors"}:
        with pytest.raises(InvalidId):
            checked_request(verb.event(id="", reply=1), 100)
        if verb.is_for_all:
            assert checked_request(verb.event(id=None, reply=1), 100).id is None


def more_than_flags(event):
    """Fields of a request that are neither those of each request nor an option that is yes or no."""
    kinds = event.__annotations__
    return {name for name in event.__struct_fields__ if name not in OF_EACH and kinds[name] not in {"bool", bool}}


@pytest.mark.parametrize("name", words.VERBS)
def test_a_verb_of_the_dashboards_takes_the_flags_of_its_request_and_nothing_else(name):
    verb = verb_named({"ack": "acknowledge"}.get(name, name))
    flags = set(verb.event.__struct_fields__) - OF_EACH - more_than_flags(verb.event)

    assert flags == set(words.VERBS[name].flags)
    assert more_than_flags(verb.event) == FILLED.get(name, set())
    assert words.VERBS[name].is_for_roots == verb.is_for_roots
    assert verb.help == ""  # its words stand once


def test_a_verb_whose_command_comes_from_its_entry_takes_flags_only():
    assert [
        (verb.name, more_than_flags(verb.event)) for verb in VERBS if verb.help and more_than_flags(verb.event)
    ] == []
    assert more_than_flags(RestartRequested) == {"new", "generation"}  # what such a command could not give


def test_verbs_on_everything_are_those_that_need_no_id():
    assert set(words.MANAGER_VERBS) == {verb.name for verb in VERBS if verb.is_for_all}


RENAME = {
    "actorproc.model.messages.events": [
        (
            "class RetryRequested(",
            '''class RenameRequested(msgspec.Struct, frozen=True, gc=False):
    """An operator gives a procedure to another owner."""

    id: str
    reply: int
    loud: bool = False
    reason: str | None = None
    by: str | None = None


class RetryRequested(''',
        ),
        ("    | RetryRequested\n", "    | RetryRequested\n    | RenameRequested\n"),
    ],
    "actorproc.core.operator.pause": [
        (
            "def request_pause(",
            """def rename(state, event):
    record = state.residents.procs.get(event.id)
    if record is not None:
        record.owner = "NEW" if event.loud else "new"
        state.decision.touch(record)
        state.audit(record, "rename", event)
    state.decision.command(Reply(event.reply, record is not None))


def request_pause(""",
        )
    ],
    "actorproc.core.operator.verbs": [
        ("    AbortRequested,\n", "    AbortRequested,\n    RenameRequested,\n"),
        (
            "VERBS = (\n",
            """VERBS = (
    Verb("rename", RenameRequested, pause.rename, help="give procedures to another owner", done="renamed"),
""",
        ),
    ],
}
"""The three files that a verb `rename` touches, and what is written into each."""

PROGRAM = """
import importlib.util, sys
from importlib.machinery import SourceFileLoader

CHANGES = {changes!r}


class Patched(SourceFileLoader):
    def get_code(self, name):
        source = self.get_data(self.path).decode()
        for old, new in CHANGES[name]:
            assert source.count(old) == 1, (name, old, source.count(old))
            source = source.replace(old, new)
        return compile(source, self.path, "exec")


class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        if name in CHANGES:
            return importlib.util.spec_from_loader(name, Patched(name, path[0] + "/" + name.rpartition(".")[2] + ".py"))


sys.meta_path.insert(0, Finder)

from dataclasses import dataclass

from actorproc import Config, Procedure, ProcedureManager, Status
from actorproc.cli.main import main


@dataclass
class Waits(Procedure):
    def execute(self, ctx):
        return Status.wait("go")


def told(*arguments):
    code = main(["--path", sys.argv[1], "-o", "jsonl", *arguments])
    assert code == 0, code


if __name__ == "__main__":
    with ProcedureManager(sys.argv[1], workers=1, config=Config(spares=0), procedures=[Waits]) as manager:
        manager.submit(Waits(), "p")
        told("rename", "p", "--reason", "she left", "--as", "ann")
        print(manager.info("p").owner, [(row.verb, row.reason, row.by) for row in manager.audit("p")])
    told("rename", "p", "--loud")
    told("show", "p")
"""


def test_a_new_verb_touches_three_files_and_has_the_socket_the_command_line_and_the_stopped_store(tmp_path):
    assert len(RENAME) == 3
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("{changes!r}", repr(RENAME)))

    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "state")], check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    asked, seen, stopped, shown = done.stdout.splitlines()
    assert '"rename"' in asked
    assert '"renamed"' in asked
    assert '"manager"' in asked
    assert seen == "new [('rename', 'she left', 'ann')]"
    assert '"stopped store"' in stopped
    assert '"NEW"' in shown
