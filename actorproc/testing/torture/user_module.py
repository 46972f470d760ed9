"""A user's own module: ``torture(folder, seed)`` gives the procedures, ``check(folder)`` judges what they left."""

from __future__ import annotations

import importlib
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from actorproc.errors import UsageError
from actorproc.model.ids import check_id
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.shipping.importing import imports_only
from actorproc.procedure.values.error_text import in_words

__all__ = ["own_opinion", "own_procedures", "try_module"]


def try_module(name: str, seed: int) -> None:
    """Ask a module for its procedures in a folder that is removed again. Raises as `own_procedures` does."""
    with tempfile.TemporaryDirectory(prefix="actorproc-torture-") as folder:
        own_procedures(name, folder, seed)
    check = getattr(_module(name), "check", None)
    if check is not None and not callable(check):
        msg = f"check in {name} is no function check(folder), but {check!r:.60}"
        raise UsageError(msg)


def own_procedures(name: str, folder: str, seed: int) -> list[tuple[str, Procedure]]:
    """The procedures of a module with their ids. Raises `UsageError` for what is wrong, and what the module raises."""
    torture = getattr(_module(name), "torture", None)
    if not callable(torture):
        msg = f"{name} has no function torture(folder, seed) that yields procedures or (id, procedure) pairs"
        raise UsageError(msg)
    given = torture(folder, seed)
    if not isinstance(given, Iterable):
        msg = f"torture() of {name} gave {given!r:.60}; it yields procedures or (id, procedure) pairs"
        raise UsageError(msg)
    found: dict[str, Procedure] = {}
    for id, procedure in _pairs(name, given):
        if found.setdefault(check_id(id), procedure) is not procedure:
            msg = f"torture() of {name} gave the id {id!r} twice"
            raise UsageError(msg)
    if not found:
        msg = f"torture() of {name} gave no procedure"
        raise UsageError(msg)
    return list(found.items())


def own_opinion(name: str, folder: Path) -> Iterator[str]:
    """Findings of the module's own check, in words; a check that raises is such a finding."""
    check: Any = getattr(_module(name), "check", None)
    if check is None:
        return
    try:
        said = check(str(folder))
        if said is None or isinstance(said, str):
            said = [said] if said else []
        for text in said:
            yield str(text)
    except Exception as error:  # noqa: BLE001 - user code, such as an assertion
        last = traceback.extract_tb(error.__traceback__)[-1]
        yield f"check() raised {in_words(error)} ({Path(last.filename).name}, line {last.lineno})"


def _pairs(name: str, given: Iterable[Any]) -> Iterator[tuple[str, Procedure]]:
    for number, entry in enumerate(given):
        match entry:
            case Procedure():
                yield f"root-{number}", entry
            case (str() as id, Procedure() as procedure):
                yield id, procedure
            case _:
                msg = f"torture() of {name} gave {entry!r:.60}, which is no procedure and no (id, procedure) pair"
                raise UsageError(msg)


def _module(name: str) -> ModuleType:
    try:
        with imports_only("actorproc torture"):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there; what it imports is not
        msg = f"there is no module {name!r} in {Path.cwd()} nor anywhere else on the path of Python"
        raise UsageError(msg) from error
