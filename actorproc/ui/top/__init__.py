"""``actorproc top``: a live screen of a store, on textual."""
