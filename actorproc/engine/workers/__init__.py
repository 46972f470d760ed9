"""The manager's dealings with workers: their messages, deaths, deadlines and replacements."""
