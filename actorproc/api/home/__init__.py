"""The home of an engine: what a directory is opened into, and its handover to a successor."""
