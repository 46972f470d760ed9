"""Upkeep of a data file: compaction and backup."""
