"""Procedure classes at work: their registry, and their steps as the engine runs them."""
