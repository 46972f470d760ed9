"""Classes that say they need the manager's turn are used by the thread that holds it, whichever thread that is."""

from __future__ import annotations

import importlib
import inspect
import os
import signal
import sys
import threading
from collections import defaultdict
from pathlib import Path

import pytest

import actorproc
from actorproc import Procedure, ProcedureManager, Status
from actorproc.engine.runtime.inbox import CombiningInbox
from tests.architecture import sources

pytestmark = pytest.mark.processes

PACKAGE = Path(actorproc.__file__).parent
CLAIM = "needs the manager's turn"


class Dies(Procedure):
    """Its first attempt kills its worker."""

    def execute(self, ctx):
        if ctx.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return Status.done("alive")


class Steps(Procedure):
    """Two steps, one log line."""

    def execute(self, ctx):
        ctx.log.info("at work")
        return Status.executing() if ctx.step == 1 else Status.done(ctx.step)


def claimants():
    """The classes whose docstring makes the claim, of all modules of the package."""
    for path in sources(PACKAGE):
        if CLAIM in path.read_text(encoding="utf-8").casefold():
            module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
            for member in vars(module).values():
                is_its_own = inspect.isclass(member) and member.__module__ == module.__name__
                if is_its_own and member is not CombiningInbox and CLAIM in _doc(member):
                    yield member


def _doc(cls):
    return (cls.__doc__ or "").casefold()


def test_claims_about_the_turn_hold(tmp_path, monkeypatch):
    owners = {
        member.__code__: cls.__qualname__
        for cls in claimants()
        for name, member in vars(cls).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }
    assert len(set(owners.values())) >= 10
    inboxes, without, threads = [], set(), defaultdict(set)
    before = CombiningInbox.__init__
    monkeypatch.setattr(CombiningInbox, "__init__", lambda self: (before(self), inboxes.append(self))[0])

    def on_call(frame, event, _arg):
        if event == "call" and frame.f_code in owners:
            threads[owners[frame.f_code]].add(threading.get_ident())
            if not inboxes[-1]._turn.locked():
                without.add(f"{owners[frame.f_code]}.{frame.f_code.co_name} on {threading.current_thread().name}")

    threading.setprofile(on_call)
    try:
        with ProcedureManager(tmp_path, workers=2, procedures=[Dies, Steps]) as manager:
            assert [manager.run(Steps()) for _ in range(20)] == [2] * 20
            assert manager.run(Dies()) == "alive"
            handles = manager.submit_many([Steps() for _ in range(200)])
            assert [handle.result() for handle in handles] == [2] * 200
    finally:
        threading.setprofile(None)
        sys.setprofile(None)

    assert without == set()
    assert max(len(found) for found in threads.values()) > 1
