"""The facts of procedure classes as the files hold them now, found out by a process that has loaded nothing yet.

Run as a program it reads JSON from standard input, pairs of module and qualified name, and writes a list of the
classes' `TypeMeta`, or of what their import raised.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from actorproc.model.messages.definitions import Definition
from actorproc.model.policies import TypeMeta
from actorproc.procedure.runtime.type_runtime import TypeRuntime
from actorproc.procedure.shipping.importable import found_at
from actorproc.procedure.shipping.importing import imports_only
from actorproc.procedure.values.error_text import in_words
from actorproc.procedure.values.type_names import command_of_module

__all__ = ["differences"]

_PATIENCE = 60.0
"""Seconds for the import of all modules."""
_SOME_KEY = b"\0" * 32
"""Signs nothing: classes with pickled states are not read without one."""


def differences(definitions: Sequence[Definition]) -> list[str]:
    """Differences between the files and the registered classes, one sentence each.

    Facts are what the manager decides on without loading a class: version, retries, limits, locks and the like.
    """
    asked = [each for each in definitions if each.module is not None and each.qualname is not None and not each.loader]
    if not asked:
        return []
    wanted = [(each.module, each.qualname) for each in asked]
    done = subprocess.run(  # noqa: S603 - ourselves
        command_of_module("actorproc.procedure.runtime.probing"),
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=_PATIENCE,
    )
    if done.returncode:
        return [f"the new code cannot be imported: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"]
    found = msgspec.json.decode(done.stdout.splitlines()[-1], type=list[TypeMeta | str])
    said: list[str] = []
    for each, now in zip(asked, found, strict=True):
        said += [f"{each.meta.type_name} {now}"] if isinstance(now, str) else _compared(each.meta, now)
    return said


def _compared(before: TypeMeta, now: TypeMeta) -> list[str]:
    pairs = ((name, getattr(before, name), getattr(now, name)) for name in before.__struct_fields__)
    return [
        f"{before.type_name}: {name} is {new!r:.60} in the new code, and was registered as {old!r:.60}"
        for name, old, new in pairs
        if old != new
    ]


def _main() -> None:
    wanted = json.load(sys.stdin)
    with imports_only("actorproc reload"):
        found = [_meta_now(*each) for each in wanted]
    sys.stdout.write(f"{msgspec.json.encode(found).decode()}\n")


def _meta_now(module: str, qualname: str) -> TypeMeta | str:
    try:
        subject = found_at(importlib.import_module(module), qualname)
        if subject is None:
            return f"is not in the new code: module {module!r} has no {qualname!r}"
        return TypeRuntime.of_class(subject, signing_key=_SOME_KEY).meta
    except Exception as error:  # noqa: BLE001 - importing runs user code
        return f"cannot be imported from the new code: {in_words(error)}"


if __name__ == "__main__":
    _main()
