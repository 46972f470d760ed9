"""The tests of this folder that run on several kinds of managers get the kind that their name says."""

from __future__ import annotations

import ast
from pathlib import Path

from actorproc.store.postgres.store import DatabaseStore
from actorproc.workers.pool.local_pool import LocalPool
from tests.kit.chosen_for_database import CHOSEN
from tests.kit.on_database import ON_A_DIRECTORY
from tests.kit.on_hosts import ON_THIS_MACHINE


def test_a_manager_is_of_the_kind_that_the_name_of_its_test_says(open_manager, kind_of_store, request):
    manager = open_manager(workers=1)

    assert isinstance(manager._tree.store, DatabaseStore) == (kind_of_store == "postgres")
    assert isinstance(manager._tree.pool, LocalPool) == (kind_of_store != "hosted")
    assert f"[{kind_of_store}]" in request.node.nodeid


def test_the_tests_that_are_named_for_a_kind_are_there():
    for listed in (CHOSEN, ON_A_DIRECTORY, ON_THIS_MACHINE):
        for module, names in listed.items():
            tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text())
            there = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            assert set(names.split()) <= there, module
