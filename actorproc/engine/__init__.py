"""The engine: actors that persist what the core decides, and act on it afterwards."""
