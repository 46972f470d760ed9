"""What to do: pure decisions. No threads, no I/O, no clock, no randomness; time is an argument."""
