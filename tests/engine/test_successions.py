"""Deaths of workers whose places spares have: told with the boot of the spare, and alone where that never comes."""

from __future__ import annotations

import pytest

from actorproc.engine.messages import Succeeded
from actorproc.engine.workers.successions import Successions
from actorproc.model.crash_report import CrashReport
from actorproc.model.ids import WorkerId
from actorproc.workers.base import WorkerBooted, WorkerDied

FIRST, SECOND, THIRD = (WorkerId(1000, number) for number in (1, 2, 3))
DEAD = CrashReport(kind="signal", message="it is gone")
LOST = CrashReport(kind="host-lost", message="its host is gone")


def died(worker, successor=None, report=DEAD):
    return WorkerDied(worker, report, True, successor)


def test_a_death_is_told_with_the_boot_of_the_spare():
    successions = Successions()

    assert successions.died(died(FIRST, SECOND)) == []
    assert successions.booted(WorkerBooted(SECOND, 8)) == Succeeded(died(FIRST, SECOND), WorkerBooted(SECOND, 8))
    assert successions.booted(WorkerBooted(SECOND, 8)) == WorkerBooted(SECOND, 8)


def test_a_spare_that_is_lost_with_its_host_before_it_was_heard_of_leaves_no_death_untold():
    """The step of the first one would have waited for ever."""
    successions = Successions()
    successions.died(died(FIRST, SECOND))

    assert successions.died(died(SECOND, report=LOST)) == [died(FIRST), died(SECOND, report=LOST)]
    assert successions.died(died(SECOND, report=LOST)) == [died(SECOND, report=LOST)]


@pytest.mark.parametrize("boots", [True, False])
def test_of_a_row_of_spares_each_death_is_told_once(boots):
    successions = Successions()
    told = [*successions.died(died(FIRST, SECOND))]
    if boots:
        told.append(successions.booted(WorkerBooted(SECOND, 8)).died)
    told += successions.died(died(SECOND, THIRD))
    told.append(successions.booted(WorkerBooted(THIRD, 9)).died)

    assert [death.worker for death in told] == [FIRST, SECOND]
