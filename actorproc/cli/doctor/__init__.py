"""``doctor``: a store read in a process of its own, and advice."""
