"""A module of the user's own that is not as it should be: told before anything is played, or as a finding."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

from actorproc import ManagerStopped, UsageError
from actorproc.cli.main import main
from actorproc.testing.journal import Journal
from actorproc.testing.torture import campaign
from actorproc.testing.torture.coverage import Tally
from actorproc.testing.torture.host import _Caller
from actorproc.testing.torture.plan import Plan, Root
from actorproc.testing.torture.record import EpisodeJournal
from actorproc.testing.torture.user_module import own_opinion, own_procedures, try_module
from tests.simulator.rules.invariants import Violation

_GOOD = """
from actorproc import Procedure, Status

class Note(Procedure):
    def execute(self, ctx):
        return Status.done(1)

def torture(folder, seed):
    yield "first", Note()
    yield Note()
"""
_numbers = itertools.count()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Makes a module of this text, and gives its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def make(text: str) -> str:
        name = f"own_torture_{next(_numbers)}"
        Path(tmp_path, f"{name}.py").write_text(text)
        return name

    before = set(sys.modules)
    yield make
    for name in set(sys.modules) - before:
        if name.startswith("own_torture_"):
            del sys.modules[name]


@pytest.fixture
def _nothing_is_played(monkeypatch):
    def play(plan, folder):
        pytest.fail("an episode was played")

    monkeypatch.setattr(campaign, "play", play)


def test_procedures_have_the_ids_they_are_given_or_their_place(module, tmp_path):
    assert [id for id, _ in own_procedures(module(_GOOD), str(tmp_path), 1)] == ["first", "root-1"]


@pytest.mark.parametrize(
    ("torture", "said"),
    [
        ("", r"has no function torture\(folder, seed\)"),
        ("def torture(folder, seed): pass", "gave None; it yields procedures"),
        ("def torture(folder, seed): return []", "gave no procedure"),
        ("def torture(folder, seed): yield 3", r"gave 3, which is no procedure and no \(id, procedure\) pair"),
        ("def torture(folder, seed): yield Note", "gave <class .* which is no procedure"),
        ("def torture(folder, seed): yield 'a b', Note()", "procedure id 'a b' is not valid"),
        ("def torture(folder, seed): yield 'a', Note(); yield 'a', Note()", "gave the id 'a' twice"),
        ("def torture(folder, seed): yield Note()\ncheck = 3", r"is no function check\(folder\), but 3"),
    ],
)
@pytest.mark.usefixtures("_nothing_is_played")
def test_a_module_that_gives_no_procedures_is_refused_before_anything_is_played(module, capsys, torture, said):
    name = module(_GOOD.partition("def torture")[0] + torture)

    with pytest.raises(UsageError, match=said):
        try_module(name, 1)
    assert main(["torture", "--module", name, "--episodes", "1"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.usefixtures("_nothing_is_played")
def test_a_module_that_is_not_there_or_cannot_be_imported_is_told(module, capsys):
    broken, lacking = module("raise LookupError('mine')"), module("import no_such_library")

    assert main(["torture", "--module", "no_such_module", "--episodes", "1"]) == 2
    assert "there is no module 'no_such_module' in" in capsys.readouterr().err
    with pytest.raises(LookupError, match="mine"):
        main(["torture", "--module", broken, "--episodes", "1"])
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        main(["torture", "--module", lacking, "--episodes", "1"])


@pytest.mark.parametrize(
    ("check", "found"),
    [
        ("", []),
        ("def check(folder): return None", []),
        ("def check(folder): return 'a ledger is torn'", ["a ledger is torn"]),
        ("def check(folder): yield 'torn'; yield 'twice'", ["torn", "twice"]),
        (
            "def check(folder):\n    yield 'torn'\n    assert 1 == 2, 'twice'",
            ["torn", "check() raised AssertionError: twice (NAME.py, line 3)"],
        ),
    ],
)
def test_what_a_check_says_or_raises_is_a_finding(module, tmp_path, check, found):
    name = module(check)

    assert list(own_opinion(name, tmp_path)) == [text.replace("NAME", name) for text in found]


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "x"])
def test_a_time_in_which_nothing_is_played_is_refused(capsys, minutes):
    with pytest.raises(SystemExit, match="2"):
        main(["torture", f"--minutes={minutes}"])

    assert "is no number of minutes above 0" in capsys.readouterr().err


def test_a_torture_that_plays_no_episode_fails_in_words(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", list(sys.path))

    assert main(["torture", "--minutes", "1e-9", "--keep", str(tmp_path)]) == 1

    assert "no episode was played and judged" in capsys.readouterr().err


def test_a_torture_whose_episodes_cannot_be_played_fails_in_words(tmp_path, monkeypatch, capsys):
    def play(plan, folder):
        raise UsageError("no host")

    monkeypatch.setattr(campaign, "play", play)
    monkeypatch.setattr(sys, "path", list(sys.path))

    assert main(["torture", "--episodes", "2", "--keep", str(tmp_path)]) == 1

    captured = capsys.readouterr()
    assert "2 episodes could not be played or judged" in captured.out
    assert "no episode was played and judged" in captured.err


def test_a_folder_that_is_no_kept_episode_is_told(tmp_path, capsys):
    assert main(["torture", "--replay", str(tmp_path)]) == 2

    assert "is no episode that was kept: there is no plan.json in it" in capsys.readouterr().err


def test_a_failed_episode_stays_where_it_was_played_when_it_cannot_be_kept(tmp_path, monkeypatch, caplog):
    plan = Plan(seed=1, roots=(), lives=())

    def play(plan, folder):
        folder.mkdir()
        Path(folder, "journal").touch()
        return campaign.Episode(plan, [Violation(1, "lost")], Tally(), folder)

    monkeypatch.setattr(campaign, "play", play)
    monkeypatch.setattr(campaign.tempfile, "mkdtemp", lambda prefix: str(tmp_path / "place"))
    Path(tmp_path, "place").mkdir()
    Path(tmp_path, "file").touch()

    episode = campaign.play_and_keep(plan, tmp_path / "file" / "keep")

    assert episode.folder == tmp_path / "place" / "episode"
    assert Path(episode.folder, "journal").exists()
    assert "nothing can be kept in" in caplog.text


def test_a_procedure_that_cannot_be_submitted_is_told(tmp_path):
    class Refusing:
        error: Exception = UsageError("exists with another initial state")

        def submit(self, procedure, id, deadline):
            raise self.error

    journal = EpisodeJournal(tmp_path / "journal")
    caller = _Caller(Refusing(), journal, clock=None)
    root = Root("first", {}, ())

    assert not caller.submit(root, None, insists=True)
    last = Journal(tmp_path / "journal").lines()[-1]
    assert (last.kind, last.procedure) == ("stalled", "first")
    assert last.text == "could not be submitted: UsageError: exists with another initial state"
    Refusing.error = ManagerStopped("stopped")
    with pytest.raises(ManagerStopped):
        caller.submit(root, None, insists=True)
