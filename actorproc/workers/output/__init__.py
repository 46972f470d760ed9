"""Output of workers: pipes, the log buffer and its spool."""
