"""Header of a screen: health, counts, and rates between two looks."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from actorproc.report.health import Health
from actorproc.report.metrics import Metrics
from actorproc.ui.views.tones import Tone, tone_of

__all__ = ["Header", "RateMeter", "Rates", "SpanRates", "header_of", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"
_KEPT = 60
"""Points of a series."""
_SPANS = (("1 m", 60.0), ("15 m", 900.0), ("1 h", 3600.0))
_APART = 15.0
"""Seconds between counts that are kept for longer spans."""


class SpanRates(msgspec.Struct, frozen=True, kw_only=True):
    """Mean rates of a longer span up to now."""

    name: str
    """Span in words: "1 m", "15 m", "1 h"."""
    seconds: float
    """Length of the span."""
    covers: float
    """Part of it for which counts are known: since the manager started, or was first looked at."""
    ended: float
    steps: float


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Events a second between the last two looks, and the series of the last minute, oldest first."""

    ended: float = 0.0
    steps: float = 0.0
    commits: float = 0.0
    ended_series: tuple[float, ...] = ()
    steps_series: tuple[float, ...] = ()
    spans: tuple[SpanRates, ...] = ()
    """Means of 1 m, 15 m and 1 h."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """State of the manager and of its store in one glance."""

    status: str
    """Of `Health`, or "stopped" (no manager runs), "hung" (it does not answer), "no store"."""
    tone: Tone
    problems: tuple[str, ...] = ()
    pid: int | None = None
    uptime: float | None = None
    busy: int = 0
    workers: int = 0
    queued: int = 0
    lock_waiting: int = 0
    hosts: int = 0
    silent: int = 0
    """Hosts whose link is broken."""
    counts: dict[str, int] = {}
    """Procedures by state."""
    store_bytes: int | None = None
    rates: Rates | None = None
    paused: str | None = None


class RateMeter:
    """Rates from the counters of one look after the other."""

    def __init__(self) -> None:
        self._before: tuple[float, int, int, int] | None = None
        self._ended: deque[float] = deque(maxlen=_KEPT)
        self._steps: deque[float] = deque(maxlen=_KEPT)
        self._past: deque[tuple[float, int, int]] = deque()
        """Uptime and counts at moments of the last hour, oldest first."""
        self._rates = Rates()

    def take(self, metrics: Metrics) -> Rates:
        """Rates up to this look. A manager that was started again counts anew, and begins a new series."""
        ended = sum(c.succeeded + c.failed + c.rolledback for c in metrics.procedures.values())
        steps = sum(count.run for count in metrics.steps.values())
        before, self._before = self._before, (metrics.uptime, ended, steps, metrics.commits)
        if before is None or metrics.uptime < before[0]:
            self._ended.clear()
            self._steps.clear()
            self._past.clear()
            self._past.append((0.0, 0, 0))  # it counts from nothing
            self._rates = Rates(spans=self._spans(metrics.uptime, ended, steps))
        elif metrics.uptime > before[0]:
            span = metrics.uptime - before[0]
            self._ended.append((ended - before[1]) / span)
            self._steps.append((steps - before[2]) / span)
            self._rates = Rates(
                ended=self._ended[-1],
                steps=self._steps[-1],
                commits=(metrics.commits - before[3]) / span,
                ended_series=tuple(self._ended),
                steps_series=tuple(self._steps),
                spans=self._spans(metrics.uptime, ended, steps),
            )
        return self._rates

    def _spans(self, uptime: float, ended: int, steps: int) -> tuple[SpanRates, ...]:
        """Means since the oldest counts in each span; spans of which nothing is known are left out."""
        past = self._past
        while past and past[0][0] < uptime - _SPANS[-1][1] - _APART:
            past.popleft()
        found = []
        for name, seconds in _SPANS:
            at, ended_then, steps_then = next((c for c in past if c[0] >= uptime - seconds - _APART), (uptime, 0, 0))
            if (covers := uptime - at) > 0:
                found.append(
                    SpanRates(
                        name=name,
                        seconds=seconds,
                        covers=covers,
                        ended=(ended - ended_then) / covers,
                        steps=(steps - steps_then) / covers,
                    )
                )
        if not past or uptime - past[-1][0] >= _APART:
            past.append((uptime, ended, steps))
        return tuple(found)


def header_of(
    *,
    status: str | None = None,
    pid: int | None = None,
    health: Health | None = None,
    metrics: Metrics | None = None,
    rates: Rates | None = None,
    counts: Mapping[str, int] | None = None,
    problems: Sequence[str] = (),
) -> Header:
    """The header from what is known: with a manager its health and metrics, without one the store's counts.

    Args:
        status: in place of the one of `health`: "stopped", "hung".
        pid: of the manager.
        health: of the manager.
        metrics: of the manager.
        rates: of the manager.
        counts: procedures by state.
        problems: sentences that come before those of `health`.

    Returns:
        The header.
    """
    word = status or (health.status if health is not None else "stopped")
    return Header(
        status=word,
        tone="good" if word == "running" else tone_of(word),
        problems=(*problems, *(health.problems if health is not None else ())),
        pid=pid,
        uptime=metrics.uptime if metrics is not None else None,
        busy=health.busy if health is not None else 0,
        workers=metrics.workers if metrics is not None else 0,
        queued=metrics.queued if metrics is not None else 0,
        lock_waiting=metrics.lock_waiting if metrics is not None else 0,
        hosts=len(health.hosts) if health is not None else 0,
        silent=sum(host.state == "silent" for host in health.hosts) if health is not None else 0,
        counts=dict(counts or {}),
        store_bytes=metrics.store_used_bytes if metrics is not None else None,
        rates=rates,
        paused=health.paused if health is not None else None,
    )


def sparkline(series: Sequence[float], width: int) -> str:
    """The end of a series as bars of eight heights, the highest one for its greatest value."""
    shown = list(series)[-width:] if width > 0 else []
    top = max(shown, default=0.0)
    if top <= 0:
        return _BARS[0] * len(shown)
    return "".join(_BARS[min(7, int(value / top * 7.999))] for value in shown)
