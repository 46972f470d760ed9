"""Results of steps, losses of workers, due times and aborts: what each leads to."""
