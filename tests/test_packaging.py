"""What an installation brings, what an import touches, and what is said when an extra is missing."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE_PACKAGES = {"pykka", "lmdb", "cloudpickle", "psutil", "msgspec"}


def fresh_interpreter(code):
    """Run code in a new interpreter that sees this checkout; standard output and error as text."""
    command = [sys.executable, "-W", "error", "-c", code]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def packages_loaded_by(statement):
    code = f"import sys\nbefore = set(sys.modules)\n{statement}\nprint(*(set(sys.modules) - before))"
    ended = fresh_interpreter(code)
    assert ended.returncode == 0, ended.stderr
    loaded = {name.partition(".")[0] for name in ended.stdout.split()} - sys.stdlib_module_names
    # The interpreter's own build data, and what msgspec takes along when it happens to be installed.
    return {name for name in loaded if not name.startswith("_sysconfigdata")} - {"typing_extensions"}


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_importing_actorproc_touches_only_core_packages():
    assert packages_loaded_by("import actorproc") <= CORE_PACKAGES | {"actorproc"}


def test_importing_actorproc_does_not_load_lmdb_before_a_manager_is_used():
    assert "lmdb" not in packages_loaded_by("import actorproc")
    assert "lmdb" not in packages_loaded_by("from actorproc import LockKey, Procedure, Saga, Status, step")


def test_the_code_of_a_worker_process_never_loads_lmdb():
    assert "lmdb" not in packages_loaded_by("import actorproc.workers.child.main")


def test_every_public_name_can_be_had():
    ended = fresh_interpreter("import actorproc\nfor name in actorproc.__all__: getattr(actorproc, name)")

    assert ended.returncode == 0, ended.stderr


def test_the_command_line_loads_neither_the_engine_nor_an_extra_before_a_command_runs():
    loaded = packages_loaded_by("import actorproc.cli.main; actorproc.cli.main.build_parser()")

    assert loaded <= {"actorproc", "msgspec"}


def test_a_missing_extra_gives_one_line_that_names_it():
    code = "import sys; sys.modules['shtab'] = None\nfrom actorproc.cli.main import main; sys.exit(main({}))"

    ended = fresh_interpreter(code.format(["--print-completion", "bash"]))

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == "shell completion needs shtab: pip install 'actorproc[cli]'\n"


def test_the_demo_needs_no_extra():
    code = "import sys; sys.modules['rich'] = None\nfrom actorproc.cli.main import main; sys.exit(main(['demo', '--help']))"

    ended = fresh_interpreter(code)

    assert ended.returncode == 0, ended.stderr
    assert "--chaos" in ended.stdout


def test_the_core_depends_on_five_packages():
    assert {re.split(r"[<>=]", requirement)[0] for requirement in project()["dependencies"]} == CORE_PACKAGES


def test_the_page_of_extras_has_the_licences_of_every_one():
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/reference/extras.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert set(rows) >= set(project()["optional-dependencies"])


def test_the_installed_version_is_the_projects():
    try:
        installed = metadata.version("actorproc")
    except metadata.PackageNotFoundError:
        pytest.skip("actorproc runs from its checkout and is not installed")

    ended = fresh_interpreter("from actorproc.cli.main import main; main(['--version'])")

    assert installed == project()["version"]
    assert ended.stdout == f"actorproc {installed}\n"


def test_types_are_shipped():
    assert (ROOT / "actorproc" / "py.typed").exists()
