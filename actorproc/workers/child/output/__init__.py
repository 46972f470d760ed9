"""Output of a worker: streams, log records and stacks."""
