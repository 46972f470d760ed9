"""The process in which ``doctor`` reads a store: it may die of what it reads. Prints one JSON object a line."""

from __future__ import annotations

import json
import sys

__all__ = ["main"]


def main(path: str) -> int:
    """Examine the store at `path`."""
    from actorproc.errors import ActorprocError
    from actorproc.store.tools.isolated_check import examine

    try:
        for found in examine(path):
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()
    except ActorprocError as error:
        sys.stdout.write(json.dumps({"what": "error", "type": type(error).__name__, "error": str(error)}) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
