"""Verification: records against checksums, indexes and each other."""
