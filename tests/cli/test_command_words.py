"""Refusals of the engine advise calls; the command line says them as commands."""

from __future__ import annotations

import pytest

from actorproc import ProcedureManager
from actorproc.cli.main import main
from actorproc.ui.command_words import in_command_words, path_option
from tests.cli.test_killing import Naps
from tests.kit.managers import LIGHT
from tests.kit.waiting import wait_until


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        ("kill it with bypass('a-1', force=True)", "kill it with actorproc bypass a-1 --force"),
        ("all of them with bypass('a b', children=True)", "all of them with actorproc bypass 'a b' --children"),
        ("retry('a') goes on", "actorproc retry a goes on"),
        ("abort('a', force=True) stops it", "actorproc abort a --force stops it"),
        (
            'clear it with manager.clear_poison("shop/it\'s")',
            """clear it with actorproc clear-poison 'shop/it'"'"'s'""",
        ),
        ("or delete with force=True; the key stays", "or delete with --force; the key stays"),
        ("submit it again with on_existing='restart-failed'", "submit it again with --on-existing restart-failed"),
        ("publish() sends an event by name", "actorproc publish sends an event by name"),
        ("OSError: cannot retry(this), nor abort(", "OSError: cannot retry(this), nor abort("),
        ("the step has force=Trueish", "the step has force=Trueish"),
    ],
)
def test_a_call_is_told_as_its_command(words, typed):
    assert in_command_words(words, None) == typed


def test_the_command_is_for_the_same_store():
    said = in_command_words("retry('a') goes on", "my state")

    assert said == "actorproc --path 'my state' retry a goes on"


@pytest.mark.processes
def test_a_bypass_of_a_running_step_names_the_option(tmp_path, capsys):
    path = str(tmp_path / "state")
    with ProcedureManager(path, workers=1, procedures=[Naps], **LIGHT) as manager:
        manager.submit(Naps("hang"), "hangs")
        wait_until(lambda: manager.info("hangs").phase == "running")

        assert main(["--path", path, "-o", "table", "bypass", "hangs"]) == 5

        assert f"or kill it with actorproc --path {path} bypass hangs --force" in capsys.readouterr().out
        assert main(["--path", path, "bypass", "hangs", "--force"]) == 0


@pytest.mark.parametrize(
    ("path", "shown", "typed"),
    [
        ("state", "/home/ann/state", None),
        ("elsewhere/state", "/home/ann/elsewhere/state", "elsewhere/state"),
        ("postgresql://ann:open-sesame@db.example/app", "postgresql://ann@db.example/app", "postgresql://ann@db.example/app"),
    ],
)  # fmt: skip
def test_a_command_to_type_has_the_path_and_never_a_password(path, shown, typed):
    assert path_option(path, shown) == typed
