"""Links: authenticated TLS connections between machines. Sockets and bytes only; nothing here knows the engine."""
