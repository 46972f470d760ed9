"""The torture of several processes on a database: a short one in every run, its plans, its judge and planted bugs."""

from __future__ import annotations

import os

import msgspec
import pytest

pytest.importorskip("psycopg", reason="needs the extra postgres")
pytest.importorskip("cryptography", reason="needs the extra postgres")

from actorproc.cli.main import main
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import ProcedureState
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.campaign import judge_folder, play
from actorproc.testing.torture.cluster.oracle import judge_cluster, merged
from actorproc.testing.torture.cluster.plan import draw_cluster_plan
from actorproc.testing.torture.cluster.seeded_bugs import CLUSTER_BUGS
from actorproc.testing.torture.faults import ClusterFault, ClusterPlan, Strike
from actorproc.testing.torture.orders.roots import Enqueueing
from actorproc.testing.torture.plan import Plan, Root
from actorproc.testing.torture.record import EpisodeJournal
from actorproc.testing.torture.seeded_bugs import SEEDED_BUGS
from tests.databases import database_or_skip
from tests.simulator.rules.invariants import StoreDump

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

SLOW = {"type": "errand", "keys": [], "orders": [{"do": "work", "seconds": 0.7}] * 3}
LONG = {"type": "errand", "keys": [], "orders": [{"do": "work", "seconds": 8.0}]}
LONGER = {"type": "errand", "keys": [], "orders": [{"do": "work", "seconds": 13.0}]}
BRIEF = {"type": "errand", "keys": [], "orders": [{"do": "work", "seconds": 2.0}]}
QUICK = {"type": "errand", "keys": [], "orders": [{"do": "work", "seconds": 0.02}] * 60}
TREE = {
    "type": "errand",
    "keys": [["w", "town/a"]],
    "orders": [
        {"do": "fan", "named": True, "children": [{"type": "journey", "keys": [], "orders": [{"do": "work", "seconds": 0.1}] * 4}] * 2},
        {"do": "work"},
    ],
}  # fmt: skip
PLANTED = bool(os.environ.get("ACTORPROC_PLANTED"))
"""Look for planted bugs, as at night: each takes a dozen seconds."""
TRIES = 3


def plan_of(*strikes: Strike, work=SLOW, many: int = 6, agents: int = 2, **options) -> Plan:
    """Some procedures of one kind on two candidates and some hosts."""
    roots = tuple(Root(f"root-{number}", work, ("SUCCESS",)) for number in range(many))
    return Plan(seed=46, roots=roots, lives=(), workers=2, cluster=ClusterPlan(2, agents, strikes), **options)


def test_a_leader_and_a_host_are_killed_and_links_cut_and_no_promise_is_broken(tmp_path):
    database_or_skip()
    strikes = (
        Strike(ClusterFault.LINK_CUT, after=0.3),
        Strike(ClusterFault.LEADER_KILL, after=0.6, seconds=0.1),
        Strike(ClusterFault.AGENT_KILL, after=1.2, seconds=0.1, draw=0.9),
        Strike(ClusterFault.BASE_CRASH, after=1.6),
    )
    plan = plan_of(*strikes)
    plan = msgspec.structs.replace(plan, roots=(*plan.roots[:4], Root("tree", TREE, ("SUCCESS",))))

    episode = play(plan, tmp_path / "episode")

    assert episode.violations == []
    assert {kind for kind, _ in episode.tally.hits} >= {strike.kind for strike in strikes[:2]}
    assert judge_folder(tmp_path / "episode").violations == []


def test_what_applications_enqueue_is_a_procedure_once_if_they_commit_and_else_it_is_none(tmp_path):
    database_or_skip()

    episode = play(ENQUEUED, tmp_path / "episode")

    assert episode.violations == []
    lines = EpisodeJournal(tmp_path / "episode" / "journal").lines()
    known = {line.procedure for line in lines if line.kind == "enter" and line.procedure.startswith("enqueued")}
    certain = {f"enqueued-{number}" for number, ends in enumerate(ENDS * 2) if ends in CERTAIN}
    doubtful = {f"enqueued-{number}" for number, ends in enumerate(ENDS * 2) if ends == "killed-during"}
    assert certain <= known <= certain | doubtful


# ------------------------------------------------------------ plans and the command
def test_a_plan_is_that_of_its_seed_and_all_faults_are_drawn():
    plans = [draw_cluster_plan(seed) for seed in range(200)]

    assert plans == [draw_cluster_plan(seed) for seed in range(200)]
    assert {strike.kind for plan in plans for strike in plan.cluster.strikes} == set(ClusterFault)
    assert all(plan.cluster.candidates >= 2 and plan.cluster.agents >= 2 and plan.roots for plan in plans)
    assert msgspec.json.decode(msgspec.json.encode(plans[3]), type=Plan) == plans[3]


@pytest.mark.parametrize(
    ("arguments", "missing", "words"),
    [
        (["--module", "shop"], "", "--cluster tortures procedures of its own"),
        ([], "psycopg", "pip install 'actorproc[postgres]'"),
        ([], "server", "no PostgreSQL server was found"),
    ],
)
def test_what_a_cluster_needs_is_told_before_anything_is_played(arguments, missing, words, monkeypatch, capsys):
    if missing == "server":
        monkeypatch.setenv("ACTORPROC_POSTGRES_BIN", "/nowhere")
    elif missing:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == missing else object())

    assert main(["torture", "--cluster", *arguments]) == 2

    assert words in capsys.readouterr().err


def test_a_kept_episode_is_judged_without_a_server_and_what_playing_it_again_needs_is_told(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(NOTHING))
    (tmp_path / "journal").touch()
    monkeypatch.setenv("ACTORPROC_POSTGRES_BIN", "/nowhere")

    assert main(["torture", "--replay", str(tmp_path)]) == 2

    said = capsys.readouterr()
    assert said.out.startswith(f"what is kept in {tmp_path}:\n")
    assert "played again" not in said.out
    assert "--cluster needs a PostgreSQL server" in said.err


# ------------------------------------------------------------ the judge
MS = 1_000_000
NOTHING = Plan(seed=1, roots=(), lives=(), cluster=ClusterPlan(2, 2))


def line(kind: str, at: int = 0, **fields) -> JournalLine:
    return JournalLine(kind=kind, **({"at": at * MS, "pid": 9} | fields))


def head_of(name: str, **fields) -> ProcedureRecord:
    record = ProcedureRecord(id=name, type_name="t", version=1, root=name, parent=None, seq=1)
    return msgspec.structs.replace(record, state=ProcedureState.SUCCESS, records=0, **fields)


def judged(*lines: JournalLine) -> list[int]:
    """Numbers of the promises that these lines break, of one procedure that was submitted."""
    names = {one.procedure for one in lines if one.procedure}
    dump = StoreDump({name: head_of(name) for name in names}, {name: [] for name in names}, [], [])
    found = judge_cluster(NOTHING, [*(line("submitted", procedure=name) for name in names), *lines], dump, frozenset())
    return sorted({violation.number for violation in found} - {5, 14})


def step(kind: str, at: int, pid: int, host: int, *, epoch: int = 1, attempt: int = 1) -> JournalLine:
    place = {"procedure": "p", "root": "p", "mode": "execute", "step": 1, "state": "s"}
    return line(kind, at, pid=pid, host=host, epoch=epoch, attempt=attempt, **place)


@pytest.mark.parametrize(
    ("between", "numbers"),
    [
        ((), [8]),
        ((line("killing", 15, pid=21),), []),
        ((line("killing", 15, pid=20),), []),
        ((line("host-lost", 15, pid=20),), [8]),
        ((line("frozen", 5, pid=20), line("thawed", 500, pid=20)), []),
        (  # two faults at a time, of which one ends before the other
            (
                line("frozen", 1, pid=20),
                line("frozen", 2, pid=20),
                line("thawed", 5, pid=20),
                line("thawed", 500, pid=20),
            ),
            [],
        ),
        ((line("frozen", 5, pid=30), line("thawed", 500, pid=30)), [8]),
        ((line("frozen", 1, pid=20), line("thawed", 5, pid=20)), [8]),
    ],
    ids=[
        "nothing",
        "worker killed",
        "agent killed",
        "given up",
        "stood still",
        "stood still twice at a time",
        "the other one did",
        "before it",
    ],
)
def test_two_copies_of_a_step_are_a_violation_unless_the_host_of_the_older_one_stood_still(between, numbers):
    first, second = step("enter", 10, 21, 20), step("enter", 20, 31, 30, attempt=2)

    assert judged(first, *between, second, step("exit", 30, 31, 30, attempt=2)) == numbers


def test_what_a_host_that_stood_still_does_for_long_after_it_is_a_violation():
    frozen = line("frozen", 15, pid=20), line("thawed", 100, pid=20)
    lines = [step("enter", 10, 21, 20), *frozen, step("enter", 20, 31, 30, attempt=2)]
    ended = step("exit", 30, 31, 30, attempt=2)

    assert judged(*lines, ended, step("exit", 110, 21, 20)) == []
    assert judged(*lines, ended, step("exit", 9000, 21, 20)) == [8]


@pytest.mark.parametrize(
    ("between", "numbers"),
    [
        ((), [6]),
        ((line("host-lost", 25, pid=20),), []),
        ((line("host-lost", 25, pid=0),), []),
        ((line("host-lost", 5, pid=20),), [6]),
        ((line("leads", 25, pid=20),), []),
        ((line("killing", 25, pid=20),), []),
    ],
    ids=["nothing", "given up", "not met", "given up before", "a leader's own", "agent killed"],
)
def test_an_answer_may_be_lost_with_its_host_and_not_with_a_leader(between, numbers):
    again = step("enter", 30, 31, 30, epoch=2, attempt=2)

    assert judged(step("enter", 10, 21, 20), step("exit", 20, 21, 20), *between, again) == numbers


def test_epochs_rise_in_the_order_of_commits_and_parents_are_woken_once():
    def durable(mode: str, records: int = 2) -> JournalLine:
        return line("durable", procedure="p", root="p", mode=mode, state=str(records), epoch=1, step=1)

    good = line("takeover", epoch=1), line("committed", epoch=1), line("takeover", epoch=2), line("committed", epoch=2)
    assert judged(*good) == []
    assert judged(*good, line("takeover", epoch=2)) == [28]
    assert judged(*good, line("committed", epoch=1)) == [29]
    assert judged(durable("WAITING"), durable("RUNNABLE"), durable("WAITING", 3), durable("RUNNABLE", 3)) == []
    assert judged(durable("WAITING"), durable("RUNNABLE"), durable("WAITING"), durable("RUNNABLE")) == [30]


def test_what_the_database_saw_is_put_between_the_lines_of_the_journal_which_keep_their_order():
    own = [line("enter", 10, pid=1), line("exit", 9, pid=2), line("enter", 30, pid=3)]
    seen = [line("durable", 5), line("durable", 20)]

    assert [(one.kind, one.at // MS) for one in merged(own, seen)] == [
        ("durable", 5), ("enter", 10), ("exit", 9), ("durable", 20), ("enter", 30)
    ]  # fmt: skip


# ------------------------------------------------------------ planted bugs
MIXED = plan_of(Strike(ClusterFault.LINK_BLOCKED, 1.0, 8.0))
MIXED = msgspec.structs.replace(
    MIXED,
    roots=tuple(Root(f"root-{number}", LONG if number < 3 else BRIEF, ("SUCCESS",)) for number in range(6)),
)
CERTAIN = {"commit", "savepoint", "killed-after"}
"""Ends of transactions that are committed, whatever happens."""
ENDS = ("rollback", "commit", "savepoint", "killed-after", "killed-before", "killed-during")
ENQUEUED = plan_of(Strike(ClusterFault.LEADER_KILL, after=0.8, seconds=0.1), work=BRIEF, many=2)
ENQUEUED = msgspec.structs.replace(
    ENQUEUED,
    roots=(
        *ENQUEUED.roots,
        *(
            Root(
                f"enqueued-{number}",
                {**BRIEF, "orders": [{"do": "work"}]},
                ("SUCCESS",),
                0.1 * number,
                enqueue=Enqueueing(ends, 0.002),
            )
            for number, ends in enumerate(ENDS * 2)
        ),
    ),
)
BUGS = {
    "a leader does not wait for hosts that it has not met": (
        plan_of(Strike(ClusterFault.LEADER_KILL, 1.0, 0.5), work=LONG),
        {8},
    ),
    "an agent goes on when no leader hears it": (MIXED, {8, 6}),
    "an agent goes on with steps that its leader does not know": (
        plan_of(Strike(ClusterFault.MACHINE_STOP, 1.0, 6.0), work=LONGER, agents=1),
        {8},
    ),
    "a host forgets its answers with their leader": (
        plan_of(Strike(ClusterFault.LEADER_STOP, 1.0, 3.0), work=SLOW, many=8),
        {6, 15},
    ),
    "a leader that stood still may commit": (
        plan_of(Strike(ClusterFault.LEADER_STOP, 1.0, 4.0), work=SLOW, many=10, agents=1),
        {29},
    ),
    "what is enqueued does not wait for the commit of its application": (ENQUEUED, {34}),
    "rows of what was enqueued go without their procedures": (ENQUEUED, {34}),
    "steps are handed out before the commit": (plan_of(work=QUICK, many=8, agents=1), {5, 6}),
}


def test_all_planted_bugs_have_an_episode():
    assert CLUSTER_BUGS.keys() <= BUGS.keys() <= CLUSTER_BUGS.keys() | SEEDED_BUGS.keys()


@pytest.mark.skipif(not PLANTED, reason="at night, with ACTORPROC_PLANTED=1")
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug, tmp_path):
    plan, expected = BUGS[bug]
    plan = msgspec.structs.replace(plan, bug=bug, patience=20.0)
    numbers: set[int] = set()
    for number in range(TRIES):
        episode = play(plan, tmp_path / f"episode-{number}")
        numbers = {violation.number for violation in episode.violations}
        if numbers:
            break
    assert numbers & expected, numbers
    print(f"{bug}: found in episode {number + 1}, as promise {sorted(numbers)}")  # noqa: T201 - shown by -rP


@pytest.mark.skipif(not PLANTED, reason="at night, with ACTORPROC_PLANTED=1")
def test_a_leader_that_is_cut_off_from_its_database_for_long_leaves_its_hosts_to_the_next_one(tmp_path):
    plan = plan_of(Strike(ClusterFault.BASE_BLOCKED, 1.0, 14.0), work=LONGER)

    assert play(plan, tmp_path / "episode").violations == []


@pytest.mark.skipif(not PLANTED, reason="at night, with ACTORPROC_PLANTED=1")
@pytest.mark.parametrize("bug", BUGS)
def test_without_the_bug_the_same_episode_breaks_no_promise(bug, tmp_path):
    plan, _ = BUGS[bug]
    assert play(plan, tmp_path / "episode").violations == []
