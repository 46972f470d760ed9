"""Rows of the store: records, their parts, and the writes of a decision."""
