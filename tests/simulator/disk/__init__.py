"""The disk: torn writes, power cuts and damaged files."""
