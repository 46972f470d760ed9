"""Code that runs inside of a worker process."""
