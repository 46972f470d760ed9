"""Kinds of values beside plain data: extensions of the data codec."""
