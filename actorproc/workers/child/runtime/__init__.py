"""The runtime of a worker: its channel, its live procedures, the threads of their steps."""
