"""The torture of real processes: a short one in every run, its plans, its judge and its command."""

from __future__ import annotations

import logging
import re
import shutil
from collections import Counter
from pathlib import Path

import lmdb
import msgspec
import pytest

from actorproc.cli.main import main
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import ProcedureState
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.campaign import Episode, judge_folder, play
from actorproc.testing.torture.coverage import count, table
from actorproc.testing.torture.faults import (
    HOST_POINTS,
    IN_TROUBLE,
    LOG_POINTS,
    WORKER_POINTS,
    FaultPhase,
    TortureFault,
)
from actorproc.testing.torture.host import Notary
from actorproc.testing.torture.oracle import judge
from actorproc.testing.torture.plan import Life, Plan, draw_plan, work_of
from actorproc.testing.torture.record import EpisodeJournal, Tail
from tests.simulator.rules.invariants import StoreDump

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def episode(short: Plan, tmp_path_factory: pytest.TempPathFactory) -> Episode:
    """The short episode, played once for all tests that look at it."""
    return play(short, tmp_path_factory.mktemp("torture") / "episode")


def test_an_episode_with_kills_failing_commits_and_odd_answers_breaks_no_promise(episode: Episode):
    assert episode.violations == []
    kinds = {kind for kind, _ in episode.tally.hits}
    assert kinds >= {
        TortureFault.WORKER_POINT,
        TortureFault.HOST_POINT,
        TortureFault.EIO_APPLIED,
        TortureFault.EIO_LOST,
        TortureFault.EIO_READ,
    }
    assert kinds >= {TortureFault.ANSWER_TWICE, TortureFault.SLOW_DISK, TortureFault.RELOAD}
    assert episode.tally.hits[TortureFault.HOST_POINT, FaultPhase.ACTING] == 1
    assert episode.tally.worker_kills >= 3


def test_who_was_refused_is_not_there_and_who_was_acknowledged_is(refusing: Plan, tmp_path):
    episode = play(refusing, tmp_path / "episode")

    assert episode.violations == []
    assert episode.tally.commits_failed >= 1


def test_the_judge_gives_the_same_verdict_on_what_was_kept(episode: Episode, tmp_path):
    kept = tmp_path / "kept"
    shutil.copytree(episode.folder, kept)
    (kept / "world" / "root-1").mkdir(exist_ok=True)
    (kept / "world" / "root-1" / "0").touch()

    first, second = judge_folder(kept), judge_folder(kept)

    assert [violation.number for violation in first.violations] == [11]
    assert first.violations == second.violations


@pytest.mark.parametrize("damage", [None, b"no record"], ids=["missing", "torn"])
def test_a_store_that_cannot_be_read_to_its_end_is_a_violation_and_no_error_of_the_judge(episode, tmp_path, damage):
    kept = tmp_path / "kept"
    shutil.copytree(episode.folder, kept)
    with lmdb.open(str(kept / "state"), max_dbs=32, lib_version=0) as env, env.begin(write=True) as txn:
        steps = env.open_db(b"steps", txn=txn)
        cursor = txn.cursor(db=steps)
        assert cursor.first()
        assert cursor.delete() if damage is None else cursor.put(cursor.key(), damage)

    found = [violation for violation in judge_folder(kept).violations if violation.number == 4]

    assert found


def test_a_kept_episode_is_judged_and_played_again_by_one_command(episode: Episode, tmp_path, capsys):
    kept = tmp_path / "kept"
    shutil.copytree(episode.folder, kept)
    (kept / "world" / "root-1").mkdir(exist_ok=True)
    (kept / "world" / "root-1" / "0").touch()

    code = main(["torture", "--replay", str(kept), "--keep", str(tmp_path / "failures")])

    said = capsys.readouterr().out
    assert code == 1
    assert said.count("1 VIOLATIONS") == 1
    assert "invariant 11: root-1 is rolled back, and there is still root-1/0" in said
    assert "played again:\nepisode 7:" in said
    assert "0 episodes with violations" in said


@pytest.mark.parametrize(
    ("changed", "number"),
    [
        (lambda lines: [line for line in lines if not (line.kind == "durable" and line.procedure == "root-0")], 1),
        (lambda lines: [*lines, _line("stalled", text="root-0")], 15),
        (lambda lines: [*lines, _line("orphan", text="process 1")], 18),
        (lambda lines: [*lines, _line("unsound", text="two stores")], 16),
        (lambda lines: [*lines, _line("submitted", procedure="x"), _line("acknowledged", procedure="x")], 1),
        (lambda lines: [*lines, _line("output", procedure="root-0", text="4")], 14),
        (lambda lines: [*lines, _again(lines)], 6),
        (lambda lines: [*lines, _line("noted", procedure="p", text="1"), _line("noted", procedure="p", text="2")], 9),
        (lambda lines: [_line("submitted", procedure="root-0"), _line("refused", procedure="root-0")], 20),
    ],
    ids=["early", "stalled", "orphan", "unsound", "lost", "output", "repeated", "forgotten", "refused"],
)
def test_the_judge_sees_what_is_wrong(short: Plan, episode: Episode, changed, number):
    lines = EpisodeJournal(episode.folder / "journal").lines()
    heads = {
        name: ProcedureRecord(id=name, type_name="t", version=1, root=name, parent=None, seq=1, state=state)
        for name, state in (("root-0", ProcedureState.SUCCESS), ("root-1", ProcedureState.ROLLEDBACK))
    }
    dump = StoreDump(heads, {name: [] for name in heads}, [], [])

    before = Counter(violation.number for violation in judge(short, lines, dump, frozenset()))
    after = Counter(violation.number for violation in judge(short, changed(lines), dump, frozenset()))

    assert after[number] > before[number]


def test_a_tree_that_is_not_read_back_had_its_end_in_the_commit_its_host_died_in_or_is_lost():
    before = _line("durable", procedure="p", root="p", epoch=1, step=1, mode="RUNNABLE", state="1")
    writing, written, loaded = _line("writing"), _line("written"), _line("loaded", epoch=2)
    told = _line("resolved", procedure="p", text="SUCCESS")
    head = ProcedureRecord(id="p", type_name="t", version=1, root="p", parent=None, seq=1, state=ProcedureState.SUCCESS)
    dump = StoreDump({"p": head}, {"p": []}, [], [])
    plan = Plan(seed=1, roots=(), lives=())

    def said(*lines: JournalLine) -> str:
        return str([violation.text for violation in judge(plan, lines, dump, frozenset())])

    in_doubt = said(before, writing, loaded, told)
    assert "gone from the store" not in in_doubt
    assert "told to have ended" not in in_doubt
    assert "gone from the store" in said(before, writing, written, loaded)


def _line(kind: str, **fields: object) -> JournalLine:
    return JournalLine(kind=kind, at=1, pid=1, **fields)


def _again(lines: list[JournalLine]) -> JournalLine:
    return next(line for line in lines if line.kind == "enter" and line.procedure == "root-0" and line.step == 1)


def test_a_seed_gives_the_same_plan_and_most_seeds_another_one():
    plans = [draw_plan(seed) for seed in range(50)]

    assert plans == [draw_plan(seed) for seed in range(50)]
    assert len({msgspec.json.encode(plan.roots) for plan in plans}) == 50
    assert msgspec.json.decode(msgspec.json.encode(plans[0]), type=Plan) == plans[0]


def test_an_engine_that_gives_up_is_a_finding_although_the_next_life_mends_all(short: Plan, tmp_path):
    journal = EpisodeJournal(tmp_path / "journal")
    engine = logging.getLogger("actorproc")
    notary = Notary(journal)
    engine.addHandler(notary)
    try:
        engine.warning("nothing to speak of")
        engine.critical("the manager failed", exc_info=ZeroDivisionError("a bug"))
    finally:
        engine.removeHandler(notary)

    found = judge(short, journal.lines(), StoreDump({}, {}, [], []), frozenset())

    assert [(one.number, one.text) for one in found if "engine" in one.text] == [
        (15, "the engine failed: the manager failed: ZeroDivisionError: a bug")
    ]


def test_plans_draw_every_fault_and_every_point():
    plans = [draw_plan(seed) for seed in range(200)]
    faults = [fault for plan in plans for life in plan.lives for fault in life.faults]
    text = str([root.spec for plan in plans for root in plan.roots])

    drawn = {fault.kind for fault in faults}
    assert drawn == set(TortureFault) - {TortureFault.WORKER_POINT, TortureFault.ANSWER_TWICE, TortureFault.ANSWER_LATE}
    assert {fault.point for fault in faults} == {"", IN_TROUBLE, *HOST_POINTS, *LOG_POINTS}
    assert {f"{way}:{point}" for way in ("do", "undo") for point in WORKER_POINTS} <= set(
        re.findall(r"\w+:[\w-]+", text)
    )
    assert {"do:twice", "do:late"} <= set(re.findall(r"\w+:\w+", text))
    for kind in ("errand", "lenient", "journey", "circuit", "hasty", "deadly"):
        assert f"'type': '{kind}'" in text
    for order in ("work", "sleep", "wait", "fan", "grab", "flaky", "fail", "hang", "crash", "note"):
        assert f"'do': '{order}'" in text
    lasts = [plan.lives[-1] for plan in plans]
    assert {last.ends for last in lasts} == {"quiet"}
    kinds = [{fault.kind for fault in last.faults} - {TortureFault.OPERATOR_KILL} for last in lasts]
    assert 60 <= sum(map(bool, kinds)) <= 140
    assert not {fault.kind for last in lasts for fault in last.faults} & {TortureFault.CLOCK, TortureFault.HOST_KILL}
    assert max(work_of(root.spec) for plan in plans for root in plan.roots) > 10


def test_some_plans_have_a_storm_of_restarts_in_one_piece_and_work_before_and_after_it():
    storms = []
    for plan in (draw_plan(seed) for seed in range(200)):
        kills = ["x" if _is_of_storm(life) else "." for life in plan.lives]
        assert re.fullmatch(r"\.+(x{3,6}\.+)?", "".join(kills))
        storms += [kills.count("x")] if "x" in kills else []

    assert 20 <= len(storms) <= 60
    assert set(storms) == {3, 4, 5, 6}


def _is_of_storm(life: Life) -> bool:
    return any(fault.kind is TortureFault.RESTARTS for fault in life.faults)


def test_a_storm_of_restarts_kills_each_host_in_it_and_breaks_nothing(tmp_path):
    plan = next(
        plan
        for plan in map(draw_plan, range(200))
        if 6 <= len(plan.lives) <= 7 and len(plan.roots) < 6 and sum(map(_is_of_storm, plan.lives)) == 3
    )

    episode = play(plan, tmp_path / "episode")

    assert episode.violations == []
    struck = sum(hits for (kind, _), hits in episode.tally.hits.items() if kind == TortureFault.RESTARTS)
    assert struck + episode.tally.wasted[TortureFault.RESTARTS] == 3


def test_a_fault_counts_only_when_work_was_in_flight():
    struck = _line("fault", mode=TortureFault.HOST_KILL, state=FaultPhase.RECOVERING)
    durable = _line("durable", procedure="p", mode="RUNNABLE")
    ended = _line("durable", procedure="p", mode="SUCCESS")

    tally = count([struck, durable, struck, ended, struck], procedures=1, failed=False)

    assert tally.hits == {(TortureFault.HOST_KILL, FaultPhase.RECOVERING): 1}
    assert tally.wasted == {TortureFault.HOST_KILL: 2}
    assert "1 hosts killed" in table(tally)


def test_a_worker_killed_after_its_step_took_the_answer_along_only_if_the_step_runs_again():
    durable = _line("durable", procedure="p", mode="RUNNABLE")
    killed = _line(
        "fault", mode=TortureFault.WORKER_KILL, state=FaultPhase.ANSWERING, procedure="p", step=1, text="execute"
    )
    again, later = (_line("enter", procedure="p", step=step, mode="execute") for step in (1, 2))

    assert count([durable, killed, again], procedures=1, failed=False).faults == 1
    assert count([durable, killed, later], procedures=1, failed=False).faults == 0


def test_a_tail_reads_each_line_once_and_leaves_out_what_was_cut_short(tmp_path):
    journal = EpisodeJournal(tmp_path / "journal")
    tail = Tail(journal)
    assert tail.news() == []
    journal.note("one")
    assert [line.kind for line in tail.news()] == ["one"]
    with journal.path.open("ab") as file:
        file.write(b'\n{"kind":"tw')
    assert tail.news() == []
    journal.note("three")
    assert [line.kind for line in tail.news()] == ["three"]


USER = """
from pathlib import Path
from actorproc import Procedure, Status

class Note(Procedure):
    def __init__(self, path):
        self.path, self.done = path, 0
    def execute(self, ctx):
        with open(self.path, "a") as file:
            file.write("x")
        self.done += 1
        return Status.executing() if self.done < 3 else Status.done()

def torture(folder, seed):
    yield "note", Note(folder + "/note")

def check(folder):
    if Path(folder, "note").read_text() != "xxx":
        yield "a step that was interrupted has written twice"
"""


def test_users_torture_their_own_procedures_with_a_module(tmp_path, monkeypatch, capsys):
    Path(tmp_path, "my_torture.py").write_text(USER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    code = main(["torture", "--module", "my_torture", "--episodes", "1", "--seed", "58"])

    said = capsys.readouterr().out
    assert code in {0, 1}, said
    assert "1 episodes, 1 procedures" in said
    assert set(re.findall(r"invariant (\d+)", said)) <= {"0"}, said


BROKEN = """
from actorproc import Procedure, Status

class Nothing(Procedure):
    def execute(self, ctx):
        return Status.done()

def torture(folder, seed):
    yield "nothing", Nothing()

def check(folder):
    yield "whatever it did"
"""


def test_a_failing_episode_leaves_its_seed_its_journal_its_store_and_the_command_that_plays_it_again(
    tmp_path, monkeypatch, capsys
):
    Path(tmp_path, "broken_torture.py").write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    assert main(["torture", "--module", "broken_torture", "--episodes", "1", "--seed", "212"]) == 1

    said = capsys.readouterr().out
    kept = Path("torture-failures", "episode-212000000")
    assert "episode 212000000: " in said
    assert "1 episodes with violations" in said
    assert f"kept in {kept}; see it again: actorproc torture --replay {kept}" in said
    assert {path.name for path in kept.iterdir()} >= {"plan.json", "journal", "state", "violations.txt", "host-0.log"}
    assert (kept / "state" / "data.mdb").stat().st_size
    words = (kept / "violations.txt").read_text().splitlines()
    assert "invariant 0: whatever it did" in words
    assert words[-1] == f"actorproc torture --replay {kept}"
    assert main(["torture", "--replay", str(kept), "--keep", "again"]) == 1
    assert capsys.readouterr().out.count("invariant 0: whatever it did") == 2  # as kept, and as played once more
    assert Path("again", "episode-212000000").is_dir()
