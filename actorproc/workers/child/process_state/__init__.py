"""The state of the worker's process: limits, guards, and what steps may leave behind."""
