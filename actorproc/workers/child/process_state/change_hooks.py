"""Dirty flag: cheap detection of changes of process-wide state by Python code, which else takes system calls.

After every step all of that would have to be asked for, which takes as long as a small step. So the functions that
change it tell when they were called. A module that can do the same in other ways is looked for by its name. Changes
by native code, or by code that calls the functions below ours, are not told: so the state is read from time to time.
"""

from __future__ import annotations

import functools
import os
import resource
import signal
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["ChangeHooks", "changes"]

_OTHER_WAYS = ("_ctypes", "_cffi_backend", "_interpreters", "_xxsubinterpreters")
"""Modules with which Python code changes the process without the functions here."""
_loaded = sys.modules.keys()
_loaded_as = sys.modules.get


class ChangeHooks:
    """Changes that were told; before `watch`, that is anything."""

    def __init__(self) -> None:
        self.were_told = True
        self._tellers: tuple[Any, ...] = ()
        self._places: list[tuple[ModuleType, str, Any]] = []

    def watch(self) -> None:
        """From now on changes are told, also those by modules that are loaded later; call it before they are.

        An audit hook would tell of some, but makes every `id()` of user code four times as slow.
        """
        for name in ("umask", "chdir", "fchdir"):
            self._make_tell("posix", os, name)
        for name in ("setitimer", "alarm", "pthread_sigmask"):
            self._make_tell("_signal", signal, name)
        for name in ("setrlimit", "prlimit"):
            if hasattr(resource, name):
                self._make_tell("resource", resource, name)
        self._put_in_place()
        self._tellers = _places()

    def can_have_been_made(self) -> bool:
        """Since this was asked before."""
        try:
            tellers = _places()
        except AttributeError:  # a step has deleted one
            tellers = ()
        if tellers != self._tellers:
            # Others stand in their place, and tell nothing: they stay, as all that a step patches. Wreckage does not.
            if self._tellers and not (tellers and all(map(callable, tellers))):
                self._put_in_place()
        elif not self.were_told and _loaded.isdisjoint(_OTHER_WAYS) and _loaded_as("resource") is resource:
            return False  # nor was that one loaded anew, with functions that do not tell
        self.were_told = False
        return True

    def _make_tell(self, plain_name: str, shown: ModuleType, name: str) -> None:
        plain = sys.modules.get(plain_name, shown)
        silent = getattr(plain, name)
        teller = _Teller(silent, self)
        if silent in os.supports_fd:
            os.supports_fd.add(teller)
        self._places.append((plain, name, teller))
        seen = getattr(shown, name)
        self._places.append((shown, name, teller if seen is silent else seen))  # or a function that calls the plain one

    def _put_in_place(self) -> None:
        for module, name, teller in self._places:
            setattr(module, name, teller)


class _Teller:
    """A function that tells. Not a Python function: as an attribute of a class that would become a method."""

    def __init__(self, silent: Callable[..., Any], changes: ChangeHooks) -> None:
        functools.update_wrapper(self, silent)
        self.__self__ = getattr(silent, "__self__", None)
        self._silent = silent
        self._changes = changes

    def __call__(self, *args: Any, **named: Any) -> Any:
        try:
            return self._silent(*args, **named)
        finally:  # not before: who looks meanwhile would see nothing, and not look again
            self._changes.were_told = True

    def __repr__(self) -> str:
        return repr(self._silent)

    def __reduce__(self) -> str:
        return str(self.__name__)  # type: ignore[attr-defined]


_has_prlimit = hasattr(resource, "prlimit")


def _places() -> tuple[Any, ...]:
    limits = (resource.setrlimit, resource.prlimit) if _has_prlimit else (resource.setrlimit,)
    return os.umask, os.chdir, os.fchdir, signal.setitimer, signal.alarm, signal.pthread_sigmask, *limits


changes = ChangeHooks()
"""Hooks of this process."""
