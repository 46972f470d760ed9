"""Support that every room may use: durations, digests, loggers of the engine's threads."""
