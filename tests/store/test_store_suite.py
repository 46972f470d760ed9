"""The conformance suite of stores finds every seeded fault, and none in a sound store."""

from __future__ import annotations

import pytest

from tests.kit.suites import failures_by_class
from tests.store.broken_stores import BROKEN, SOUND


@pytest.mark.parametrize("each", [5, pytest.param(1, marks=pytest.mark.nightly)])
def test_each_planted_fault_fails_the_suite_and_a_sound_store_passes(tmp_path, each):
    """In every run with a fifth of the faults, and with all of them at night."""
    tried = SOUND + BROKEN[::each]
    names = " or ".join(f"Test{kind.__name__}" for kind in tried)
    chosen = f"({names}) and (not scan_gives or p256)"
    tests, failures = failures_by_class("tests/store/broken_stores.py", tmp_path, "-k", chosen)

    assert len(BROKEN) >= 20
    assert {name: failures[name] for kind in SOUND if (name := kind.__name__)} == {"Sound": 0}
    assert [kind.__name__ for kind in tried if not failures[kind.__name__] and kind not in SOUND] == []
    assert len({tests[kind.__name__] for kind in tried}) == 1, "each ran the whole suite"
    # A fault is told by the tests it concerns, not by all of them.
    assert [name for name, count in failures.items() if count > 0.8 * tests[name]] == []


def test_a_suite_without_a_store_says_what_it_needs(tmp_path):
    (tmp_path / "test_forgotten.py").write_text(
        "from actorproc.testing.store_suite import StoreSuite\nclass TestMine(StoreSuite):\n    pass\n"
    )
    from tests.kit.suites import run_pytest

    ended = run_pytest("--tb=line", "-k", "new_store", cwd=tmp_path)

    assert ended.returncode == 1
    assert "TestMine needs a fixture `make_store`" in ended.stdout
