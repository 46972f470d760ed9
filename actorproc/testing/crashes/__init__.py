"""Crashes on purpose: a procedure runs with each of them, and its ends are compared."""
