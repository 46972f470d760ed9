"""Dirty flag: cheap detection of changes of process-wide state by Python code, which else takes system calls.

After every step all of that would have to be asked for, which takes as long as a small step. So the functions that
change it tell when they were called. A module that can do the same in other ways is looked for by its name. Changes
by native code, by objects that own a descriptor, or by code that calls the functions below ours are not told.
So the state is read from time to time.
"""

from __future__ import annotations

import functools
import os
import resource
import signal
import sys
from collections.abc import Callable
from operator import itemgetter
from types import ModuleType
from typing import Any

__all__ = ["ChangeHooks", "changes"]

_OTHER_WAYS = ("_ctypes", "_cffi_backend", "_interpreters", "_xxsubinterpreters")
"""Modules with which Python code changes the process without the functions here."""
_WATCHED = tuple(
    (module, [name for name in names.split() if hasattr(module, name)])
    for module, names in (
        (os, "umask chdir fchdir putenv unsetenv close closerange dup2 login_tty"),
        (signal, "setitimer alarm pthread_sigmask signal set_wakeup_fd"),
        (resource, "setrlimit prlimit"),
    )
)
"""Functions that change what a worker looks at, by the module that shows them."""
_PLAIN = {"os": "posix", "signal": "_signal"}
"""Modules that define the functions which another one shows."""
_from_os, _from_signal, _from_resource = (
    itemgetter(*names, names[0])  # that of a single name would give no tuple
    for _, names in _WATCHED
)
_os_names, _signal_names, _resource_names = (vars(module) for module, _ in _WATCHED)
_loaded = sys.modules.keys()
_loaded_as = sys.modules.get


class ChangeHooks:
    """Changes that were told; before `watch`, that is anything."""

    def __init__(self) -> None:
        self.were_told = True
        self._in_os: tuple[Any, ...] = ()
        self._in_signal: tuple[Any, ...] = ()
        self._in_resource: tuple[Any, ...] = ()
        self._places: list[tuple[ModuleType, str, Any]] = []

    def watch(self) -> None:
        """From now on changes are told, also those by modules that are loaded later; call it before they are.

        An audit hook would tell of some, but makes every `id()` of user code four times as slow, and `copy.deepcopy`
        nearly twice.
        """
        for shown, names in _WATCHED:
            for name in names:
                self._make_tell(sys.modules.get(_PLAIN.get(shown.__name__, ""), shown), shown, name)
        self._put_in_place()
        self._in_os, self._in_signal = _from_os(_os_names), _from_signal(_signal_names)
        self._in_resource = _from_resource(_resource_names)

    def can_have_been_made(self) -> bool:
        """Since this was asked before. Asked after every step, hence one expression."""
        try:
            if (
                not self.were_told
                and _from_os(_os_names) == self._in_os
                and _from_signal(_signal_names) == self._in_signal
                and _from_resource(_resource_names) == self._in_resource
                and _loaded.isdisjoint(_OTHER_WAYS)
                and _loaded_as("resource") is resource  # nor was that one loaded anew, with functions that do not tell
            ):
                return False
            found = [*_from_os(_os_names), *_from_signal(_signal_names), *_from_resource(_resource_names)]
        except KeyError:  # a step has deleted one
            found = [None]
        # Others stand in their place, and tell nothing: they stay, as all that a step patches. Wreckage does not.
        if self._places and not all(map(callable, found)):
            self._put_in_place()
        self.were_told = False
        return True

    def _make_tell(self, plain: ModuleType, shown: ModuleType, name: str) -> None:
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


changes = ChangeHooks()
"""Hooks of this process."""
