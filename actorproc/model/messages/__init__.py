"""Messages of the core: events in, commands out, outcomes of steps."""
