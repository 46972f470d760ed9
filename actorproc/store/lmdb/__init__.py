"""The LMDB store: one environment, one transaction per commit."""
