"""The document that ``actorproc export`` writes, read again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from actorproc.errors import UsageError
from actorproc.report.schema.shape import VERSION

__all__ = ["FORMAT", "read_export"]

FORMAT = "export"


def read_export(name: str) -> list[dict[str, Any]]:
    """The trees of an export.

    Args:
        name: the file; - is standard input.

    Raises:
        UsageError: it cannot be read, or is no export of this version.
    """
    try:
        document = json.load(sys.stdin) if name == "-" else json.loads(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is no JSON: {error}") from None
    if (
        not isinstance(document, dict)
        or document.get("object") != FORMAT
        or not isinstance(document.get("trees"), list)
    ):
        raise UsageError(f"{name} is no export of actorproc")
    if document.get("schema") != VERSION:
        raise UsageError(f"{name} has schema {document.get('schema')!r:.20}; this version reads {VERSION}")
    trees: list[dict[str, Any]] = document["trees"]
    return trees
