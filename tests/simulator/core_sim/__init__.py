"""The simulation of the core: a fake shell and fake workers around real decisions."""
