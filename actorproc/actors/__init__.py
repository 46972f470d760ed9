"""Actors of the engine, which carry data between decisions, the store and the workers."""
