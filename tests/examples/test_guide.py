"""The guide's programs, pasted one after the other as the guide says, print what the guide says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.suites import run_pytest

ROOT = Path(__file__).parents[2]
EXPECTED = [
    "5",
    "letters-1 13",
    "SUCCESS",
    "moved 100",
    "ROLLEDBACK RuntimeError: the bank is closed",
    "41654167500",
    "1.0 as av1",
    "{'region': 'r1', 'after': 5}",
    "400",
    "10",
    "ROLLEDBACK False",
    "Guide: looks good",
    "News: well done",
    "[('delivered', 1)]",
    "1",
    "30",
    "[('each-quarter', 0), ('nightly', 0), ('weekly', 0)]",
    "somewhere after 3 attempts",
    "10485760",
    "MemoryError",
    "i-7.pdf",
    "['A1 for 12', 'A2 for 12']",
    "sent to Ada",
    (
        "0 submitted procedures are unfinished and 12 more were refused: 10 may run (Config.max_running) and 1 may be queued "
        "(Config.max_queued); submit again when some have ended, or allow more"
    ),
    "FAILED",
    (
        "format-2 needs a poisoned key: 'disks/a' was poisoned by format-1: rollback of format-1 gave up: the old table "
        'cannot be written back. Once the object is known to be sound, clear it with manager.clear_poison("disks/a")'
    ),
    "disks/a format-1",
    "formatted",
    "ROLLEDBACK invite-1 send_card (RuntimeError: the post has it)",
    "('42', 'a connection of this worker', 1)",
    "{'began at': 70, 'imported': 100}",
    "Good morning, A. Lovelace",
    "held",
    "[Line(sku='pen', quantity=1)]",
    "ValueError: no room",
    "3 2",
    "12 after 3 generations",
    "Connect(host='db', password=**********)",
    "********** session-17",
    "[0] True",
    "FAILED",
    "deployed in attempt 2 2",
    "1000 rows by report-1.publish",
    "1000 rows by report-1b.publish",
    "1000 rows by report-1.g2.publish",
    "paused the network is being repaired",
    "deployed in attempt 1",
    "['retry'] resume",
    "[3, 5]",
    "3",
    "BOOK-7",
    "Declined('visa')",
    "4",
    "True",
    "True",
    "7",
    "True",
    "deployed in attempt 2",
    "13",
    "WorkerCrashed signal SIGABRT",
    "True True",
    "['something is wrong here', 'something is wrong here']",
    "1024",
    "['ANY', 'FUNCTION']",
    "ZeroDivisionError('integer division or modulo by zero')",
    "9",
    "step 1 ran longer than its wall time of 0.5 s",
    "10",
    "7",
    "fetch-1 SUCCESS",
    "/procedures/fetch-1/000001.step submitted",
    "/procedures/fetch-1/000002.step executing",
    "/procedures/fetch-1/000003.step executing",
    "/procedures/fetch-1/000004.commit done",
    "fetch-1",
    "True",
    "['submitted', 'started', 'succeeded']",
    "{'SUCCESS': 1}",
]


def programs_in(page):
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.processes
def test_the_guide_prints_what_it_says(tmp_path):
    (tmp_path / "guide.py").write_text("\n".join(programs_in("docs/guide.md")))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    command = [sys.executable, "-W", "error", "guide.py"]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == EXPECTED


MOVED = """
from actorproc import ProcedureManager

with ProcedureManager("state", workers=1) as manager:
    Journal("journal").submitted("move-1")
    handle = manager.submit(Move(".", "shelf"), id="move-1")
    Journal("journal").acknowledged("move-1")
    handle.result(timeout=60)
print(sorted({line.kind for line in Journal("journal").lines()}))
"""


@pytest.mark.processes
def test_the_programs_of_the_page_about_tests_run_as_they_stand(tmp_path):
    crashes, _deploy, _suites, move, judge = programs_in("docs/explanation/testing.md")
    (tmp_path / "page.py").write_text(f"{crashes}\n{move}\n{MOVED}\n{judge}")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    ended = subprocess.run(
        [sys.executable, "-W", "error", "page.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "['Sell.take (step 1)']",
        "['acknowledged', 'effect', 'enter', 'exit', 'submitted']",
    ]


def test_the_suites_that_the_page_about_tests_shows_pass_as_they_stand(tmp_path):
    _crashes, _deploy, suites, _move, _judge = programs_in("docs/explanation/testing.md")
    (tmp_path / "test_page.py").write_text(suites)

    ended = run_pytest("-W", "error", cwd=tmp_path)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert int(re.search(r"^(\d+) passed", ended.stdout, re.MULTILINE)[1]) > 150


def test_the_readme_shows_the_first_example():
    def without_comments(text):
        lines = (line.partition("#")[0].rstrip() for line in text.splitlines())
        return [line for line in lines if line]

    (shown,) = programs_in("README.md")
    example = (ROOT / "examples" / "01_hello_saga.py").read_text().partition('"""\n')[2]

    assert without_comments(shown) == without_comments(example)


@pytest.mark.processes
def test_the_readme_example_can_be_pasted_into_the_interpreter(tmp_path):
    (shown,) = programs_in("README.md")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    # With -i the interpreter reads as from a terminal: an empty line ends a class.
    ended = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=shown + "\n",
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert "Error" not in ended.stderr
    assert ended.stdout.startswith("tracking-")
