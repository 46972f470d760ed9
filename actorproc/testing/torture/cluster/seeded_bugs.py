"""Bugs of several processes, to prove that the torture of a cluster finds such: for tests, one at a time.

Each patches the engine inside the candidates and agents under torture, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["CLUSTER_BUGS"]


def _leaders_do_not_wait() -> None:
    from actorproc.engine.workers.absent_hosts import AbsentHosts

    honest: Callable[..., None] = AbsentHosts.__init__

    def init(self: AbsentHosts, *arguments: Any) -> None:
        honest(self, *arguments[:-1], 0.0)  # the last one is the patience

    AbsentHosts.__init__ = init  # type: ignore[assignment,method-assign]


def _agents_go_on_unheard() -> None:
    from actorproc.workers.hosts.host_workers import HostWorkers

    HostWorkers.kill_busy = lambda *_: 0  # type: ignore[method-assign]


def _unknown_steps_go_on() -> None:
    from actorproc.workers.hosts.host_workers import HostWorkers

    _agents_go_on_unheard()
    HostWorkers._kill = lambda *_: None  # type: ignore[method-assign]


def _answers_go_with_their_leader() -> None:
    from actorproc.workers.hosts.held_work import HeldWork

    HeldWork._keep = lambda *_: None  # type: ignore[method-assign]


def _former_leaders_commit() -> None:
    from actorproc.store.postgres import store as stores
    from actorproc.store.postgres.leading import store_lock
    from actorproc.store.postgres.sessions import NUMBER, Question, Session, Statement, number

    def fence(known: Any, epoch: int, batch: int, before: int) -> list[Question]:
        del before
        table = known.forget.sql.decode().partition("FROM ")[2].partition(" WHERE")[0]
        sql = f"INSERT INTO {table} (epoch, n) VALUES ($1, $2) ON CONFLICT (epoch, n) DO UPDATE SET n = EXCLUDED.n "  # noqa: S608 - names of tests
        sql += "RETURNING (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        return [(Statement(sql.encode(), (NUMBER, NUMBER)), (number(epoch), number(batch)))]

    def end_locks_alone(session: Session, *_others: Any) -> int:
        sql = (
            b"SELECT count(pg_terminate_backend(pid)) FROM pg_locks "
            b"WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()"
        )
        session.ask([(Statement(sql, once=True), ())], 10.0)
        return 1

    vars(stores)["fence"] = fence
    vars(store_lock)["end_sessions"] = end_locks_alone


def _rows_need_no_commit() -> None:
    from actorproc.api.verbs import enqueue
    from actorproc.store.postgres.borrowed import asked as honest
    from actorproc.testing.torture.cluster.application import connected

    def asked(connection: Any, question: Any) -> Any:
        with connected(connection.info.dsn) as own:
            return honest(own, question)

    vars(enqueue)["asked"] = asked


def _rows_go_without_procedures() -> None:
    from actorproc.core.lifecycle import enqueued

    honest: Callable[..., None] = vars(enqueued)["take_in"]

    def take_in(state: Any, accepted: list[Any], restarted: list[str]) -> None:
        honest(state, [new for new in accepted if not new.id.endswith("1")], restarted)

    vars(enqueued)["take_in"] = take_in


CLUSTER_BUGS: dict[str, Callable[[], None]] = {
    "a leader does not wait for hosts that it has not met": _leaders_do_not_wait,
    "an agent goes on when no leader hears it": _agents_go_on_unheard,
    "an agent goes on with steps that its leader does not know": _unknown_steps_go_on,
    "a host forgets its answers with their leader": _answers_go_with_their_leader,
    "a leader that stood still may commit": _former_leaders_commit,
    "what is enqueued does not wait for the commit of its application": _rows_need_no_commit,
    "rows of what was enqueued go without their procedures": _rows_go_without_procedures,
}
"""By their words."""
