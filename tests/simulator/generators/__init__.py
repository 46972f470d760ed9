"""Generators of random procedure programs."""
