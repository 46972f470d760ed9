"""Many hosts in one process, whose workers are threads: `python -m tests.leaders.many_hosts URL COUNT`."""

from __future__ import annotations

import sys

from actorproc.api.home.host_side import HostSide
from actorproc.store.home import home_of
from actorproc.testing.fake_pool import FakePool

__all__ = ["main"]


def main(url: str, count: int) -> None:
    """Serve with so many hosts until standard input ends; host 7 offers the label n7."""
    home = home_of(url)
    hosts = [
        HostSide(home, lambda _settings, _epoch: FakePool(), workers=1, labels=(f"n{number}",))
        for number in range(count)
    ]
    for host in hosts:
        host.start()
    sys.stdin.read()
    for host in hosts:
        host.agent.stop()
    for host in hosts:
        host.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
