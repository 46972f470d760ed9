"""Enqueue procedures from transactions of your own, where their PostgreSQL is that of the store.

`enqueue` writes one row in the transaction of a connection that you give it. The procedure is committed with your own
rows, or not at all. `enqueue_async` does the same where connections are awaited.
"""

from actorproc.api.verbs.enqueue import enqueue, enqueue_async

__all__ = ["enqueue", "enqueue_async"]
