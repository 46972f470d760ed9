"""Housekeeping: retention and shutdown."""
