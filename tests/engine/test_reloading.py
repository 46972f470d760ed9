"""Code that changes under a running manager: it is warned of, and workers are replaced one by one."""

from __future__ import annotations

import importlib
import logging
import sys
import threading

import pytest

from actorproc import NotAllowed
from actorproc.engine.messages import SlotStatus
from actorproc.engine.workers.rolling_reload import replace_each
from actorproc.procedure.runtime.probing import differences
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes

SHOP = """
import time
from dataclasses import dataclass
from pathlib import Path
from actorproc import Procedure, RetryPolicy, Status

@dataclass
class Order(Procedure):
    item: str
    gate: str = ""
    def execute(self, ctx):
        if self.gate and ctx.step == 1:
            Path(self.gate, "began").touch()
            while not Path(self.gate, "open").exists():
                time.sleep(0.01)
            return Status.executing()
        import {name}_words
        return Status.done({name}_words.WORD)
"""


@pytest.fixture
def shop(tmp_path, monkeypatch, request):
    """A module of a procedure, with another one that only its steps import; both are forgotten after the test."""
    name = f"shop_{abs(hash(request.node.name)) % 10**9}"
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (folder / f"{name}.py").write_text(SHOP.format(name=name))
    (folder / f"{name}_words.py").write_text("WORD = 'old'\n")
    module = importlib.import_module(name)
    yield module, folder
    sys.modules.pop(name, None)


def test_changed_files_are_warned_of_once_and_told_by_health(open_manager, shop, caplog):
    module, folder = shop
    place = folder / f"{module.__name__}.py"
    before = place.read_text()
    with open_manager(workers=1, procedures=[module.Order]) as manager:
        assert manager.health().problems == ()
        place.touch()
        assert manager.health().problems == ()
        place.write_text(before + "# edited\n")
        with caplog.at_level(logging.WARNING, "actorproc"):
            assert module.__name__ in manager.health().problems[0]
            assert manager.health().status == "running"
        assert sum("files changed" in record.getMessage() for record in caplog.records) == 1
        place.write_text(before)
        assert manager.health().problems == ()


def test_workers_are_replaced_one_by_one_and_no_step_is_lost_or_repeated(open_manager, shop, tmp_path):
    module, folder = shop
    with open_manager(workers=2, procedures=[module.Order]) as manager:
        assert manager.run(module.Order("a")) == "old"
        gate = tmp_path / "gate"
        gate.mkdir()
        long = manager.submit(module.Order("b", str(gate)))
        wait_until((gate / "began").exists)
        (folder / f"{module.__name__}_words.py").write_text("WORD = 'new one'\n")
        before = {(slot.slot, slot.incarnation) for slot in manager.health().slots}

        with pytest.raises(TimeoutError, match=f"is still in step 1 of {long.id}"):
            manager.reload(timeout=4)
        assert manager.run(module.Order("c")) == "new one"
        threading.Timer(0.2, (gate / "open").touch).start()
        assert manager.reload(timeout=60) >= 1

        assert long.result(timeout=30) == "new one"
        assert {step.attempts for step in manager.steps(long.id)} <= {0, 1}
        assert before.isdisjoint((slot.slot, slot.incarnation) for slot in manager.health().slots)


def test_a_worker_that_loads_old_code_at_that_moment_is_replaced_when_it_has_booted(open_manager, shop, tmp_path):
    module, folder = shop
    place = folder / f"{module.__name__}_words.py"
    shut, loading = tmp_path / "shut", tmp_path / "loading"
    place.write_text(
        "import time\nfrom pathlib import Path\nWORD = 'old'\n"
        f"Path({str(loading)!r}).touch()\nwhile Path({str(shut)!r}).exists():\n    time.sleep(0.01)\n"
    )
    with open_manager(workers=1, procedures=[module.Order], preload=(f"{module.__name__}_words",)) as manager:
        assert manager.run(module.Order("a")) == "old"
        shut.touch()
        loading.unlink()
        manager.resize(4)  # one of them may be the spare, which has booted
        wait_until(loading.exists)
        place.write_text("WORD = 'new one'\n")
        before = {(slot.slot, slot.incarnation) for slot in manager.health().slots}

        threading.Timer(0.5, shut.unlink).start()
        assert manager.reload(timeout=60) >= 3

        assert before.isdisjoint((slot.slot, slot.incarnation) for slot in manager.health().slots)


def test_a_worker_that_never_boots_is_named():
    class Target:
        closed = False

        def manager_status(self):
            return None

        def slots(self):
            return (SlotStatus(slot=3, incarnation=1, state="booting", restarts=0, reason=None),)

    with pytest.raises(TimeoutError, match=r"^worker 3 has not booted after 0 s"):
        replace_each(Target(), lambda _: pytest.fail("nothing is there to be replaced"), timeout=0.0)


def test_a_reload_is_refused_where_the_program_has_loaded_what_changed(open_manager, shop):
    module, folder = shop
    with open_manager(workers=1, procedures=[module.Order]) as manager:
        place = folder / f"{module.__name__}.py"
        place.write_text(place.read_text() + "# edited\n")
        before = manager.health().slots
        with pytest.raises(NotAllowed, match=f"{module.__name__} changed, and this program has loaded it"):
            manager.reload()
        assert manager.health().slots == before


def test_a_service_is_reloaded_as_long_as_the_facts_are_the_same(open_manager, shop):
    module, folder = shop
    place = folder / f"{module.__name__}.py"
    with open_manager(workers=1, procedures=[module.Order]) as manager:
        manager._is_service = True
        place.write_text(place.read_text().replace(f"{module.__name__}_words.WORD", "'from the new file'"))
        assert manager.reload(timeout=60) == 1
        assert manager.run(module.Order("a")) == "from the new file"
        assert manager.health().problems == ()
        place.write_text(place.read_text().replace("    gate:", "    version = 2\n    gate:"))
        with pytest.raises(NotAllowed, match="version is 2 in the new code, and was registered as 1"):
            manager.reload(timeout=60)
        place.write_text("import nowhere_at_all\n")
        with pytest.raises(NotAllowed, match="cannot be imported from the new code: ModuleNotFoundError"):
            manager.reload(timeout=60)
        assert manager.health().status == "running"


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("version = 3", "version is 3"),
        ("retry = RetryPolicy(max_attempts=9)", "retry is"),
        ("lock_scope = 'step'", "lock_scope is 'step'"),
        ("work_class = 'slow'", "work_class is 'slow'"),
    ],
)
def test_each_fact_of_a_class_is_compared(shop, line, fact):
    from actorproc.procedure.runtime.class_shipping import definition_of
    from actorproc.procedure.runtime.engine_side import TypeRuntime

    module, folder = shop
    known = definition_of(TypeRuntime.of_class(module.Order))
    assert differences([known]) == []
    place = folder / f"{module.__name__}.py"
    place.write_text(place.read_text().replace("    item: str\n", f"    item: str\n    {line}\n"))
    [said] = differences([known])
    assert fact in said
