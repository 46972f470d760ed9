"""Output of workers: pipes, the log book and its spool."""
