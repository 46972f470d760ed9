"""Drawings of the documentation, as SVG: `python -m docs._extensions.drawings` writes them to docs/pictures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = ["DRAWINGS", "Arrow", "Box"]

PICTURES = Path(__file__).parents[1] / "pictures"
_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">
<title>{title}</title>
<style>text{{font:13px system-ui,sans-serif;fill:#1f2933}}.s{{font-size:11px;fill:#52606d}}
.m{{text-anchor:middle}}</style>
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse">
<path d="M0 0L8 4L0 8z" fill="#52606d"/></marker></defs>
<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>
"""
_COLOURS = {"plain": "#f0f4f8", "store": "#e3f8ee", "worker": "#fff3d6", "bad": "#ffe3e3", "undo": "#ede7ff"}


class Box(NamedTuple):
    """A box with lines of text in it; the first one is large."""

    x: int
    y: int
    width: int
    text: str
    kind: str = "plain"
    height: int = 44

    def svg(self) -> str:
        """The box."""
        lines = self.text.split("\n")
        middle = self.x + self.width // 2
        top = self.y + self.height // 2 + 5 - 8 * (len(lines) - 1)
        words = "".join(
            f'<text x="{middle}" y="{top + 16 * number}" class="m{" s" if number else ""}">{_text(line)}</text>\n'
            for number, line in enumerate(lines)
        )
        shape = f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="6" '
        return f'{shape}fill="{_COLOURS[self.kind]}" stroke="#9fb3c8"/>\n{words}'


class Arrow(NamedTuple):
    """An arrow through points, with a text at a place of its own."""

    points: tuple[tuple[int, int], ...]
    text: str = ""
    at: tuple[int, int] = (0, 0)
    dashed: bool = False

    def svg(self) -> str:
        """The arrow."""
        way = "M" + "L".join(f"{x} {y}" for x, y in self.points)
        dashes = ' stroke-dasharray="5 4"' if self.dashed else ""
        line = f'<path d="{way}" fill="none" stroke="#52606d" stroke-width="1.4"{dashes} marker-end="url(#a)"/>\n'
        words = f'<text x="{self.at[0]}" y="{self.at[1]}" class="m s">{_text(self.text)}</text>\n' if self.text else ""
        return line + words


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _drawn(title: str, width: int, height: int, parts: Iterable[Box | Arrow]) -> str:
    return _HEAD.format(title=title, width=width, height=height) + "".join(part.svg() for part in parts) + "</svg>\n"


def _submit() -> str:
    return _drawn(
        "A submit is committed, a worker runs the step, its result is committed, and so on to the end",
        720,
        190,
        [
            Box(16, 30, 120, "your program\nmanager.submit(…)"),
            Box(300, 30, 120, "the store\none commit each", "store"),
            Box(584, 30, 120, "a worker\nruns one step", "worker"),
            Arrow(((136, 42), (298, 42)), "1  commit: the procedure", (217, 36)),
            Arrow(((298, 62), (138, 62)), "2  acknowledged", (217, 78)),
            Arrow(((420, 42), (582, 42)), "3  then the step is sent", (501, 36)),
            Arrow(((582, 62), (422, 62)), "4  its result", (501, 78)),
            Arrow(((360, 74), (360, 118)), "", (0, 0)),
            Box(230, 120, 260, "5  commit: state, locks, children\nthen the next step, or the end", "store", 48),
            Box(560, 120, 144, "killed here?\nonly this step runs again", "bad", 48),
            Arrow(((640, 118), (640, 76)), dashed=True),
        ],
    )


def _undo() -> str:
    return _drawn(
        "A tree is undone newest first: the failed step, then finished children, then the steps before",
        720,
        250,
        [
            Box(16, 20, 130, "order: pay", "worker"),
            Box(196, 20, 130, "order: pack\nstarts two children", "worker"),
            Box(376, 20, 130, "order: ship\nfails", "bad"),
            Arrow(((146, 42), (194, 42))),
            Arrow(((326, 42), (374, 42))),
            Box(150, 110, 100, "child: wrap 1", "worker", 36),
            Box(276, 110, 100, "child: wrap 2", "worker", 36),
            Arrow(((235, 64), (205, 108))),
            Arrow(((290, 64), (320, 108))),
            Box(546, 20, 158, "undo 1: ship\nit may be half done", "undo"),
            Arrow(((506, 42), (544, 42)), dashed=True),
            Box(546, 92, 158, "undo 2: the children\nnewest first", "undo"),
            Arrow(((625, 64), (625, 90)), dashed=True),
            Box(546, 164, 158, "undo 3: pack, pay\nnewest first", "undo"),
            Arrow(((625, 136), (625, 162)), dashed=True),
            Box(376, 190, 130, "ROLLEDBACK", "undo", 36),
            Arrow(((544, 200), (508, 206)), dashed=True),
        ],
    )


def _lifecycle() -> str:
    return _drawn(
        "States of a procedure: from INITIALIZING over RUNNABLE and the two waits to SUCCESS, FAILED or ROLLEDBACK",
        720,
        306,
        [
            Box(16, 128, 116, "INITIALIZING"),
            Box(226, 128, 130, "RUNNABLE\nqueued, running, …", "worker"),
            Box(196, 20, 90, "WAITING", "plain", 40),
            Box(310, 20, 150, "WAITING_TIMEOUT", "plain", 40),
            Box(580, 128, 124, "SUCCESS", "store"),
            Box(400, 240, 124, "ROLLEDBACK", "undo"),
            Box(180, 240, 110, "FAILED", "bad"),
            Arrow(((132, 150), (224, 150)), "submitted", (178, 144)),
            Arrow(((250, 126), (234, 62)), "suspended, waited", (180, 100)),
            Arrow(((262, 62), (276, 126))),
            Arrow(((330, 126), (360, 62)), "slept, waited with a limit", (432, 100)),
            Arrow(((346, 62), (314, 126))),
            Arrow(((356, 144), (578, 144)), "finished, bypassed", (467, 138)),
            Arrow(((340, 172), (440, 238)), "undone", (416, 206)),
            Arrow(((420, 238), (322, 174)), "retried", (346, 214), dashed=True),
            Arrow(((262, 172), (232, 238)), "gave up", (272, 214)),
            Arrow(((212, 238), (244, 174)), "retried", (200, 206), dashed=True),
            Arrow(((626, 172), (526, 256)), "a child is undone", (598, 190)),
            Arrow(((235, 284), (235, 296), (660, 296), (660, 174)), "bypassed", (600, 290), dashed=True),
        ],
    )


def _waits() -> str:
    return _drawn(
        "Who waits for whom: a procedure for a lock, its holder for a child, the child for a worker",
        720,
        120,
        [
            Box(16, 36, 120, "order-4\nlocked out"),
            Box(206, 36, 120, "order-3\nholds shelf/3"),
            Box(396, 36, 120, "order-3.0\na child, queued"),
            Box(586, 36, 120, "worker 0\nruns a step for 3 s", "worker"),
            Arrow(((136, 58), (204, 58)), "lock", (170, 50)),
            Arrow(((326, 58), (394, 58)), "child", (360, 50)),
            Arrow(((516, 58), (584, 58)), "worker", (550, 50)),
        ],
    )


DRAWINGS = {"submit.svg": _submit, "undo.svg": _undo, "lifecycle.svg": _lifecycle, "waits.svg": _waits}
"""Makers of the drawings by the names of their files."""

if __name__ == "__main__":
    for name, draw in DRAWINGS.items():
        (PICTURES / name).write_text(draw(), encoding="utf-8")
