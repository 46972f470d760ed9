"""``actorproc run``: a manager as a service."""
