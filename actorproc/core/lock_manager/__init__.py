"""The lock manager: acquiring and releasing locks, deadlocks, poison keys."""
