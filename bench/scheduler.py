"""How many operations a second does the scheduler alone take?

    python bench/scheduler.py [--operations 400000] [--tables 5] [--regions 10] [--core 40000] [--quick]

The shape of HBase's MasterProcedureSchedulerPerformanceEvaluation: procedures of `--tables` tables with `--regions`
regions each; one in `regions + 1` works on a whole table (a write lock of ``table``), the others on one region (a write
lock of ``table/region``). HBase's own default is 10 million operations. No store, no processes; CPU time on one core.

- "queue": the ready queue alone. All are added, then polled one by one.
- "queue and locks": each is added; a polled one asks for its lock, and runs when it is granted; as many run at a time
  as there are regions. Those that wait for a lock are woken by releases. An operation is an add, or a completion.
- "core": the whole decision of the engine for procedures of one step under the same locks, `--core` of them: submit,
  hand out, answer, with all records to be written, four workers.

The default takes about 20 s.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import deque

from common import report

from actorproc.core.coordinator import Coordinator
from actorproc.core.locks.table import LockRequest, LockTable
from actorproc.core.queues.run_queue import RunQueue
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.events import StepEnded, Submitted, TypeRegistered, WorkerReady
from actorproc.model.messages.outcomes import Finished
from actorproc.model.policies import LockKey, TypeMeta
from actorproc.model.rows.records import NewProcedure
from actorproc.model.rows.snapshot import RecoverySnapshot

_WORKERS = 4
_SLICE = 100


def keys_of(operations: int, tables: int, regions: int) -> list[LockKey]:
    """What each operation locks, in a random order that is always the same."""
    every = [LockKey.write(f"t{table}") for table in range(tables)]
    every += [LockKey.write(f"t{table}/r{region}") for table in range(tables) for region in range(regions)]
    chance = random.Random(1)
    return [chance.choice(every) for _ in range(operations)]


def queue_only(operations: int) -> tuple[float, float]:
    """CPU seconds to add all, and to poll all."""
    queue = RunQueue()
    names = [f"p{number}" for number in range(operations)]
    start = time.process_time()
    for name in names:
        queue.push(name, root=name, priority=0, is_new_root=True, now=0.0)
    added = time.process_time()
    polled = 0
    while (best := queue.peek()) is not None:
        polled += queue.take(best[1], 0.0)
    if polled != operations:
        raise SystemExit(f"{polled} of {operations} were polled")
    return added - start, time.process_time() - added


def with_locks(keys: list[LockKey], at_once: int) -> float:
    """CPU seconds until every operation has been added, has had its lock, and has given it up."""
    queue, locks = RunQueue(), LockTable()
    start = time.process_time()
    wanted = {f"p{number}": key for number, key in enumerate(keys)}
    for name in wanted:
        queue.push(name, root=name, priority=0, is_new_root=True, now=0.0)
    running: deque[str] = deque()
    ticket = done = 0
    while done < len(keys):
        while len(running) < at_once and (best := queue.peek()) is not None:
            name = best[1]
            queue.take(name, 0.0)
            ticket += 1
            if locks.request(LockRequest(name, name, (wanted[name],), frozenset((name,)), ticket, privileged=False)):
                running.append(name)
        name = running.popleft()
        locks.release(name)
        done += 1
        running.extend(locks.drain())
    return time.process_time() - start


def whole_core(keys: list[LockKey]) -> tuple[float, int]:
    """CPU seconds of every decision from submit to end, and the writes decided on."""
    core, _ = Coordinator.restore(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []), 0.0)
    core.handle(TypeRegistered(TypeMeta(type_name="T")), 0.0)
    for slot in range(_WORKERS):
        core.handle(WorkerReady(WorkerId(slot, 1)), 0.0)
    start = time.process_time()
    handed: deque[RunStep] = deque()
    done = writes = 0
    made = [
        NewProcedure(id=f"p{number}", fresh=True, type_name="T", state=b"0", digest=b"d", locks=(key,))
        for number, key in enumerate(keys)
    ]
    for first in range(0, len(made), _SLICE):
        events: list[Submitted | StepEnded] = [Submitted(tuple(made[first : first + _SLICE]), reply=1)]
        while events:
            for event in events:
                decision = core.handle(event, 0.0)
                writes += len(decision.writes)
                handed.extend(command for command in decision.commands if type(command) is RunStep)
            core.settle(core.seal())
            events = [StepEnded(run.token, Finished(state=b"1")) for run in handed]
            handed.clear()
            done += len(events)
    if done != len(keys):
        raise SystemExit(f"{done} of {len(keys)} ended")
    return time.process_time() - start, writes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=400_000)
    parser.add_argument("--tables", type=int, default=5)
    parser.add_argument("--regions", type=int, default=10)
    parser.add_argument("--core", type=int, default=40_000)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    options = parser.parse_args()
    if options.quick:
        options.operations, options.core = options.operations // 10, options.core // 10
    keys = keys_of(max(options.operations, options.core), options.tables, options.regions)
    add, poll = queue_only(options.operations)
    locked = with_locks(keys[: options.operations], options.tables * options.regions)
    core, writes = whole_core(keys[: options.core])
    rates = {
        "add_per_s": options.operations / add,
        "poll_per_s": options.operations / poll,
        "locked_operations_per_s": 2 * options.operations / locked,
        "core_procedures_per_s": options.core / core,
    }
    shape = f"{options.tables} tables x {options.regions} regions"
    report(
        "scheduler",
        {"operations": options.operations, "tables": options.tables, "regions": options.regions, **rates},
        [
            f"queue: {rates['add_per_s']:,.0f} adds/s, {rates['poll_per_s']:,.0f} polls/s ({options.operations:,})",
            f"queue and locks, {shape}: {rates['locked_operations_per_s']:,.0f} operations/s",
            f"core: {rates['core_procedures_per_s']:,.0f} procedures/s, {writes / options.core:.1f} writes each",
        ],
    )


if __name__ == "__main__":
    main()
