"""Values: what states, outputs and payloads may hold, as msgpack and back."""
