"""View models: what a screen or a page shows, computed from reports without any input or output."""
