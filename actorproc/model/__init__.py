"""What is said: the vocabulary shared by core, store, workers and actors. Data only, no behaviour."""
