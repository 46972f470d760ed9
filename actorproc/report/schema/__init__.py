"""The one JSON shape of everything that is shown: command line, clients and pages. See ``docs/reference/json.md``."""
