"""Every run of the tests tries the same examples, so that what passed once passes again.

Others are looked for on purpose: `HYPOTHESIS_PROFILE=explore pytest tests/simulation`, and the campaigns of
`python -m actorproc.testing.simulation`.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
