"""Vocabulary shared by core, store, workers and actors. Data only, no behaviour."""
