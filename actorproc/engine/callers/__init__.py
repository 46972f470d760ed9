"""The manager's dealings with callers: requests, change feeds, hooks and counters."""
