"""The local pool: one thread that starts, feeds and watches worker processes."""
