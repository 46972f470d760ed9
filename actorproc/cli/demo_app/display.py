"""Display of the demo: bars with rich, one moving line without it, plain lines where no terminal is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Advance", "Display", "LineDisplay", "PlainDisplay", "RichDisplay", "choose_display"]

Advance = Callable[[int, str], None]
"""Called with how many are done and a short note."""


class Display(Protocol):
    """Says things, and shows progress while it may also say things."""

    def say(self, text: str) -> None: ...

    def head(self, text: str) -> None:
        """Begin a new part."""
        ...

    def progress(self, label: str, total: int) -> contextlib.AbstractContextManager[Advance]: ...


def choose_display() -> Display:
    """The best display for this standard output."""
    if not sys.stdout.isatty():
        return PlainDisplay()
    try:
        from rich.console import Console
    except ImportError:
        return LineDisplay()
    return RichDisplay(Console(highlight=False))


class PlainDisplay:
    """For pipes and log files: a line per fifth of the work."""

    def say(self, text: str) -> None:
        print(f"  {text}", flush=True)

    def head(self, text: str) -> None:
        print(f"\n{text}", flush=True)

    @contextlib.contextmanager
    def progress(self, label: str, total: int) -> Iterator[Advance]:
        shown = 0

        def advance(done: int, note: str) -> None:
            nonlocal shown
            fifth = 5 * done // max(total, 1)
            if fifth > shown:
                shown = fifth
                self.say(f"{label}: {done}/{total} files{note and ', '}{note}")

        yield advance


class LineDisplay(PlainDisplay):
    """For a terminal without rich: one line that is written over."""

    def __init__(self) -> None:
        self._line = ""

    def say(self, text: str) -> None:
        print(f"\r{'':{len(self._line)}}\r  {text}", flush=True)
        self._draw()

    @contextlib.contextmanager
    def progress(self, label: str, total: int) -> Iterator[Advance]:
        def advance(done: int, note: str) -> None:
            filled = 24 * done // max(total, 1)
            text = f"  {label} [{'#' * filled:<24}] {done}/{total} files {note}"
            self._line = f"{text:<{len(self._line)}}"
            self._draw()

        try:
            yield advance
        finally:
            self._line = ""
            print(flush=True)

    def _draw(self) -> None:
        if self._line:
            print(f"\r{self._line}", end="", flush=True)


class RichDisplay:
    """For a terminal with rich."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        self._console.print(f"  {text}", markup=False)

    def head(self, text: str) -> None:
        self._console.print(f"\n{text}", markup=False, style="bold")

    @contextlib.contextmanager
    def progress(self, label: str, total: int) -> Iterator[Advance]:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("  {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=self._console) as bars:
            task = bars.add_task(label, total=total, note="")

            def advance(done: int, note: str) -> None:
                bars.update(task, completed=done, note=note)

            yield advance
