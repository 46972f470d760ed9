"""A tree of Python sources: which files it has, which region each belongs to, what each defines."""

from __future__ import annotations

import ast
import sysconfig
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["UNPARSABLE", "Symbol", "parse", "python_files", "region_of", "standard_library", "symbols_in"]

SKIPPED_DIRECTORIES = frozenset({"site-packages", "dist-packages", "__pycache__"})

UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""Errors of the parser for a file that is no valid module; a standard library keeps some for its own tests."""

Symbol = tuple[int, int, str, str]
"""Line, column, kind (class, function, coroutine), name."""

_KINDS: dict[type[ast.AST], str] = {
    ast.ClassDef: "class",
    ast.FunctionDef: "function",
    ast.AsyncFunctionDef: "coroutine",
}


def standard_library() -> Path:
    """The directory of the running interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def python_files(root: Path) -> list[str]:
    """All Python files below `root` as sorted relative paths with forward slashes.

    Installed packages and caches are left out, and so are names that are not valid Unicode, because a
    table of text could not name them.
    """
    return sorted(path.relative_to(root).as_posix() for path in _walk(root))


def _walk(directory: Path) -> Iterator[Path]:
    for entry in directory.iterdir():
        if not _is_unicode(entry.name):
            continue
        if entry.is_dir() and not entry.is_symlink():
            if entry.name not in SKIPPED_DIRECTORIES:
                yield from _walk(entry)
        elif entry.suffix == ".py" and entry.is_file():
            yield entry


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def region_of(path: str, regions: int) -> int:
    """The region a file belongs to: a hash of its name, equal in every process (unlike ``hash``)."""
    return zlib.crc32(path.encode()) % regions


def parse(source: bytes) -> ast.Module:
    """The syntax tree of a module, without the warnings old code gives. Raises one of `UNPARSABLE`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def symbols_in(source: bytes) -> list[Symbol] | None:
    """Every class and function defined anywhere in a module, in order of position; None when it cannot be parsed."""
    try:
        tree = parse(source)
    except UNPARSABLE:
        return None
    found: list[Symbol] = []
    # A stack instead of recursion: generated code nests deeper than Python's call limit.
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append((node.lineno, node.col_offset, _KINDS[type(node)], node.name))
        pending.extend(ast.iter_child_nodes(node))
    return sorted(found)
