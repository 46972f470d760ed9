"""The private socket through which other processes of the same user reach a running manager."""
