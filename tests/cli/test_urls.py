"""Commands refuse a URL as the path of a store, each in the same words, and make nothing."""

from __future__ import annotations

import pytest

from actorproc.cli.main import main

EXPORT = (
    '{"schema": 1, "object": "actorproc-export", "exported_at": "2026-01-01T00:00:00Z", "store_id": "x", "trees": []}'
)


@pytest.mark.parametrize(
    "command",
    [
        "status", "list", "locks", "poisons", "doctor", "show x", "steps x", "logs x", "tree x", "why x", "audit x",
        "export --all", "backup copy", "compact", "rotate-key", "rotate-key --dry-run", "pause x", "resume x",
        "abort x", "retry x", "delete x", "watch x", "top", "metrics", "signals",
        "check json:JSONDecoder", "run app:procedures",
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", ["--path", "ACTORPROC_PATH"])
def test_a_command_with_a_url_for_its_path_is_refused(tmp_path, monkeypatch, capsys, command, how):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "app.py").write_text(
        "from actorproc import Procedure, ProcedureManager, Status\n"
        "class Shop(Procedure):\n    def execute(self, ctx):\n        return Status.done()\n"
        "procedures = [Shop]\n"
    )
    command = command.replace("json:JSONDecoder", "app:procedures")
    before = {path.name for path in tmp_path.iterdir()}
    url = "mariadb://user:secret@host/name"
    arguments = command.split()
    if how == "--path":
        arguments += ["--path", url]
    else:
        monkeypatch.setenv("ACTORPROC_PATH", url)

    code = main(arguments)

    told = capsys.readouterr()
    assert code == 2, told
    assert "mariadb://… is a URL" in told.err
    assert "Supported: the path of a directory" in told.err
    assert "secret" not in told.err + told.out
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == before


@pytest.mark.parametrize("command", ["list", "doctor", "run app", "move DIR", "--path {} list"])
def test_a_password_on_the_command_line_is_refused(tmp_path, monkeypatch, capsys, command):
    """Every user of the machine sees the arguments of a process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "app.py").write_text(
        "from actorproc import Procedure, Status\n"
        "class Shop(Procedure):\n    def execute(self, ctx):\n        return Status.done()\n"
    )
    url = "postgresql://user:secret@host/name"
    arguments = command.format(url).split()
    if command.startswith("move"):
        arguments = ["move", url, "state"]
    elif "{}" not in command:
        arguments += ["--path", url]

    code = main(arguments)

    told = capsys.readouterr()
    assert code == 2, told
    assert "PGPASSFILE" in told.err
    assert "secret" not in told.err + told.out
