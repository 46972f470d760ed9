"""Code that changes under stored procedures: which files it came from, and what new code would make of them."""
