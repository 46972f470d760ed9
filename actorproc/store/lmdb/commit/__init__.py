"""The fast commit: the redo record, the meta pages, and the placing of pages."""
