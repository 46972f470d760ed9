"""The position of a saga: stored by the names of its steps, and found again in the order that today's class has.

A position is ``[next, order]``: the name of the next step ("" behind the last), and all names in the order it was
written under. The steps before the next one are done. Where that does not say it all, the rest is written out:
``[next, order, done, skipped, repeats, undone, turn]``. While the class has the stored order, the position means what
it meant. In another order a step that is done never runs again, what stands behind all done ones runs, and anything
else is for ``on_change``. So is a new step in the place of a done one that is gone, as it may be that one renamed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from actorproc.procedure.authoring.saga_steps import BoundStep
from actorproc.procedure.encoding.state import StateRefused, of_another_kind

__all__ = ["ON_CHANGE", "Detour", "OnChange", "Route"]

OnChange = Literal["park", "run", "skip"]
ON_CHANGE = ("park", "run", "skip")
END = ""
_encode = msgspec.msgpack.Encoder().encode
_position_of: type[Any] = tuple[str, list[str], list[str], list[str], dict[str, int], list[str], int]


class Detour:
    """Part of a position beyond the index of the next step, where that does not say it all."""

    __slots__ = ("done", "is_moved", "names", "next", "order", "refusal", "repeats", "skipped", "turn", "undone")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        """Names of the steps as this procedure knows them, in today's order: a renamed step keeps its old one."""
        self.done: list[str] = []
        """Steps that are done, in the order of their ends."""
        self.skipped: list[str] = []
        """Steps that were left out for good."""
        self.repeats: dict[str, int] = {}
        """Number of times that a step that is not done ended with ``executing``."""
        self.undone: list[str] = []
        self.turn = 0
        """Number of times that the present undo ended with ``executing``."""
        self.refusal: str | None = None
        """The reason why today's class has no place for it."""
        self.next = END
        """With a refusal: the next step as stored."""
        self.order: tuple[str, ...] = ()
        """With a refusal: the order as stored."""
        self.is_moved = False
        """The next step is another one than the engine knows of."""


class Route:
    """The steps of one class, and how to find a place in them."""

    def __init__(self, owner: str, bound_steps: tuple[BoundStep, ...], on_change: OnChange) -> None:
        self.owner = owner
        self.bound_steps = bound_steps
        self.names = tuple(bound_step.name for bound_step in bound_steps)
        self.on_change = on_change
        self._listed = list(self.names)
        self._index = {name: number for number, name in enumerate((*self.names, END))}
        self._resolved = {
            former: at for at, bound_step in enumerate(bound_steps) for former in (*bound_step.was, bound_step.name)
        }
        self._encoded = tuple(_encode([name, self._listed]) for name in (*self.names, END))

    def __reduce__(self) -> Any:
        return Route, (self.owner, self.bound_steps, self.on_change)

    def find(self, name: str) -> int | None:
        """The index of a step that has, or had, this name."""
        return self._resolved.get(name)

    def detour(self, at: int) -> Detour:
        """The position of this index, written out."""
        made = Detour(self.names)
        made.done = list(self.names[:at])
        return made

    # ------------------------------------------------------------ going on
    def passed(self, at: int, detour: Detour) -> tuple[int, Detour | None]:
        """The position once the step at this index is done."""
        name = detour.names[at]
        detour.repeats.pop(name, None)
        detour.done.append(name)
        done = {*detour.done, *detour.skipped}
        at = next((n for n in range(at + 1, len(self.names)) if detour.names[n] not in done), len(self.names))
        return at, self._simplest(at, detour)

    def _simplest(self, at: int, detour: Detour) -> Detour | None:
        """None where the index says it all."""
        is_plain = (
            detour.names == self.names
            and len(detour.done) == at
            and set(detour.done) == set(self.names[:at])
            and not (
                detour.skipped or detour.repeats or detour.undone or detour.turn or detour.refusal or detour.is_moved
            )
        )
        return None if is_plain else detour

    # ------------------------------------------------------------ stored form
    def stored(self, at: int, detour: Detour | None) -> Any:
        """The position as data."""
        if detour is None:
            return msgspec.Raw(self._encoded[at])
        order = detour.names
        following = END if at == len(order) else order[at]
        if detour.refusal is not None:
            order, following = detour.order, detour.next
        return [following, list(order), detour.done, detour.skipped, detour.repeats, detour.undone, detour.turn]

    def restored(self, position: Any) -> tuple[int, Detour | None]:
        """The place of a stored position in today's order; `Detour.refusal` says why there is none.

        Raises `StateRefused` for what is no position of a saga.
        """
        if type(position) is list and len(position) == 2 and position[1] == self._listed:
            found = self._index.get(position[0])
            if found is not None:
                return found, None
        following, order, done, skipped, repeats, undone, turn = self._parts(position)
        detour = Detour(self._own_names(order, following))
        detour.done, detour.skipped, detour.repeats = done, skipped, repeats
        detour.undone, detour.turn = undone, turn
        at = self._place(following, tuple(order), detour)
        return at, self._simplest(at, detour)

    def _parts(self, position: Any) -> tuple[str, list[str], list[str], list[str], dict[str, int], list[str], int]:
        if type(position) is list and len(position) == 2 and type(position[1]) is int:
            raise StateRefused(of_another_kind(self.owner, "the position of a state machine"))
        try:
            if len(position) == 2:
                following, order = position
                done = order if following == END else order[: order.index(following)]
                position = [following, order, done, [], {}, [], 0]
            parts: tuple[str, list[str], list[str], list[str], dict[str, int], list[str], int] = msgspec.convert(
                position, _position_of
            )
        except (AttributeError, TypeError, ValueError) as error:
            msg = (
                f"the state of {self.owner} holds {position!r:.100} in the place of a position, which is the next step "
                "and the order of all"
            )
            raise StateRefused(msg) from error
        return parts

    def _own_names(self, order: list[str], following: str) -> tuple[str, ...]:
        """Names of today's steps in the stored order.

        Of several steps that are one now, it is the next one, which may have begun; else today's name, or the first.
        """
        own = list(self.names)
        for name in (*reversed(order), *(name for name in order if name in self._index), following):
            if (at := self._resolved.get(name)) is not None:
                own[at] = name
        return tuple(own)

    # ------------------------------------------------------------ placing
    def _place(self, following: str, order: tuple[str, ...], detour: Detour) -> int:
        end = len(self.bound_steps)
        known = end if following == END else self._resolved.get(following)
        done = {at for name in detour.done if (at := self._resolved.get(name)) is not None}
        over = done | {at for name in detour.skipped if (at := self._resolved.get(name)) is not None}
        first = next((n for n in range(end) if n not in over), end)
        last = max(done, default=-1)
        merged = self._merged(following, order, detour)
        begun = known if known is not None and merged is None and detour.repeats.get(following) else None
        gone, behind = self._replaced(order, detour, done, first) if known is not None else (None, 0)
        is_barred = (
            gone is not None or merged is not None or (first < last if begun is None else first < max(last, begun))
        )
        if (known is not None and not is_barred) or self.on_change == "run":
            target = first
        elif self.on_change == "skip":
            start = max(last + 1, behind)
            target = begun if begun is not None else next((n for n in range(start, end) if n not in over), end)
            detour.skipped += [detour.names[n] for n in range(target) if n not in over]
        else:
            barred = None if known is None else (first, last, begun)
            detour.refusal = self._refusal(following, order, detour, barred, gone, merged)
            detour.next, detour.order = following, order
            return end if known is None else known
        detour.is_moved = target != known
        return target

    def _merged(self, following: str, order: tuple[str, ...], detour: Detour) -> str | None:
        """A done step of the stored order that is one with the next step now. None where there is none."""
        known = self._resolved.get(following)
        if known is None or following in detour.done:
            return None
        return next((name for name in order if name in detour.done and self._resolved.get(name) == known), None)

    def _replaced(self, order: tuple[str, ...], detour: Detour, done: set[int], first: int) -> tuple[str | None, int]:
        """A done step that is gone and in whose place new steps stand, with today's index of the step behind those.

        Such a new step may be the one that is gone, renamed. None where the first step that has not run is no new one,
        or where no done step was between the two that still are around it.
        """
        stood = {at: n for n, name in enumerate(order) if (at := self._resolved.get(name)) is not None}
        if first == len(self.bound_steps) or first in stood:
            return None, 0
        before = max((stood[n] for n in done if n < first and n in stood), default=-1)
        behind = next((n for n in range(first, len(self.bound_steps)) if n in stood), len(self.bound_steps))
        between = order[before + 1 : stood.get(behind, len(order))]
        gone = [name for name in between if name in detour.done and name not in self._resolved]
        return (gone[0], behind) if gone else (None, 0)

    def _refusal(
        self,
        following: str,
        order: tuple[str, ...],
        detour: Detour,
        barred: tuple[int, int, int | None] | None,
        gone: str | None,
        merged: str | None,
    ) -> str:
        if merged is not None:
            one = self.names[self._resolved[following]]
            return (
                f"{self.owner} has the one step {one!r} in the place of {merged!r}, which is done, and of "
                f"{following!r}, which is not. Keep {following!r} as a step of its own, without was=, until none "
                'stands before it, or write on_change="run" or on_change="skip" to leave it out'
            )
        if gone is not None and barred is not None:
            new = self.names[barred[0]]
            problem = f"{gone!r}, which is done, is gone, and {new!r} has not run and stands in its place"
        elif barred is None:
            problem = f"it has no step {following!r} any more, and the procedure stands before it"
        else:
            first, last, begun = barred
            late, how = (last, "done") if last > first or begun is None else (begun, "begun")
            problem = f"{self.names[first]!r} has not run and stands before {self.names[late]!r}, which is {how}"
        today, done = set(self._resolved), set(detour.done)
        is_renamed = any(name not in today for name in order)
        renamed = " @step(was=(…,)) on a step that has another name now," if is_renamed else ""
        kept = [self.names[self._resolved[name]] for name in order if name in today]
        meant = tuple(dict.fromkeys((*kept, *self.names)))
        return (
            f"{self.owner} has the steps {_arrows(self.names)} in this order, and the procedure was stored with "
            f"{_arrows(order)}, of which {_listed([n for n in order if n in done])} done: {problem}. Write{renamed} "
            f"order={meant} in the class line to keep the order, "
            'on_change="run" to run what has not run, or on_change="skip" to leave it out'
        )


def _arrows(names: Iterable[str]) -> str:
    return " → ".join(names) or "(none)"


def _listed(names: list[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}" if names else "none is"
