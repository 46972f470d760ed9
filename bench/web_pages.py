"""Costs of the dashboard in a browser: first paint, time until it can be used, bytes, long trees and long timelines.

    python bench/web_pages.py [--quick] [--finished 100000] [--children 10001] [--steps 10000] [--rounds 5]

Each page is opened with nothing in the cache. The raw limit beside it is a page of one sentence from the same server.
It needs chromium and ``pip install 'actorproc[web]' playwright``.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import fresh_directory, options, report
from looking import _fill  # the same store as that of the looks

from actorproc import Procedure, ProcedureManager, Status

SCROLL = """async () => {
  const grid = document.querySelector('[role=treegrid]');
  const frames = [];
  const far = grid.scrollHeight - grid.clientHeight;
  let before = await new Promise(requestAnimationFrame);
  for (let at = 0; at < 120; at += 1) {
    grid.scrollTop = (far * at) / 120;
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - before);
    before = now;
  }
  return {frames, nodes: grid.querySelectorAll('*').length};
}"""
SIZES = """() => performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))
  .filter((one) => !one.name.includes('/api/')).reduce((sum, one) => sum + one.encodedBodySize, 0)"""
PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? performance.now()"


@dataclass
class Long(Procedure):
    """Many steps."""

    type_name = "bench.Long"
    steps: int

    def execute(self, ctx):
        self.steps -= 1
        return Status.executing() if self.steps > 0 else Status.done()


@contextmanager
def page(path: Path) -> Iterator[tuple[str, str]]:
    """The page of a store: its address and token."""
    command = [sys.executable, "-m", "actorproc", "--path", str(path), "web"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        yield address, json.loads((path / "web.json").read_text())["token"]
    finally:
        process.terminate()
        process.wait()


def _opened(browser: Any, address: str, token: str, path: str, ready: str) -> tuple[dict[str, float], Any]:
    """One page in a fresh context: milliseconds and bytes, and the page itself."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    headers = {"X-Actorproc": "1", "Origin": address.rstrip("/")}
    context.request.post(address + "session", data={"token": token}, headers=headers)
    found = context.new_page()
    found.goto(address + path)
    found.wait_for_selector(ready)
    usable = found.evaluate("() => performance.now()")
    return {"paint": found.evaluate(PAINT), "usable": usable, "bytes": found.evaluate(SIZES)}, found


def _middle(measure: Callable[[], dict[str, float]], rounds: int) -> dict[str, float]:
    all_rounds = [measure() for _ in range(rounds)]
    return {name: statistics.median(one[name] for one in all_rounds) for name in all_rounds[0]}


def measured(chromium: str, finished: int, children: int, steps: int, rounds: int) -> dict[str, dict[str, float]]:
    """All figures by page."""
    from playwright.sync_api import sync_playwright

    pages = {
        "raw limit: one sentence": ("static/vendor/dagre/LICENSE", "pre"),
        "overview": ("", "dl.tiles"),
        "procedures": ("procedures", "tbody tr"),
        "procedure": ("procedures/parent", ".why-box"),
        "tree": ("procedures/parent/tree", "[role=row] a"),
        "locks": ("locks", "main h2"),
        "workers": ("workers", "main h1"),
        "types": ("types", "main h1"),
    }
    found: dict[str, dict[str, float]] = {}
    options = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with fresh_directory() as folder, sync_playwright() as driver:
        path, other = Path(folder) / "state", Path(folder) / "long"
        _fill(path, children, finished)
        with ProcedureManager(other, workers=1, procedures=[Long]) as manager:
            manager.submit(Long(steps), "long").result(600)
        browser = driver.chromium.launch(executable_path=chromium, args=options)
        with page(path) as (address, token):
            for name, (part, ready) in pages.items():

                def opened(part: str = part, ready: str = ready) -> dict[str, float]:
                    one, shown = _opened(browser, address, token, part, ready)
                    shown.context.close()
                    return one

                opened()
                found[name] = _middle(opened, rounds)
            _, shown = _opened(browser, address, token, "procedures/parent/tree", "[role=row] a")
            scrolled = shown.evaluate(SCROLL)
            frames = sorted(scrolled["frames"])
            found["scrolling the tree"] = {
                "p50": statistics.median(frames),
                "p95": frames[int(len(frames) * 0.95) - 1],
                "nodes": scrolled["nodes"],
            }
            shown.context.close()
        with page(other) as (address, token):

            def drawn() -> dict[str, float]:
                one, shown = _opened(browser, address, token, "procedures/long/timeline", "canvas, .timeline")
                shown.context.close()
                return one

            found[f"timeline of {steps} steps"] = _middle(drawn, rounds)
        browser.close()
    return found


def main() -> None:
    asked = options(__doc__, finished=(100_000, 200), children=(10_001, 300), steps=(10_000, 600), rounds=(5, 1))
    chromium = shutil.which("chromium")
    try:
        import playwright  # noqa: F401
    except ImportError:
        chromium = None
    if chromium is None:
        print("no browser: pip install playwright and apt-get install chromium")
        return
    os.environ.pop("ACTORPROC_WEB", None)
    found = measured(chromium, asked.finished, asked.children, asked.steps, asked.rounds)
    lines = [
        f"{name:<28} "
        + ", ".join(
            f"{key} {value:,.1f}" + (" B" if key == "bytes" else "" if key == "nodes" else " ms")
            for key, value in one.items()
        )
        for name, one in found.items()
    ]
    report("web_pages", found, lines)


if __name__ == "__main__":
    main()
