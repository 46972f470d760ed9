"""``python -m actorproc`` is the command ``actorproc``."""

from __future__ import annotations

import sys

from actorproc.cli.main import main

sys.exit(main())
