"""Processes of the operating system: start, memory, usage, control groups."""
