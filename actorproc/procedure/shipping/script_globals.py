"""Globals of scripts in workers: one dictionary for each module of a program, as long as the worker lives.

Functions that travel by value share the globals of their module, as they do in the program. Each brings the values that
it refers to, with a *mark* for each (`value_marks`). A worker takes over a value when its mark differs from the one
that came last: so what calls set or fill stays, and what the program has changed arrives.
"""

from __future__ import annotations

import itertools
import os
import sys
import uuid
from collections.abc import Mapping
from typing import Any, TypeAlias

__all__ = ["Home", "changed", "globals_of", "home_of", "keep", "new_token", "news", "pin"]

Home: TypeAlias = tuple[str, str]
"""A run of a program, and the name of a module in it."""

_MOST = 16
"""Modules whose globals a worker keeps; of more, those last used."""


class _Scope:
    """Globals of a module of a program, in a worker."""

    __slots__ = ("home", "kept", "marks", "names", "pinned", "used")

    def __init__(self, home: Home, base: dict[str, Any]) -> None:
        self.home = home
        self.names = base
        """The globals."""
        self.marks: dict[str, bytes | None] = {}
        """Of the values that came last."""
        self.pinned: set[str] = set()
        self.kept: dict[str, Any] = {}
        """Functions and variables that the module has under a name."""
        self.used = 0


class _Scopes:
    """Scopes of this process. No lock: each operation on a dictionary is atomic."""

    def __init__(self) -> None:
        self.renew()
        self._scopes: dict[Home, _Scope] = {}
        self._by_place: dict[int, _Scope] = {}
        self._uses = itertools.count(1)
        self._of_spawned_main: dict[str, Any] | None = None

    def at(self, home: Home, base: dict[str, Any]) -> _Scope:
        """The scope of a module, made of ``base`` when there is none."""
        scope = self._scopes.get(home)
        if scope is None:
            scope = self._scopes.setdefault(home, _Scope(home, base))
            self._by_place[id(scope.names)] = scope
        scope.used = next(self._uses)
        if len(self._scopes) > _MOST:
            oldest = min(list(self._scopes.values()), key=lambda each: each.used)
            self._scopes.pop(oldest.home, None)
            self._by_place.pop(id(oldest.names), None)
        return scope

    def of(self, names: dict[str, Any]) -> _Scope | None:
        """The scope with these globals."""
        scope = self._by_place.get(id(names))
        return scope if scope is not None and scope.names is names else None

    def is_of_spawned_main(self, names: dict[str, Any]) -> bool:
        """The globals of the main program in a process that multiprocessing spawned: its module has a copy of them."""
        if names.get("__name__") != "__mp_main__":
            return False
        if self._of_spawned_main is None:
            self._of_spawned_main = names
        return self._of_spawned_main is names

    def renew(self) -> None:
        """Be another program: a forked copy changes on its own from now on."""
        self.program = uuid.uuid4().hex
        self._numbers = itertools.count(1)

    def new_token(self) -> str:
        """A token of an object of this program."""
        return f"{self.program}:{next(self._numbers)}"


_here = _Scopes()
os.register_at_fork(after_in_child=_here.renew)


# ---------------------------------------------------------------- in the program
def home_of(names: dict[str, Any]) -> Home | None:
    """The module that has these globals; None when no module has."""
    scope = _here.of(names)
    if scope is not None:  # of a call that sends functions on, to a process that it starts
        return scope.home
    name = names.get("__name__")
    module = sys.modules.get(name) if type(name) is str else None
    if module is None or (vars(module) is not names and not _here.is_of_spawned_main(names)):
        return None
    return _here.program, str(name)


def new_token() -> str:
    """A token for what this process sends by value: begins with its run of the program and a colon."""
    return _here.new_token()


# ---------------------------------------------------------------- in a worker
def globals_of(home: Home, base: dict[str, Any]) -> dict[str, Any]:
    """The globals of a module of a program."""
    return _here.at(home, base).names


def keep(home: Home, name: str, subject: Any) -> None:
    """Keep the copy of a function or variable as long as the globals of its module."""
    _here.at(home, {}).kept[name] = subject


def changed(names: dict[str, Any], sent: dict[str, Any], marks: Mapping[str, bytes | None]) -> dict[str, Any]:
    """Values sent that the globals are to have."""
    scope = _here.of(names)
    if scope is None:
        return sent
    return {name: value for name, value in news(scope.marks, sent, marks).items() if name not in scope.pinned}


def news(known: dict[str, bytes | None], sent: dict[str, Any], marks: Mapping[str, bytes | None]) -> dict[str, Any]:
    """Values sent whose marks differ from the known ones; the known marks become theirs."""
    found = {}
    for name, value in sent.items():
        mark = marks.get(name)
        if mark is None or known.get(name) != mark:
            known[name] = mark
            found[name] = value
    return found


def pin(names: dict[str, Any], which: set[str]) -> None:
    """Let no value that is sent replace these: the initializer of an executor set them."""
    scope = _here.of(names)
    if scope is not None:
        scope.pinned |= which
