"""The file that ``export --out`` writes is whole or not there."""

from __future__ import annotations

import resource

import pytest

from actorproc.cli.main import main
from actorproc.store.lmdb.store import LmdbStore


def test_an_export_that_finds_no_room_says_so_and_leaves_no_half_of_a_file(tmp_path, capsys):
    store = LmdbStore(tmp_path / "state", map_size=1 << 24)
    store.own()
    store.close()
    command = ["--path", str(tmp_path / "state"), "export", "--all", "--out", str(tmp_path / "all.json")]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        code = main(command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert code == 4
    assert f"writing {tmp_path / 'all.json'}: File too large; free some space" in capsys.readouterr().err
    assert not (tmp_path / "all.json").exists()
    assert main(command) == 0


@pytest.mark.processes
def test_an_export_warns_of_pickles_as_secrets_inside_of_them_stay(tmp_path, capsys):
    from actorproc import ProcedureExecutor, Secret

    path = str(tmp_path / "calls")
    with ProcedureExecutor(path, max_workers=1) as executor:
        assert executor.submit_as("login", str, Secret("hunter2")).result(60) == "**********"

    warning = "1 tree holds pickles, which are written as they are, with what is marked as Secret in them"
    assert main(["--path", path, "export", "--all"]) == 0
    assert warning in capsys.readouterr().err
    assert main(["--path", path, "export", "--all", "--reveal"]) == 0
    assert "pickles" not in capsys.readouterr().err
