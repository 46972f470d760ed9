"""The file that ``export --out`` writes is whole or not there."""

from __future__ import annotations

import resource

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
