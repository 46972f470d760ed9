"""Reports: the structs that users, commands and pages are shown."""
