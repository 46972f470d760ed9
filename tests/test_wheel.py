"""The wheel has what users call and nothing of our own tests, and works where there is no checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="needs hatchling, of the extra dev")

ROOT = Path(__file__).parents[1]
DIST_INFO = ".dist-info/"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of these sources."""
    target = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", target],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = target.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """An environment with the wheel and the libraries of this one, in which the checkout is not importable."""
    place = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "env"], check=True, timeout=120)
    (packages,) = (place / "env" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(packages)
    # A folder that a .pth file names is searched, and its own .pth files, such as an editable install's, are not read.
    (packages / "libraries.pth").write_text("\n".join({sysconfig.get_path(kind) for kind in ("purelib", "platlib")}))
    (place / "here").mkdir()
    return place


def run(installed, *arguments, timeout=150):
    """A Python of that environment, in an empty directory."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST", "COV"))}
    return subprocess.run(
        [installed / "env" / "bin" / "python", *arguments],
        cwd=installed / "here", env=environment, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


def test_the_wheel_has_the_package_alone(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = [name for name in file.namelist() if DIST_INFO not in name]

    assert {name.partition("/")[0] for name in names} == {"actorproc"}
    assert [name for name in names if "simulator" in name or "/tests/" in name or "__pycache__" in name] == []
    for part in ("store_suite/__init__", "pool_suite/__init__", "plugin", "journal", "torture/campaign"):
        assert f"actorproc/testing/{part}.py" in names


def test_no_module_of_the_package_imports_the_tests():
    found = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "actorproc").rglob("*.py")
        if any(line.strip().startswith(("from tests", "import tests")) for line in path.read_text().splitlines())
    ]

    assert found == []


def test_the_installed_package_is_that_of_the_wheel(installed):
    code = "import actorproc, importlib.util; print(importlib.util.find_spec('tests'), actorproc.__file__)"

    ended = run(installed, "-c", code)

    assert ended.stdout.startswith(f"None {installed}"), ended.stdout + ended.stderr


@pytest.mark.processes
def test_torture_plays_an_episode_from_an_installed_wheel(installed):
    ended = run(installed, "-m", "actorproc", "torture", "--episodes", "1", "--seed", "7", "--jobs", "1")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not list((installed / "here").glob("torture-failures*"))


def test_the_conformance_suites_run_from_an_installed_wheel(installed):
    (installed / "here" / "test_mine.py").write_text(
        "import pytest\n"
        "from actorproc.store.memory import MemoryStore\n"
        "from actorproc.testing.fake_pool import FakePool\n"
        "from actorproc.testing.pool_suite import PoolSuite\n"
        "from actorproc.testing.store_suite import StoreSuite\n"
        "class TestStore(StoreSuite):\n"
        "    @pytest.fixture\n"
        "    def make_store(self):\n"
        "        made = []\n"
        "        return lambda: made.append(made[0].clone() if made else MemoryStore()) or made[-1]\n"
        "class TestPool(PoolSuite):\n"
        "    @pytest.fixture\n"
        "    def make_pool(self):\n"
        "        return FakePool\n"
    )

    ended = run(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not scan_gives", "test_mine.py")

    assert ended.returncode == 0, ended.stdout + ended.stderr
