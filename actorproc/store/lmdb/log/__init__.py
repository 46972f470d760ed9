"""The log in front of the data file: commits are appended to it, and written to the data file later."""
