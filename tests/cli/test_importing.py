"""A user's module that cannot be imported, or a procedure that cannot be made, is told in words by every command."""

from __future__ import annotations

import sys

import pytest

from actorproc import Procedure, ProcedureManager, Status
from actorproc.cli.main import main
from tests.kit.managers import LIGHT

pytestmark = pytest.mark.processes

MODULES = {
    "raises": ("x = 1\ny = 1 / 0\n", "ZeroDivisionError: division by zero", "line 2"),
    "syntax": ("def f(:\n", "SyntaxError", "line 1"),
    "imports": ("import nothing_of_this_name\n", "No module named 'nothing_of_this_name'", "line 1"),
    "leaves": ("import sys\nsys.exit(3)\n", "it exits with 3", "line 2"),
    "evil": ('raise RuntimeError("a\\x1b[31mred")\n', "RuntimeError: a\\x1b[31mred", "line 1"),
}


class Made(Procedure):
    def execute(self, ctx):
        return Status.done()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    place = tmp_path_factory.mktemp("imports") / "state"
    with ProcedureManager(place, workers=1, procedures=[Made], **LIGHT) as manager:
        manager.run(Made(), id="made")
    return place


@pytest.mark.parametrize("command", ["submit", "check", "replay", "env"])
@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_cannot_be_imported_is_told_with_the_place(name, command, store, tmp_path, monkeypatch, capsys):
    text, error, place = MODULES[name]
    module = f"unusable_{name}_{command}"
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, module, raising=False)
    commands = {
        "submit": ("submit", f"{module}:X"),
        "check": ("check", module),
        "replay": ("replay", "made", "--module", module),
        "env": ("replay", "made", "--module", f"{__name__}:Made", "--env", f"{module}:make"),
    }

    assert main(["--path", str(store), *commands[command]]) == 2

    said = capsys.readouterr().err
    assert error in said
    assert place in said
    assert module in said
    assert "Traceback" not in said


class Picky(Procedure):
    def __init__(self, way: str) -> None:
        raise {"runtime": RuntimeError, "key": KeyError, "value": ValueError}[way]("not like this")

    def execute(self, ctx):
        return Status.done()


@pytest.mark.parametrize("way", ["runtime", "key", "value", "unknown"])
def test_a_procedure_that_cannot_be_made_is_told(way, store, capsys):
    assert main(["--path", str(store), "submit", f"{__name__}:Picky", f"way={way}"]) == 2

    said = capsys.readouterr().err
    assert "cannot be made of these fields" in said
    assert "Traceback" not in said
