"""Name of the function that makes a context manager for each attempt, as programs and commands give it."""

from __future__ import annotations

from typing import Any

from actorproc.model.exact import exact_text

__all__ = ["checked_around_step"]


def checked_around_step(name: Any, errors: Any) -> tuple[str | None, bool]:
    """The function around each attempt that workers import, and True if the step fails with what that raises."""
    if errors not in {"log", "fail"}:
        msg = f'around_step_errors is "log" or "fail", not {errors!r:.60}'
        raise ValueError(msg)
    if name is None:
        return None, errors == "fail"
    if not isinstance(name, str):
        msg = f'around_step is the name of a function that workers can import, "module:function", not {name!r:.60}'
        raise TypeError(msg)
    module, found, path = name.partition(":")
    if not found or not all(part.isidentifier() for part in (*module.split("."), *path.split("."))):
        msg = f'around_step is "module:function", not {name!r:.60}'
        raise ValueError(msg)
    if module == "__main__":
        msg = f"around_step={name!r:.60} is in the program itself, which workers do not run; put it into a module"
        raise ValueError(msg)
    return exact_text(name), errors == "fail"
