"""How large arguments and results of calls may be."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from actorproc import Config, ProcedureExecutor, ProcedureManager, StoreReader
from actorproc.errors import StateTooLarge
from tests.executor.calls import add

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("results_stay")]

MIB = 1024 * 1024


def of_size(size):
    return b"x" * size


def test_arguments_and_results_beyond_a_states_limit_are_stored_and_found_again(open_executor, tmp_path):
    executor = open_executor(max_workers=1)
    content = os.urandom(24 * MIB)
    back = executor.submit(add, content, b"")
    assert back.result(60) == content
    executor.shutdown()

    doctor = [sys.executable, "-m", "actorproc", "--path", str(tmp_path / "state"), "doctor"]
    checked = subprocess.run(doctor, capture_output=True, text=True, check=False, timeout=120)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with StoreReader(tmp_path / "state") as reader:
        assert reader.info(back.id).state == "SUCCESS"
    with ProcedureManager(tmp_path / "state", workers=1) as manager, ProcedureExecutor(manager) as again:
        assert again.get(back.id).result(60) == content
        manager.backup(tmp_path / "copy")
    with ProcedureManager(tmp_path / "copy", workers=1) as manager, ProcedureExecutor(manager) as copied:
        assert copied.get(back.id).result(60) == content


def test_what_is_too_large_names_the_option_that_raises_the_limit(tmp_path):
    config = Config(max_call=17 * MIB, spares=0)
    with (
        ProcedureManager(tmp_path / "state", workers=1, config=config) as manager,
        ProcedureExecutor(manager) as executor,
    ):
        with pytest.raises(StateTooLarge, match=r"17825792.*max_call|max_call is 17825792"):
            executor.submit(len, of_size(18 * MIB)).result(60)
        error = executor.submit(of_size, 18 * MIB).exception(60)
        assert "StateTooLarge" in repr(error) or "StateTooLarge" in str(error)
        assert "Config(max_call=" in str(error)
        assert len(executor.submit(of_size, 16 * MIB + 1).result(60)) == 16 * MIB + 1


@pytest.mark.parametrize("size", [0, -1, 2**31, 1.5, True])
def test_a_limit_of_calls_that_is_none_is_refused(size):
    with pytest.raises((ValueError, TypeError), match="max_call"):
        Config(max_call=size)
