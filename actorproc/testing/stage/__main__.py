"""The command line, see `actorproc.testing.stage`."""

from __future__ import annotations

import sys

from actorproc.testing.stage.campaign import main

if __name__ == "__main__":
    sys.exit(main())
