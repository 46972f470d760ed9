"""The simulators: seeded histories of the core and of the real actors, and their checker."""
