"""Shipping of code that a worker cannot import: pickles by value and their origins."""
