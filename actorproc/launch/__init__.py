"""Launchers: other engines start hosts; no step passes through them."""
