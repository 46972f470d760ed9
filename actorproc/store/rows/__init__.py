"""Rows: records as keys and bytes, in the same layout for every store."""
