"""The scheduler: which runnable procedure gets which worker."""
