"""The curves of the results as pictures: bench/pictures/*.svg, drawn by hand, without a library.

python bench/plot.py [results.json]
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"
_WIDTH, _HEIGHT = 860, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 260, 34, 46
_MIDDLE = (_LEFT + _WIDTH - _RIGHT) / 2
_COLOURS = ("#1f5fbf", "#c2410c", "#15803d", "#7c3aed", "#64748b", "#b45309")

Points = list[tuple[float, float]]


@dataclass
class Picture:
    """Curves over two logarithmic axes."""

    name: str
    title: str
    x_label: str
    y_label: str
    curves: dict[str, Points]


def svg(picture: Picture) -> str:
    """The picture as the text of an SVG file."""
    xs = [x for points in picture.curves.values() for x, _ in points]
    ys = [y for points in picture.curves.values() for _, y in points]
    across = _scale(math.log10(min(xs)), math.log10(max(xs)) + 0.02, _LEFT, _WIDTH - _RIGHT)
    ticks_x = sorted(set(xs))
    up, ticks_y = _axis(ys, _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_MIDDLE, 20, picture.title, anchor="middle", size=14),
        _text(_MIDDLE, _HEIGHT - 8, picture.x_label, anchor="middle"),
        f'<g transform="translate(14 {_HEIGHT / 2}) rotate(-90)">{_text(0, 0, picture.y_label, anchor="middle")}</g>',
    ]
    for tick in ticks_x:
        parts.append(_line(across(tick), _TOP, across(tick), _HEIGHT - _BOTTOM))
        parts.append(_text(across(tick), _HEIGHT - _BOTTOM + 16, _short(tick), anchor="middle"))
    for tick in ticks_y:
        parts.append(_line(_LEFT, up(tick), _WIDTH - _RIGHT, up(tick)))
        parts.append(_text(_LEFT - 6, up(tick) + 4, _short(tick), anchor="end"))
    for number, (name, points) in enumerate(picture.curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" fill="{colour}"/>' for x, y in points]
        y = _TOP + 16 + 16 * number
        parts.append(f'<rect x="{_WIDTH - _RIGHT + 14}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(_WIDTH - _RIGHT + 30, y, name))
    return "\n".join([*parts, "</svg>", ""])


def _axis(values: Iterable[float], start: float, end: float) -> tuple[Callable[[float], float], Sequence[float]]:
    """Where a value lies between two places, and the powers of ten to mark."""
    logs = [math.log10(value) for value in values]
    low, high = math.floor(min(logs) + 1e-9), math.ceil(max(logs) - 1e-9)
    high = max(high, low + 1)
    return _scale(low, high, start, end), [10.0**power for power in range(low, high + 1)]


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (math.log10(value) - low) / (high - low) * (end - start)


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#d4d4d8"/>'


def _short(value: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size and value >= 10_000:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


# ---------------------------------------------------------------- what is drawn
def pictures(results: dict[str, dict]) -> list[Picture]:
    """All pictures that these results allow."""
    makers = (_steps, _latency, _fan_out)
    return [picture for make in makers if (picture := make(results)) is not None and any(picture.curves.values())]


def _points(by_number: dict[str, float]) -> Points:
    return sorted((float(number), value) for number, value in by_number.items() if value > 0)


def _steps(results: dict[str, dict]) -> Picture | None:
    steps, peers = results.get("steps"), results.get("peers", {}).get("peers", {})
    if steps is None:
        return None
    curves = {
        "actorproc": _points(steps["steps_per_s"]),
        "raw LMDB, as many a commit": _points(steps["raw_steps_per_s"]),
    }
    if bare := results.get("peers", {}).get("bare"):
        curves["a bare pipeline"] = _points(bare["steps_per_s"])
    for name, found in peers.items():
        if "steps_per_s" in found:
            curves[name] = _points({number: one["peer"] for number, one in found["steps_per_s"].items()})
    return Picture("steps", "Durable steps per second", "procedures in flight", "steps/s", curves)


def _latency(results: dict[str, dict]) -> Picture | None:
    if (found := results.get("latency", {}).get("submit_to_done")) is None:
        return None
    curves = {
        f"{name}, {level}": _points({steps: one[kind][level] * 1e3 for steps, one in found.items()})
        for kind, name in (("alone_s", "alone"), ("together_s", "16 callers"))
        for level in ("p50", "p99")
    }
    curves["commits and trips alone"] = _points({steps: one["floor_s"] * 1e3 for steps, one in found.items()})
    return Picture("latency", "From submit to done", "steps of the procedure", "ms", curves)


def _fan_out(results: dict[str, dict]) -> Picture | None:
    if (found := results.get("fan_out", {}).get("by_children")) is None:
        return None
    curve = _points({children: one["us_per_child"] for children, one in found.items()})
    return Picture("fan_out", "Cost of a child, fan-out and fan-in", "children", "us per child", {"actorproc": curve})


def main() -> None:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results.json"
    PICTURES.mkdir(exist_ok=True)
    for picture in pictures(json.loads(file.read_text())["benches"]):
        target = PICTURES / f"{picture.name}.svg"
        target.write_text(svg(picture))
        print(target)


if __name__ == "__main__":
    main()
