"""Runtime parts of actors: clock, inbox, callback thread, bounded queues."""
