"""A browser, stores with much in them, and servers of pages. Each page that is opened has to stay without errors."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.browser.depot import until

ROOT = Path(__file__).parents[2]
NEEDED = "pip install -e '.[browser]' and apt-get install chromium"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TOKEN = "t0ken-of-the-browser-tests-" + "x" * 20
AXE = "84494fec757e4710dc751c8d7a636e457f4532f08f85c86dc9070133fbff53bc"
"""SHA-256 of axe-core 4.12.1, which a package of PyPI has along. Only for tests, and never part of ours."""
PICTURES = os.environ.get("ACTORPROC_PICTURES")
"""Directory for the pictures of the documentation; without it none are made."""


def pytest_collection_modifyitems(items):
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.processes)


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests; its processes are gone at the end."""
    playwright = pytest.importorskip("playwright.sync_api", reason=f"no browser: {NEEDED}")
    if CHROMIUM is None:
        pytest.skip(f"no browser: {NEEDED}")
    # /dev/shm is small in containers; root has no sandbox of its own.
    options = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()
    left = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    assert [child.name() for child in psutil.wait_procs(left, timeout=5)[1] if "chrom" in child.name()] == []


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core, which finds what is not accessible."""
    package = pytest.importorskip("axe_playwright_python", reason=f"no axe-core: {NEEDED}")
    source = (Path(package.__file__).parent / "axe.min.js").read_bytes()
    assert hashlib.sha256(source).hexdigest() == AXE
    return source.decode()


class Program:
    """A process that says something when it is ready."""

    def __init__(self, command, ready, place=ROOT):
        self._command, self._ready, self._place = command, ready, place
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            self._command,
            cwd=self._place,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        for line in self.process.stdout:
            if line.startswith(self._ready):
                self.said = line.strip()
                return
        raise AssertionError(f"{self._command} ended with {self.process.wait()}")

    def send(self, number):
        self.process.send_signal(number)

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(30)
        self.process.stdout.close()
        return code


class Store(Program):
    """A manager over a store in which much stands still."""

    def __init__(self, directory, children=300):
        self.directory = directory / "store"
        super().__init__([sys.executable, "-m", "tests.browser.depot", str(self.directory), str(children)], "ready")

    def page(self, tmp_path, *options, token=TOKEN, port=0):
        """A server of pages over this store."""
        return Pages(self.directory, tmp_path, *options, token=token, port=port)

    @property
    def client(self):
        from actorproc import ProcedureClient

        return ProcedureClient(self.directory)


class Pages(Program):
    """A server of pages; `address` ends with a slash."""

    def __init__(self, directory, tmp_path, *options, token=TOKEN, port=0):
        file = tmp_path / f"token-{os.urandom(4).hex()}"
        file.write_text(token)
        file.chmod(0o600)
        self.token = token
        command = [sys.executable, "-m", "actorproc", "--path", getattr(directory, "name", directory), "web"]
        super().__init__(
            [*command, "--port", str(port), "--token-file", str(file), *options],
            "http",
            getattr(directory, "parent", ROOT),
        )
        self.address = self.said.partition("#")[0]

    @property
    def port(self):
        return int(self.address.split(":")[2].split("/")[0])


@pytest.fixture(scope="session")
def store(chromium, tmp_path_factory):
    """A store that tests look at, and do not change."""
    found = Store(tmp_path_factory.mktemp("depot"))
    yield found
    found.end()


@pytest.fixture(scope="session")
def pages(store, tmp_path_factory):
    found = store.page(tmp_path_factory.mktemp("pages"))
    yield found
    assert found.end() == 0


@pytest.fixture
def window(chromium):
    """Open a window of a context of its own: ``window(pages, "procedures")``.

    At the end there was no error on the console, no refused script or style, and no request to another place.
    """
    opened, wrong = [], []

    def watch(page, pages):
        def heard(message):
            if message.type == "error" and "Failed to load resource" not in message.text:
                wrong.append(message.text)

        def asked(request):
            if not request.url.startswith((pages.address, "data:")):
                wrong.append(f"a request to {request.url}")

        page.on("console", heard)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", asked)
        page.on("dialog", lambda dialog: wrong.append(f"a dialog says {dialog.message}"))
        page.set_default_timeout(15_000)

    def found(pages, path="", context=None, **options):
        if context is None:
            context = chromium.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
            opened.append(context)
            first = context.new_page()
            watch(first, pages)
            first.goto(f"{pages.address}#token={pages.token}")
            first.wait_for_selector("main h1")
        else:
            first = context.new_page()
            watch(first, pages)
        if path or context.pages[0] is not first:
            first.goto(pages.address + path)
            first.wait_for_selector("main h1")
        return first

    yield found
    for context in opened:
        context.close()
    assert wrong == []


def picture(page, name):
    """A picture for the documentation, where such are made."""
    if PICTURES:
        page.evaluate("document.querySelectorAll('.store').forEach((one) => (one.hidden = true))")  # of this machine
        page.screenshot(path=Path(PICTURES) / f"{name}.png", animations="disabled")


def in_page(page, code):
    """Run a statement with the state of the page as `app`, and wait until it is drawn."""
    page.evaluate(
        "async () => { const { app } = await import(document.baseURI + 'static/app/main.js');"
        f" {code}; app.render(); await new Promise(requestAnimationFrame); }}"
    )


__all__ = ["PICTURES", "TOKEN", "Pages", "Store", "in_page", "picture", "until"]
