"""The main module of a process that a step starts through `multiprocessing`: what its parent's has."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from actorproc.procedure.shipping.worker_main import show, show_what_comes, shown

__all__ = ["pickled_main", "receive_main"]


def pickled_main() -> dict[str, bytes]:
    """Objects that came along, for a child that `multiprocessing` starts anew, as far as they can be pickled."""
    from actorproc.procedure.shipping.by_value import dumped  # noqa: PLC0415 - steps that start no process need not wait

    found = {}
    for name, subject in shown().items():
        with contextlib.suppress(Exception):  # `__reduce__` is user code, and the child may never ask for this one
            found[name] = dumped(subject)
    return found


def receive_main(pickled: Mapping[str, bytes]) -> None:
    """Take over, in such a child, what its parent's main module has."""
    from actorproc.procedure.shipping.origins import loads  # noqa: PLC0415 - as above

    show_what_comes()
    for name, body in pickled.items():
        with contextlib.suppress(Exception):
            show(name, loads(body))
