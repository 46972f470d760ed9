"""Operator requests: retry, bypass, pause and resume."""
