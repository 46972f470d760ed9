"""Worker processes, and the pool that starts and stops them."""
