"""The commands, one group per file."""
