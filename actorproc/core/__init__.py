"""Decisions of the engine, pure: no threads, no I/O, no clock, no randomness; time is an argument."""
