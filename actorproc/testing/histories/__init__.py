"""Histories of real processes, judged against the store they leave."""
