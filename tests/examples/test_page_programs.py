"""Programs of the reference and the explanations, pasted one after the other, print what their pages say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.suites import run_pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OTHERS = {"testing.md", "telemetry.md", "web.md"}
"""Pages whose programs are tried elsewhere: below, in `test_telemetry_page.py` and in `test_web_examples.py`."""
_SAYS = re.compile(r"^ *print\(.*\)  +# (.+)$|^ *print\(.*\) # (.+)$", re.MULTILINE)


def programs_in(page):
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def said_by(program):
    """Texts that a program prints, by the comments behind its calls of print."""
    return [first or second for first, second in _SAYS.findall(program)]


PAGES = sorted(
    page
    for folder in ("reference", "explanation")
    for page in (DOCS / folder).rglob("*.md")
    if page.name not in OTHERS and programs_in(page)
)


@pytest.mark.processes
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_the_programs_of_a_page_print_what_it_says(page, tmp_path):
    program = "\n".join(programs_in(page))
    (tmp_path / "page.py").write_text(program)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    command = [sys.executable, "-W", "error", "page.py"]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == said_by(program) != []


def test_there_are_pages_with_programs_and_their_comments_are_found():
    assert len(PAGES) > 12
    assert said_by("print(1)  # 1\n    print(f(2))    # [2, 3]\nx = 1  # no\nprint(x)\n") == ["1", "[2, 3]"]


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
    crashes, _deploy, move, judge, _suites = programs_in("docs/reference/procedures/testing.md")
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
    _crashes, _deploy, _move, _judge, suites = programs_in("docs/reference/procedures/testing.md")
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
