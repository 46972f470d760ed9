"""Commands that look: at a store, at one procedure, at the running manager."""
