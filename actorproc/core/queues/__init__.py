"""Queues, limits and timers that procedures wait in."""
