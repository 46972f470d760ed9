"""Large states in PostgreSQL: bytes of its log (WAL) for each step, and what a head carries.

    python bench/large_states.py [--path URL] [--megabytes 16] [--steps 6]

One procedure changes a state of so many MiB in each step. A state is written once, under a key of its own. A head
that carried it would double the WAL, and each later change of the head would write it again.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass

from common import options, report, store_in
from stores import database

from actorproc import Config, Procedure, ProcedureManager, Status
from actorproc.store.postgres.connecting import connect
from actorproc.store.postgres.place import place_of
from actorproc.store.postgres.sessions import Session, Statement, numbered


@dataclass
class Carry(Procedure):
    """A large state that is another one after each step."""

    left: int
    content: bytes

    def execute(self, ctx):
        self.left -= 1
        self.content = os.urandom(len(self.content))
        return Status.executing() if self.left > 0 else Status.done()


def number(session: Session, sql: str) -> int:
    (answer,) = session.ask([(Statement(sql.encode(), once=True), ())], 60.0)
    return numbered(answer.get_value(0, 0))


_WRITTEN = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"


def main() -> None:
    given = options(__doc__, megabytes=(16, 1), steps=(6, 3))
    size = given.megabytes << 20
    config = Config(max_state=size + (1 << 20), spares=0)
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(store_in(stack.enter_context(database(given.path))))
        with ProcedureManager(path, procedures=[Carry], workers=1, config=config) as manager:
            manager.run(Carry(1, b"warm"))
            schema = place_of(path).schema
            session = connect(place_of(path), "look", "bench")
            before, start = number(session, _WRITTEN), time.perf_counter()
            manager.run(Carry(given.steps, os.urandom(size)))
            seconds = (time.perf_counter() - start) / given.steps
            written = (number(session, _WRITTEN) - before) / (given.steps + 1)  # the submit stores one, too
            head = number(session, f"SELECT max(octet_length(v))::bigint FROM {schema}.procedures")
            session.close()
    report(
        "large_states",
        {"wal_bytes_per_step": written, "wal_to_state": written / size, "largest_head": head, "step_s": seconds},
        [
            f"{given.megabytes} MiB of state: {written:,.0f} bytes of WAL, {written / size:.3f} x the state",
            f"{seconds * 1e3:,.0f} ms a step; the largest head has {head:,} bytes; load {os.getloadavg()[0]:.1f}",
        ],
    )


if __name__ == "__main__":
    main()
