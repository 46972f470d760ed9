"""Processes that import a program's modules without being the program: its managers stay shut there.

A worker imports the module of a class to run its steps, and with it the module's top level. A manager that is made and
started there belongs to the program, which has one already. The processes that import so set a flag (`imports_only`):
the worker's main, commands that look into a module, pytest while it collects. Children that a step starts through
`multiprocessing` inherit it. It is never in the environment: a program that a step starts is a program.

With the flag, a manager is shut when it is made or started *while a module is being imported* by that thread. Managers
that a step makes and starts itself are not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any, Self

from actorproc.procedure.shipping.child_main import pickled_main, receive_main

__all__ = ["Importer", "Shut", "imports_for_others", "imports_only", "is_repeated", "mark_multiprocessing", "shut_here"]

_MARK = "actorproc"
"""The name of our entry in the configuration that `multiprocessing` hands down to its children."""
_LOADS = ("exec_module", "load_module", "_load_unlocked", "_exec")
"""Functions of importlib that run a module's code; a loader of another package has a method of the first name."""


class Importer:
    """A process, or a part of its life, that imports modules of a program without running it.

    Attributes:
        name: the process in words, as messages name it.
        starts_late: what it keeps shut starts when it is used, except by another import: the modules become a
            program, such as one under test.
        repeats: the program has imported the modules before, and was warned of what they do.
    """

    def __init__(self, name: str, *, starts_late: bool, repeats: bool) -> None:
        self.name = name
        self.starts_late = starts_late
        self.repeats = repeats
        self._before: Importer | None = None

    def __enter__(self) -> Self:
        global _current
        self._before, _current = _current, self
        return self

    def __exit__(self, *_: object) -> None:
        global _current  # noqa: PLW0603 - a flag of the process
        if _current is self:
            _current = self._before


_current: Importer | None = None


@dataclass(frozen=True, slots=True)
class Shut:
    """The import that keeps a manager or an executor shut."""

    importer: Importer
    module: str

    def holds(self) -> bool:
        """A use of it now is an error."""
        return not self.importer.starts_late or shut_here() is not None

    def reason(self, kind: str, path: str) -> str:
        """The message for a use of it.

        Args:
            kind: "manager", "executor" or "connection".
            path: its directory.
        """
        return (
            f"the {kind} on {path} was made or started while {self.importer.name} imported the module "
            f"{self.module!r}, so it stays shut in this process: it runs in the program itself. In a step, return "
            "sub-procedures with Status.suspended(…), call functions directly, and ask the running manager through "
            f"ProcedureClient({path!r}). To keep it out of other processes altogether, make it in a function, in the "
            'lifespan of the application, or under `if __name__ == "__main__":`'
        )


def imports_only(name: str, *, starts_late: bool = False, repeats: bool = False) -> Importer:
    """A flag to set with ``with``, or for good by its ``__enter__``.

    Args:
        name: the importing process in words, such as "a worker process".
        starts_late: what is kept shut starts when it is used.
        repeats: the program has imported the same modules itself.
    """
    return Importer(name, starts_late=starts_late, repeats=repeats)


def is_repeated() -> bool:
    """Warnings of modules that are imported now were issued in the program already."""
    return _current is not None and _current.repeats


def imports_for_others() -> bool:
    """This process runs steps of a program, or looks into its modules, and is not the program."""
    return _current is not None and not _current.starts_late


def shut_here() -> Shut | None:
    """The reason why what this thread makes or starts now stays shut; None: it does not."""
    importer = _current
    if importer is None:
        return None
    module = _module_being_imported()
    return Shut(importer, module) if module is not None else None


def _module_being_imported() -> str | None:
    """The innermost module whose code this thread runs because it is imported."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        caller = frame.f_back
        if frame.f_code.co_name == "<module>":
            if caller is not None and _is_import(caller):
                return str(frame.f_globals.get("__name__"))
        elif frame.f_code.co_name in _LOADS and _is_importlib(frame):
            # Compiled modules have no frame of their own.
            loaded: Any = frame.f_locals.get("module") or frame.f_locals.get("spec")
            return str(getattr(loaded, "__name__", getattr(loaded, "name", "?")))
        frame = caller
    return None


def _is_import(caller: FrameType) -> bool:
    """The caller of a module's code is a loader, and not `exec` or `runpy` in a step."""
    return _is_importlib(caller) or caller.f_code.co_name == "exec_module"


def _is_importlib(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(("<frozen importlib.", "<frozen zipimport"))


# ------------------------------------------------------------ multiprocessing
class _Mark:
    """Sets the flag in the process that unpickles it: a child of a step, before its function is looked up."""

    def __reduce__(self) -> tuple[Callable[[dict[str, bytes]], _Mark], tuple[dict[str, bytes]]]:
        return (_in_child, (pickled_main(),))


def _in_child(main: dict[str, bytes]) -> _Mark:
    if _current is None:
        imports_only("a child process of a step", repeats=True).__enter__()
    receive_main(main)
    return _Mark()


def mark_multiprocessing() -> None:
    """Have the children that this process starts through `multiprocessing` inherit the flag.

    Forked ones do anyway. The others get it with the process object, as all that `multiprocessing` hands down. The
    package takes 10 ms to import, so it is marked when a step imports it.
    """
    loaded = sys.modules.get(_Marker.TARGET)
    if loaded is not None:
        _mark(loaded)
    else:
        sys.meta_path.insert(0, _Marker())


def _mark(process: ModuleType) -> None:
    config = getattr(process.current_process(), "_config", None)
    if isinstance(config, dict):
        config[_MARK] = _Mark()


class _Marker:
    """A finder for one module, which it marks behind the module's own loader."""

    TARGET = "multiprocessing.process"

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The module's own spec, with this as its loader."""
        if name != self.TARGET:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None) if finder is not self else None
            spec = find(name, path, target) if find is not None else None
            if spec is not None and spec.loader is not None:
                spec.loader = _MarkingLoader(spec.loader, self)
                return spec  # type: ignore[no-any-return]
        return None


class _MarkingLoader:
    def __init__(self, loader: Any, finder: _Marker) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the module's own loader."""
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code, then mark it. The finder has done its work."""
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        spec = module.__spec__
        if spec is not None:
            spec.loader = module.__loader__ = self._loader
        _mark(module)
