"""Checks of a procedure class when it is made."""
