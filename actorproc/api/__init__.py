"""The public surface: managers, clients, readers, stopped stores, and the handles they give out."""
