"""Stored forms: states, payloads and outputs as bytes, with digests and signatures."""
