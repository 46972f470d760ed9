"""Scenarios: small programs that are disturbed at every place."""
