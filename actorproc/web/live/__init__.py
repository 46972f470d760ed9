"""Live events: one watch of the manager, and a stream for each browser."""
