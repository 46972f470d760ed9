"""Hierarchical locks as a data structure: modes, wait lists, the wait-for graph."""
