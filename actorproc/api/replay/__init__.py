"""Replay of stored steps: run again in this process, compared with what was stored, and nothing is written."""
