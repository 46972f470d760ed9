"""The commands that do something, one group per file."""
