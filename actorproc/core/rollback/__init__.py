"""Rollback: the scope of a failure, and the undo of its units."""
