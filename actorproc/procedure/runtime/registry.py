"""Names to classes and loaders. The only place where a type name is ever looked up."""

from __future__ import annotations

import threading
from typing import Any

from actorproc.errors import DuplicateType, UsageError
from actorproc.procedure.authoring.function import ProcedureFunction
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.encoding.signing import SigningKey
from actorproc.procedure.runtime.type_runtime import Loader, TypeRuntime
from actorproc.procedure.values.members import option, type_name_of

__all__ = ["TypeRegistry"]


class TypeRegistry:
    """The types one manager, or one worker, knows. May be used from any thread."""

    def __init__(self, *, signing_key: SigningKey | None = None) -> None:
        """``signing_key`` is needed by classes with ``codec = "pickle"`` only."""
        self._signing_key = signing_key
        self._runtimes: dict[str, TypeRuntime] = {}
        self._loaders: dict[str, Loader] = {}
        self._lock = threading.RLock()

    def hold(self) -> None:
        """Keep all other threads out, while this process forks."""
        self._lock.acquire()

    def release(self) -> None:
        """Let them in again."""
        self._lock.release()

    def register(self, procedure_class: type[Procedure] | ProcedureFunction[..., Any]) -> TypeRuntime:
        """Make a class, or a `procedure` function, known, with those of its ``uses``. The same again changes nothing.

        A class of ``__main__`` or of a function replaces the one it is a new edition of; any other class under a
        name that is taken raises `DuplicateType`. Raises `UsageError` when the class cannot be run.
        """
        if isinstance(procedure_class, ProcedureFunction):
            procedure_class = procedure_class.procedure_class
        with self._lock:
            known = self._runtimes.get(type_name_of(procedure_class))
            if known is not None and known.procedure_class is procedure_class:
                return known
            runtime = TypeRuntime.of_class(procedure_class, signing_key=self._signing_key)
            self._place(runtime)
            for used in option(procedure_class, "uses"):
                if isinstance(used, ProcedureFunction) or issubclass(used, Procedure):
                    self.register(used)
            return runtime

    def register_loader(self, type_name: str, loader: Loader) -> TypeRuntime:
        """Make a type known by ``loader(data) -> Procedure``; ``data`` is what the object's `dump` returned.

        With a class of this name registered too, the loader takes the place of the class's `load`. Another loader
        under the name raises `DuplicateType`, unless it is the same function of ``__main__``, or the same local
        one, defined anew.
        """
        with self._lock:
            known = self._runtimes.get(type_name)
            if known is not None and known.loader is loader:
                return known
            if known is not None and known.loader is not None and not _is_new_edition(loader, known.loader):
                msg = f"another loader is registered as {type_name!r} already; choose another type_name"
                raise DuplicateType(msg)
            runtime = TypeRuntime.of_loader(type_name, loader)
            if known is not None and known.procedure_class is not None:
                runtime = TypeRuntime(runtime.type_name, known.procedure_class, loader, self._signing_key)
            if known is not None:
                runtime.revision = known.revision + 1
            self._runtimes[runtime.type_name] = runtime
            return runtime

    def add(self, runtime: TypeRuntime) -> None:
        """Make known what a host defined: in a worker, a later revision simply replaces an earlier one."""
        with self._lock:
            self._runtimes[runtime.type_name] = runtime

    def for_object(self, procedure: Procedure) -> TypeRuntime:
        """The runtime of an object's class, registered at need. Raises `UsageError` for what is no procedure."""
        if not isinstance(procedure, Procedure) or type(procedure) is Procedure:
            raise UsageError(_why_no_procedure(procedure))
        known = self._runtimes.get(type_name_of(type(procedure)))
        if known is not None and known.procedure_class is type(procedure):
            return known
        return self.register(type(procedure))

    def get(self, type_name: str) -> TypeRuntime | None:
        """The runtime registered under this name."""
        return self._runtimes.get(type_name)

    def names(self) -> tuple[str, ...]:
        """All registered names, in order of registration."""
        with self._lock:
            return tuple(self._runtimes)

    def _place(self, runtime: TypeRuntime) -> None:
        known = self._runtimes.get(runtime.type_name)
        if known is not None:
            runtime.revision = known.revision + 1
            if known.procedure_class is None:
                runtime.loader = known.loader
            elif not _is_replaceable(runtime.procedure_class) or not _is_replaceable(known.procedure_class):
                msg = (
                    f"{known.procedure_class!r} is registered as {runtime.type_name!r} already; "
                    f"give {runtime.procedure_class!r} a type_name of its own"
                )
                raise DuplicateType(msg)
        self._runtimes[runtime.type_name] = runtime


def _why_no_procedure(subject: object) -> str:
    if isinstance(subject, type) and issubclass(subject, Procedure):
        name = subject.__qualname__
        return f"{name} is a class; submit an object of it, such as {name}(…)"
    if isinstance(subject, ProcedureFunction):
        return f"{subject!r} is a function; call it to get a procedure to submit, as in {subject.function.__name__}(…)"
    try:
        shown = repr(subject)[:80]
    except Exception:  # noqa: BLE001 - __repr__ is user code
        shown = f"an object of {type(subject).__qualname__}"
    return f"{shown} is no procedure; submit an object of a class derived from actorproc.Procedure"


def _is_replaceable(subject: object) -> bool:
    """Made in a program's main module or inside a function: running that code again makes a new edition."""
    return getattr(subject, "__module__", "") == "__main__" or "<locals>" in getattr(subject, "__qualname__", "")


def _is_new_edition(loader: object, known: object) -> bool:
    """The same function, defined again. Nothing tells whether one lambda is another one's new edition."""
    names, old = [
        (getattr(each, "__module__", ""), getattr(each, "__qualname__", "<lambda>")) for each in (loader, known)
    ]
    return names == old and not names[1].endswith("<lambda>") and _is_replaceable(loader)
