"""The command line, see `tests.simulator.actor_sim`."""

from __future__ import annotations

import sys

from tests.simulator.actor_sim.campaign import main

if __name__ == "__main__":
    sys.exit(main())
