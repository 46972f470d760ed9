"""Sphinx extension: tables made of the code, and links of pages that lead out of the documentation."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import actorproc
from docs._extensions.tables import TABLES

__all__ = ["setup"]

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security-policy.md",
    "bench/README.md": "project/benchmarks.md",
    "bench/PROFILES.md": "project/profiles.md",
}
"""Files beside the documentation that are pages of it."""
_FILES = {page: ROOT / file for file, page in PAGES.items() if page != "index.md"}
_FENCE = re.compile(r"^(`{3,}).*?^\1`*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^()\s]+)\)")
_PICTURE = re.compile(r"!\[([^\]\n]*)\]\(([^()\s]+)\)")


class GeneratedTable(SphinxDirective):
    """``{generated} settings``: what `TABLES` makes for the word."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table, read as Markdown where the directive stands."""
        return self.parse_text_to_nodes(TABLES[self.arguments[0]](), allow_section_headings=True)


def relinked(text: str, place: Path, documents: Path, address: str) -> str:
    """A page whose links to files outside of the documentation lead to their pages, or to the repository.

    Args:
        text: The page.
        place: The folder of the file that has the text.
        documents: The folder of the page, from which links are counted.
        address: Address of the repository's files; empty: such links become plain text.
    """
    docs = ROOT / "docs"

    def link(found: re.Match[str]) -> str:
        label, target = found[1], found[2]
        path, hash_, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", target):
            return found[0]
        there = (place / path).resolve()
        if there.is_relative_to(docs) and (there.suffix == ".md" or there.suffix in (".svg", ".png")):
            return f"[{label}]({_way(documents, there)}{hash_}{anchor})"
        inside = there.relative_to(ROOT).as_posix() if there.is_relative_to(ROOT) else ""
        if inside in PAGES:
            anchor = "" if inside == "README.md" else anchor
            return f"[{label}]({_way(documents, docs / PAGES[inside])}{'#' if anchor else ''}{anchor})"
        return f"[{label}]({address}/{inside})" if address else label

    def picture(found: re.Match[str]) -> str:
        return f"![{found[1]}]({_way(documents, (place / found[2]).resolve())})"

    parts, end = [], 0
    for fence in [*_FENCE.finditer(text), None]:
        prose = text[end : fence.start() if fence else None]
        parts.append(_PICTURE.sub(picture, _LINK.sub(link, prose)))
        if fence:
            parts.append(fence[0])
            end = fence.end()
    return "".join(parts)


def _way(start: Path, target: Path) -> str:
    return os.path.relpath(target, start).replace(os.sep, "/")


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    """A page as it is, or the file beside the documentation that it stands for."""
    page = Path(app.env.doc2path(name))
    if page.suffix != ".md":
        return
    stands_for = _FILES.get(page.relative_to(app.srcdir).as_posix())
    if stands_for is not None:
        app.env.note_dependency(str(stands_for))
        source[0] = stands_for.read_text(encoding="utf-8")
    place = page.parent if stands_for is None else stands_for.parent
    source[0] = relinked(source[0], place, page.parent, app.config.repository)


def _import_for_annotations(_app: Sphinx) -> None:
    """Have modules import what they import for type checkers alone, so that signatures can be read."""
    for name in actorproc.__all__:
        getattr(actorproc, name)
    for name, module in list(sys.modules.items()):
        if not name.startswith("actorproc.") or not (file := getattr(module, "__file__", None)):
            continue
        for block in ast.parse(Path(file).read_text(encoding="utf-8")).body:
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
                for line in (line for line in block.body if isinstance(line, ast.Import | ast.ImportFrom)):
                    with contextlib.suppress(ImportError):  # an extra that is not installed
                        exec(ast.unparse(line), vars(module))  # noqa: S102 - an import of our own


def _leave_out_private_names(app: Sphinx) -> list[Any]:
    """Take names in private modules out of the inventory and the search: each object is there by its public name."""
    objects = app.env.domains.python_domain.objects
    for name in [name for name, entry in objects.items() if entry.aliased]:
        del objects[name]
    return []


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_config_value("repository", "", "env", str)
    app.add_directive("generated", GeneratedTable)
    app.add_lexer("mermaid", TextLexer)
    app.connect("builder-inited", _import_for_annotations)
    app.connect("source-read", _read)
    # The last event before the inventory and the index of the search are written.
    app.connect("html-collect-pages", _leave_out_private_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
