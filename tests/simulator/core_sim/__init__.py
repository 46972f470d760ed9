"""Core simulation: a fake shell and fake workers around real decisions."""
