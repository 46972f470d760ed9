"""The documentation site: built without a warning, complete, the same anchors as on a code host, and nothing fetched."""

from __future__ import annotations

import fcntl
import posixpath
import re
import subprocess
import sys
from pathlib import Path

import pytest

import actorproc
from tests.test_documents import PAGES, anchors_in

pytest.importorskip("sphinx", reason="needs sphinx, of the extra docs")
pytest.importorskip("furo", reason="needs furo, of the extra docs")
pytest.importorskip("myst_parser", reason="needs myst-parser, of the extra docs")

from sphinx.util.inventory import InventoryFile

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


pytestmark = pytest.mark.timeout(1000)


@pytest.fixture(scope="module")
def site(tmp_path_factory, worker_id):
    """Folder of the site, which is built once for all processes of a run; every warning is an error."""
    base = tmp_path_factory.getbasetemp()
    target = (base if worker_id == "master" else base.parent) / "site"
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "objects.inv").exists():  # the last file that a build writes
            built = subprocess.run(
                [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", DOCS, target],
                cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
            )  # fmt: skip
            assert built.returncode == 0, built.stderr
    return target


def test_each_public_name_is_there_once_under_its_public_name(site):
    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", posixpath.join)
    names = [name for kind, objects in inventory.items() if kind.startswith("py:") for name in objects]

    assert [name for name in actorproc.__all__ if names.count(f"actorproc.{name}") != 1] == []
    private = re.compile(r"actorproc\.(config|control|core|engine|link|model|procedure\.|report|store|support|workers)")
    assert [name for name in names if private.match(name)] == []


def test_the_search_works_without_a_network(site):
    index = (site / "searchindex.js").read_text()

    assert (site / "search.html").exists()
    assert all(word in index for word in ("compens", "poison", "gunicorn"))
    fetched = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*(?:src|href)=["'](?:https?:)?//[^"']*""")
    assert [page for page in site.rglob("*.html") if fetched.search(page.read_text())] == []
    assert [
        file for file in site.rglob("*.css") if re.search(r"url\(['\"]?(?:https?:)?//|@import", file.read_text())
    ] == []


def test_the_search_puts_records_of_what_was_done_behind_pages_for_readers(site):
    scorer = (DOCS / "_extensions" / "scorer.js").read_text()
    named = re.findall(r"(?:project|explanation)\\/\(([a-z|]+)\)", scorer)

    assert scorer in (site / "_static" / "language_data.js").read_text()
    assert {
        (DOCS / folder / f"{page}.md").is_file()
        for folder, pages in zip(("project", "explanation"), named, strict=True)
        for page in pages.split("|")
    } == {True}


def test_headings_have_the_anchors_that_a_code_host_gives_them(site):
    missing = {}
    for page in (path for path in PAGES if path.is_relative_to(DOCS)):
        relative = page.relative_to(DOCS)
        if relative.parts[0] == "project":  # stands for a file beside the folder
            continue
        ids = set(re.findall(r'\bid="([^"]+)"', (site / relative.with_suffix(".html")).read_text()))
        if lost := anchors_in(page) - ids:
            missing[relative.as_posix()] = sorted(lost)

    assert missing == {}


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("reference/settings.html", ["retain_failed_for", "7 days", "wall_time", "max_attempts"]),
        ("reference/commands.html", ["actorproc why", "--changed-until", "--around-step"]),
        ("reference/errors.html", ["ProcedureQuarantined", "whose"]),
        ("reference/events.html", ["worker-parked", "leader-changed"]),
        ("reference/metrics.html", ["actorproc_step_duration_seconds{type,step}", "actorproc_hosts{state}"]),
        ("reference/json.html", ["undo_error", "procedure-detail"]),
        ("reference/api/managers.html", ["submit_many", "Raises", "on_existing"]),
        ("reference/examples.html", ["systemd", "create_table"]),
    ],
)
def test_pages_made_of_the_code_have_its_names(site, page, words):
    text = re.sub(r"<[^>]+>", "", (site / page).read_text())

    assert [word for word in words if word not in text] == []
